package docs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

// The folders of the code that the pages are about.
const (
	ec2Code  = "../providers/ec2asg"
	gceCode  = "../providers/gcemig"
	hostCode = "../controlplane"
)

// read is the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks are a page's blocks of one language.
func blocks(page, language string) (found []string) {
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// cloud is a provider whose configuration stands in a page, and a stand-in with the
// page's group.
type cloud struct {
	page, plugin, schema string
	provider             pluginsdk.Provider
	standIn              http.Handler
}

func clouds() []cloud {
	asg := asgstub.New(asgstub.Options{})
	asg.AddGroup(asgstub.GroupConfig{
		Name: "ci-linux", Max: 20, Desired: 1, NewInstancesProtected: true, SuspendedProcesses: []string{"AZRebalance"},
		Tags:  []asgstub.Tag{{Key: "spillway-owner", Value: "ci-production"}},
		Hooks: []asgstub.HookConfig{{Name: "drain", Transition: asgstub.Terminating, HeartbeatTimeout: 300}},
	})
	asg.AddQueue("spillway-notices")
	asg.SetMetric("CI", "JobsWaiting", map[string]string{"fleet": "linux"}, 7, time.Now().Add(-2*time.Minute))
	mig := migstub.New(migstub.Options{Project: "my-project"})
	mig.AddGroup(migstub.GroupConfig{
		Name: "ci-linux", Region: "europe-west1", Size: 1, Labels: map[string]string{"spillway-owner": "ci-production"}, TargetShape: "ANY",
		UpdatePolicy: migstub.UpdatePolicy{Type: "OPPORTUNISTIC", InstanceRedistributionType: "NONE"},
	})
	return []cloud{
		{page: "aws.md", plugin: "spillway-provider-ec2asg", schema: ec2asg.ConfigSchema, provider: ec2asg.New(), standIn: asg},
		{page: "gcp.md", plugin: "spillway-provider-gcemig", schema: gcemig.ConfigSchema, provider: gcemig.New(), standIn: mig},
	}
}

// whole is the page's configuration that is complete.
func whole(t *testing.T, page string) *config.Config {
	t.Helper()
	var found []*config.Config
	for _, block := range blocks(read(t, page), "yaml") {
		var keys map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(block), &keys), page)
		if keys["pools"] == nil {
			continue
		}
		cfg, err := config.Parse(page, []byte(block))
		require.NoError(t, err)
		found = append(found, cfg)
	}
	require.Len(t, found, 1, page)
	return found[0]
}

// Whoever copies a configuration has one that is valid, as the host, the schema and
// the plugin itself see it; with a group as it is described nothing is found, and
// --strict has nothing to say.
func TestConfigurationsWork(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something",
	} {
		t.Setenv(name, value)
	}
	for _, c := range clouds() {
		t.Run(c.page, func(t *testing.T) {
			cfg := whole(t, c.page)
			require.Empty(t, cfg.Warnings())
			for name, p := range cfg.Providers {
				require.Equal(t, c.plugin, p.Plugin, "provider %s", name)
				c.configure(t, []byte(p.Config))
			}
			for i := range cfg.Pools {
				pool := &cfg.Pools[i]
				findings, err := c.provider.Findings(t.Context(), []string{pool.Group})
				require.NoError(t, err)
				for _, f := range findings {
					require.Equal(t, pluginsdk.FindingInfo, f.Severity, "%v", f)
				}
				status, err := c.provider.Status(t.Context(), []string{pool.Group})
				require.NoError(t, err)
				require.NoError(t, status[0].Err)
				require.Equal(t, 1, status[0].Desired)
				require.LessOrEqual(t, status[0].Min, pool.Policy.Min)
				require.GreaterOrEqual(t, status[0].Max, pool.Policy.Max)
				require.Empty(t, status[0].LaunchHalt)
				if pool.Count != nil {
					count, err := c.provider.Count(t.Context(), pool.Count.Metric)
					require.NoError(t, err)
					require.Equal(t, 7.0, count.Jobs)
				}
			}
		})
	}
}

// configure configures the provider as the page says, on the stand-in.
func (c cloud) configure(t *testing.T, raw []byte) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(c.schema))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("plugin:///schema.json", document))
	schema, err := compiler.Compile("plugin:///schema.json")
	require.NoError(t, err)
	var settings map[string]any
	require.NoError(t, json.Unmarshal(raw, &settings))
	require.NoError(t, schema.Validate(settings))

	server := httptest.NewServer(c.standIn)
	t.Cleanup(server.Close)
	settings["endpoint"] = server.URL
	raw, err = json.Marshal(settings)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.provider.Close(t.Context())) })
	require.NoError(t, c.provider.Configure(t.Context(), raw))
}

// policy is a policy of IAM.
type policy struct {
	Version   string
	Statement []struct {
		Sid, Effect, Resource string
		Action                []string
		Condition             map[string]map[string]string
	}
}

var awsRight = regexp.MustCompile(`(?m)^//\t((?:autoscaling|ec2|cloudwatch):[A-Z]\w+)|(sqs:[A-Z]\w+)`)

