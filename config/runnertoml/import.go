package runnertoml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway"
)

// ErrNothing means that no runner of the file scales.
var ErrNothing = errors.New("no runner with an [runners.autoscaler] section")

// Note is something that a person has to look at.
type Note struct {
	Runner  string `json:"runner"`
	Setting string `json:"setting"` // as the config.toml has it
	Text    string `json:"text"`    // what became of it, and what to do
}

// Result is the pools of a file.
type Result struct {
	YAML  []byte // the gitlab, providers and pools sections of a spillway.yaml
	Pools int
	Notes []Note // in the order of the file
}

// Import reads a config.toml. Tokens are not taken over: the result names a variable
// for each.
func Import(data []byte) (*Result, error) {
	f, err := read(data)
	if err != nil {
		return nil, err
	}
	im := importer{out: document{Providers: map[string]*provider{}}, names: map[string]bool{}}
	for i := range f.Runners {
		im.runner(i, &f.Runners[i])
	}
	if len(im.out.Pools) == 0 {
		return nil, errors.Join(ErrNothing, im.whyNothing())
	}
	if f.Concurrent > 0 {
		im.note("", "concurrent", "%d jobs at once over all runners of the file has no equivalent: each pool has policy.max", f.Concurrent)
	}
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&im.out), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing the pools: %w", err)
	}
	return &Result{YAML: text.Bytes(), Pools: len(im.out.Pools), Notes: im.notes}, nil
}

// document is what an import writes: as config.Config has it, without what is default.
type document struct {
	GitLab    gitlab               `yaml:"gitlab"`
	Providers map[string]*provider `yaml:"providers"`
	Pools     []pool               `yaml:"pools"`
}

type gitlab struct {
	URL      string `yaml:"url"`
	APIToken source `yaml:"api_token"`
}

type source struct {
	Env string `yaml:"env"`
}

type provider struct {
	Plugin string         `yaml:"plugin"`
	Config map[string]any `yaml:"config"`
}

type pool struct {
	Name       string            `yaml:"name"`
	Mode       string            `yaml:"mode"`
	GitLab     poolGitLab        `yaml:"gitlab"`
	Observe    map[string]string `yaml:"observe"`
	Token      source            `yaml:"runner_token"`
	Capability map[string]any    `yaml:"capability,omitempty"`
	Capacity   int               `yaml:"capacity_per_instance"`
	Provider   string            `yaml:"provider"`
	Group      string            `yaml:"group"`
	Policy     policy            `yaml:"policy"`
}

type poolGitLab struct {
	RunnerID int64 `yaml:"runner_id,omitempty"`
}

type policy struct {
	Max        int     `yaml:"max"`
	IdleCount  int     `yaml:"idle_count,omitempty"`
	IdleFactor float64 `yaml:"idle_factor,omitempty"`
	IdleTime   string  `yaml:"idle_time,omitempty"`
	MaxUses    int     `yaml:"max_uses,omitempty"`
}

type importer struct {
	out   document
	names map[string]bool // of pools
	notes []Note
}

func (im *importer) note(runner, setting, format string, args ...any) {
	im.notes = append(im.notes, Note{Runner: runner, Setting: setting, Text: fmt.Sprintf(format, args...)})
}

func (im *importer) whyNothing() error {
	var errs []error
	for _, n := range im.notes {
		errs = append(errs, fmt.Errorf("runner %s: %s: %s", n.Runner, n.Setting, n.Text))
	}
	return errors.Join(errs...)
}

func (im *importer) runner(i int, r *runner) {
	name := cmp.Or(r.Name, "runners["+strconv.Itoa(i)+"]")
	switch {
	case r.Machine != nil && r.Autoscaler == nil:
		im.note(name, "runners.machine", "Docker Machine has no plugin here: move its machines into an Auto Scaling group or a managed instance group first")
		return
	case r.Autoscaler == nil:
		return
	}
	a := r.Autoscaler
	im.gitlab(name, r)
	p := pool{
		Name: im.poolName(name), Mode: "observe", GitLab: poolGitLab{RunnerID: r.ID},
		Observe: map[string]string{"drain": "sidecar"}, Capacity: max(1, a.CapacityPerInstance),
		Policy: policy{Max: a.MaxInstances, MaxUses: a.MaxUseCount},
	}
	p.Token.Env = "SPILLWAY_" + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_")) + "_TOKEN"
	if r.ID == 0 {
		p.Capability = map[string]any{"tags": []string{"CHANGE-ME"}}
		im.note(name, "runners.id", "the file does not say which runner this is to GitLab: write its number as gitlab.runner_id and drop capability, or write its tags")
	}
	if a.MaxInstances == 0 {
		p.Policy.Max = 10
		im.note(name, "max_instances", "0 is without limit there; a pool needs one: policy.max was set to 10")
	}
	if a.MaxUseCount > 0 {
		im.note(name, "max_use_count", "%d is kept as policy.max_uses and has no effect in mode observe, where GitLab hands the jobs out and nobody counts them: set policy.max_age instead, or use mode route", a.MaxUseCount)
	}
	im.plugin(name, a, &p)
	im.policies(name, a.Policy, &p)
	im.limit(name, r, &p)
	im.rest(name, a)
	im.note(name, "runners.executor", "%s: one manager spoke to all instances. Here each instance runs its own gitlab-runner (the docker executor, with this runner's token) and spillway-agent --sidecar beside it: put both into the image, and stop the manager only when its jobs have ended", cmp.Or(r.Executor, "none"))
	im.out.Pools = append(im.out.Pools, p)
}

func (im *importer) gitlab(name string, r *runner) {
	url := strings.TrimRight(r.URL, "/")
	switch {
	case im.out.GitLab.URL == "":
		im.out.GitLab = gitlab{URL: url, APIToken: source{Env: "SPILLWAY_GITLAB_TOKEN"}}
	case im.out.GitLab.URL != url:
		im.note(name, "runners.url", "%s is another GitLab than %s: a control plane has one; give it one of its own", url, im.out.GitLab.URL)
	}
}

var notInPoolName = regexp.MustCompile(`[^a-z0-9_-]+`)