// The policy allows what the plugin's documentation says that it needs (and that
// says what the code calls: see its TestT15_TheRightsThatAreDocumented), and writes
// only where the group's tag agrees with the setting.
func TestT15_ThePolicyIsWhatThePluginNeeds(t *testing.T) {
	page := read(t, "aws.md")
	var p policy
	for _, block := range blocks(page, "json") {
		if strings.Contains(block, `"Statement"`) {
			require.Empty(t, p.Statement, "one policy")
			require.NoError(t, json.Unmarshal([]byte(block), &p))
		}
	}
	require.Equal(t, "2012-10-17", p.Version)
	needed := map[string]bool{}
	for _, m := range awsRight.FindAllStringSubmatch(read(t, ec2Code+"/doc.go"), -1) {
		needed[m[1]+m[2]] = true
	}
	allowed := map[string]bool{}
	var settings struct {
		Owner string
		Queue string `json:"notices_queue"`
	}
	require.NoError(t, json.Unmarshal(whole(t, "aws.md").Providers["aws"].Config, &settings))
	for _, s := range p.Statement {
		require.Equal(t, "Allow", s.Effect)
		for _, action := range s.Action {
			require.NotContains(t, allowed, action)
			allowed[action] = true
			_, call, _ := strings.Cut(action, ":")
			switch reads := strings.HasPrefix(call, "Describe") || action == "cloudwatch:GetMetricData"; {
			case reads:
				require.Equal(t, "*", s.Resource, action)
			case strings.HasPrefix(action, "sqs:"):
				require.Equal(t, settings.Queue, s.Resource[strings.LastIndex(s.Resource, ":")+1:], action)
			default:
				require.Contains(t, s.Resource, ":autoScalingGroupName/", action)
				require.Equal(t, settings.Owner, s.Condition["StringEquals"]["autoscaling:ResourceTag/spillway-owner"], action)
			}
		}
	}
	require.Equal(t, needed, allowed)
}

var gcpRight = regexp.MustCompile(`(?m)^//\t(compute\.\w+\.\w+)`)

func TestT15_TheRoleIsWhatThePluginNeeds(t *testing.T) {
	var needed []string
	for _, m := range gcpRight.FindAllStringSubmatch(read(t, gceCode+"/doc.go"), -1) {
		needed = append(needed, m[1])
	}
	for _, block := range blocks(read(t, "gcp.md"), "yaml") {
		var role struct {
			IncludedPermissions []string `yaml:"includedPermissions"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(block), &role))
		if role.IncludedPermissions != nil {
			require.ElementsMatch(t, needed, role.IncludedPermissions)
			return
		}
	}
	t.Fatal("gcp.md has no role")
}

var eventOfAWS = regexp.MustCompile(`"(EC2 [^"]+)"`)

// The rule lets through the events that the plugin understands, and no others.
func TestTheRuleIsWhatThePluginReads(t *testing.T) {
	var understood []string
	for _, m := range eventOfAWS.FindAllStringSubmatch(read(t, ec2Code+"/notices.go"), -1) {
		understood = append(understood, m[1])
	}
	require.NotEmpty(t, understood)
	for _, block := range blocks(read(t, "aws.md"), "json") {
		var rule struct {
			Source []string
			Types  []string `json:"detail-type"`
		}
		require.NoError(t, json.Unmarshal([]byte(block), &rule))
		if rule.Types != nil {
			require.Equal(t, []string{"aws.ec2", "aws.autoscaling"}, rule.Source)
			require.ElementsMatch(t, understood, rule.Types)
			return
		}
	}
	t.Fatal("aws.md has no rule")
}

var (
	callOfAWS = regexp.MustCompile(`\.(?:scaling|ec2|queue|cloudwatch)\.([A-Z]\w+), `)
	callOfGCE = regexp.MustCompile(`\.(?:zone|region)(?:Groups|Operations|Autoscalers)\.([A-Z]\w+)\(|\.vms\.([A-Z]\w+)\(`)
	reading   = regexp.MustCompile(`^(Describe|Get|Receive|List)`)
)

// "All that is written" is all that is written.
func TestEveryWriteIsNamed(t *testing.T) {
	for page, c := range map[string]struct {
		code string
		call *regexp.Regexp
	}{"aws.md": {ec2Code, callOfAWS}, "gcp.md": {gceCode, callOfGCE}} {
		written := map[string]bool{}
		for _, source := range sources(t, c.code) {
			for _, m := range c.call.FindAllStringSubmatch(read(t, source), -1) {
				if call := strings.Join(m[1:], ""); !reading.MatchString(call) {
					written[strings.ToLower(call)] = true
				}
			}
		}
		require.GreaterOrEqual(t, len(written), 3, page)
		named := map[string]bool{}
		for _, row := range table(read(t, page), "call") {
			for call := range strings.SplitSeq(row[0], ", ") {
				named[strings.ToLower(call)] = true
			}
		}
		require.Equal(t, written, named, page)
	}
}

// sources are the files of a folder that are no tests.
func sources(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	require.NoError(t, err)
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
}

// table is the rows of the tables whose header begins with a word.
func table(page, header string) (rows [][]string) {
	in := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case cells[0] == header:
			in = true
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}