// poolName makes a name of what people write.
func (im *importer) poolName(runner string) string {
	base := strings.Trim(notInPoolName.ReplaceAllString(strings.ToLower(runner), "-"), "-_")
	base = strings.TrimRight(cmp.Or(base, "pool")[:min(len(cmp.Or(base, "pool")), spillway.MaxPoolNameBytes-4)], "-_")
	name := base
	for n := 2; im.names[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	im.names[name] = true
	return name
}

// plugins are the providers that stand for fleeting's own plugins, by the names that
// a config.toml has for them.
var plugins = map[string]string{
	"aws": "ec2asg", "fleeting-plugin-aws": "ec2asg",
	"googlecloud": "gcemig", "googlecompute": "gcemig", "fleeting-plugin-googlecompute": "gcemig", "fleeting-plugin-googlecloud": "gcemig",
}

func (im *importer) plugin(name string, a *autoscaler, p *pool) {
	plugin, _, _ := strings.Cut(a.Plugin, ":") // a version, as of OCI images
	group, _ := a.PluginConfig["name"].(string)
	p.Group = cmp.Or(group, p.Name)
	if group == "" {
		im.note(name, "plugin_config.name", "names no group: write the group's name as group, here and in the provider")
	}
	kind := plugins[plugin]
	switch kind {
	case "ec2asg":
		p.Provider = im.provider("aws", kind, map[string]any{"region": "CHANGE-ME"}, p.Group)
		im.note(name, "plugin_config", "the region came from the machine or a profile there: write it as region, and a profile as the variable AWS_PROFILE in the provider's env")
	case "gcemig":
		config := map[string]any{"project": "CHANGE-ME"}
		for _, known := range []string{"project", "zone", "region"} {
			if v, ok := a.PluginConfig[known].(string); ok {
				config[known] = v
			}
		}
		p.Provider = im.provider(p.Name, kind, config, p.Group)
	default:
		p.Provider = im.provider(p.Name, "fleeting", map[string]any{
			"binary": "/CHANGE-ME/" + plugin, "profile": "/CHANGE-ME/profile.json", "max": p.Policy.Max,
		}, p.Group)
		im.note(name, "plugin", "%s is run through the fleeting provider: say where the binary is, and make its wire profile with spillwayctl fleeting probe and inspect (docs/fleeting.md). plugin_config was not taken over, since it may hold secrets", plugin)
	}
	for _, key := range slices.Sorted(maps.Keys(a.PluginConfig)) {
		if kind != "" && !slices.Contains([]string{"name", "project", "zone", "region"}, key) {
			im.note(name, "plugin_config."+key, "was not taken over: the provider takes credentials from where every program of that cloud does")
		}
	}
}

// provider adds a group to a provider, which is made if it isn't there.
func (im *importer) provider(name, plugin string, config map[string]any, group string) string {
	p := im.out.Providers[name]
	if p == nil {
		config["groups"] = []string{}
		p = &provider{Plugin: "spillway-provider-" + plugin, Config: config}
		im.out.Providers[name] = p
	}
	if groups, ok := p.Config["groups"].([]string); ok && !slices.Contains(groups, group) {
		p.Config["groups"] = append(groups, group)
	}
	return name
}

// policies takes the first period that always holds; the last match wins there
// (fleeting's taskscaler), so the others are exceptions to it.
func (im *importer) policies(name string, periods []period, p *pool) {
	var base *period
	for i := range periods {
		if periods[i].always() {
			base = &periods[i]
		}
	}
	for i := range periods {
		at := &periods[i]
		if at == base {
			continue
		}
		im.note(name, "policy.periods", "%s in %s: idle_count %d, idle_time %s: a pool has no schedule, so this one was left out; change idle_count by a scheduled change of the file meanwhile",
			strings.Join(at.Periods, ", "), cmp.Or(at.Timezone, "the manager's time zone"), at.IdleCount, time.Duration(at.IdleTime))
	}
	if base == nil {
		return
	}
	if base.IdleCount > 0 {
		p.Policy.IdleCount = (base.IdleCount + p.Capacity - 1) / p.Capacity
		if p.Capacity > 1 {
			im.note(name, "policy.idle_count", "%d jobs there are %d instances of %d here", base.IdleCount, p.Policy.IdleCount, p.Capacity)
		}
	}
	if base.IdleTime > 0 {
		p.Policy.IdleTime = time.Duration(base.IdleTime).String()
	}
	p.Policy.IdleFactor = base.ScaleFactor
	if base.ScaleFactorLimit > 0 {
		im.note(name, "policy.scale_factor_limit", "%d has no equivalent: policy.max bounds the pool", base.ScaleFactorLimit)
	}
	if base.PreemptiveMode != nil {
		im.note(name, "policy.preemptive_mode", "has no equivalent: instances are started for the jobs that wait, and idle_count is on top of that")
	}
}

func (im *importer) limit(name string, r *runner, p *pool) {
	if r.Limit == 0 {
		return
	}
	if most := p.Policy.Max * p.Capacity; r.Limit < most {
		im.note(name, "runners.limit", "%d jobs at once is less than the %d that max_instances allow: policy.max was set accordingly", r.Limit, most)
		p.Policy.Max = max(1, r.Limit/p.Capacity)
	}
}

// noEquivalent says why a setting was left out.
var noEquivalent = map[string]string{
	"instance_ready_command":         "an instance is ready when its agent registers",
	"instance_acquire_timeout":       "a job waits in GitLab, not in a manager",
	"update_interval":                "the plugin and tick decide how often the group is looked at",
	"update_interval_when_expecting": "the plugin and tick decide how often the group is looked at",
	"deletion_retry_interval":        "a removal that did not happen is asked for again after a minute",
	"delete_instances_on_shutdown":   "instances stay when the control plane stops: controlplane release --help",
	"shutdown_deletion_interval":     "instances stay when the control plane stops",
	"shutdown_deletion_retries":      "instances stay when the control plane stops",
	"failure_threshold":              "timeouts.silent and policy.silent_timeout say when a machine is given up",
	"connector_config":               "nothing is reached over SSH: runners connect outwards",
	"vm_isolation":                   "nested VMs are the executor's business; use one job per instance with capacity_per_instance: 1",
	"state_storage":                  "the state is in store.redis",
	"scale_throttle":                 "policy.scale_out.step_limit and the provider's api_rate",
	"log_internal_ip":                "spillwayctl runners and explain name instances",
	"log_external_ip":                "spillwayctl runners and explain name instances",
}

func (im *importer) rest(name string, a *autoscaler) {
	for _, key := range slices.Sorted(maps.Keys(a.rest)) {
		im.note(name, key, "has no equivalent: %s", cmp.Or(noEquivalent[key], "it was left out"))
	}
}
