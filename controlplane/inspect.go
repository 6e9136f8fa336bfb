package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// Finding is something that a person should change before pools rely on it. It is about
// a provider or one of its groups, or about a setting.
type Finding struct {
	Provider string             `json:"provider,omitempty"` // empty: about a setting
	Pool     string             `json:"pool,omitempty"`     // empty: about the provider, or a setting of no pool
	Group    string             `json:"group,omitempty"`    // of the pool
	Setting  string             `json:"setting,omitempty"`  // of the pool, or of the whole file
	Code     string             `json:"code"`
	Severity pluginsdk.Severity `json:"severity"`
	Message  string             `json:"message"`
	Fix      string             `json:"fix"`
}

func (f Finding) String() string {
	where := "provider " + f.Provider
	switch {
	case f.Group != "":
		where = "pool " + f.Pool + ", group " + f.Group
	case f.Pool != "":
		where = "pool " + f.Pool + ", " + f.Setting
	case f.Provider == "":
		where = f.Setting
	}
	return fmt.Sprintf("%s: %s: %s (%s): %s", f.Severity, where, f.Message, f.Code, f.Fix)
}

// Inspect starts the plugins of a configuration and looks for what is wrong with
// them: each plugin's configuration is held to its schema, and if online the clouds
// are asked too, and so is whatever else the configuration names. Nothing is written
// anywhere, and no process is left.
func Inspect(ctx context.Context, cfg *config.Config, online bool) ([]Finding, error) {
	host, err := providers.NewHost(providers.Options{Logger: slog.New(slog.DiscardHandler), Redact: config.Redact})
	if err != nil {
		return nil, err
	}
	var all []Finding
	var mu sync.Mutex
	var wg sync.WaitGroup
	keep := func(some []Finding) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	}
	for name, p := range cfg.Providers {
		i := inspection{host: host, cfg: cfg, provider: name}
		wg.Go(func() { keep(i.provide(ctx, p, online)) })
	}
	around := surroundings{cfg: cfg}
	found := around.local(online)
	if online {
		found = around.look(ctx)
	}
	keep(found)
	wg.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	err = errors.Join(ctx.Err(), host.Close(closing))
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Pool, b.Pool),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Setting, b.Setting), cmp.Compare(a.Message, b.Message))
	})
	return all, err
}

// inspection looks at one provider.
type inspection struct {
	host     *providers.Host
	cfg      *config.Config
	provider string
}

func (i *inspection) about(code string, severity pluginsdk.Severity, fix, message string, args ...any) Finding {
	return Finding{Provider: i.provider, Code: code, Severity: severity, Message: fmt.Sprintf(message, args...), Fix: fix}
}

// provide looks at the plugin first: without it nothing else can be known.
func (i *inspection) provide(ctx context.Context, p config.Provider, online bool) []Finding {
	spec, err := specOf(i.cfg, i.provider, p)
	if err == nil && !online {
		_, err = i.host.Describe(ctx, spec)
	}
	if err == nil && online {
		var plugin *providers.Plugin
		if plugin, err = i.host.Open(ctx, spec); err == nil {
			return i.groups(ctx, plugin)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist) && !online:
		return []Finding{i.about("plugin_not_found", pluginsdk.FindingWarning, "install it, or check the configuration where it is installed",
			"the plugin is not on this machine, so its configuration was not checked: %v", err)}
	default:
		return []Finding{i.about("plugin_unusable", pluginsdk.FindingError, "see the message", "%v", err)}
	}
}

// groups asks the cloud about every group of the provider's pools.
func (i *inspection) groups(ctx context.Context, plugin *providers.Plugin) []Finding {
	pools := map[string]*config.Pool{}
	var names []string
	for n := range i.cfg.Pools {
		if p := &i.cfg.Pools[n]; p.Provider == i.provider {
			pools[p.Group] = p
			names = append(names, p.Group)
		}
	}
	var all []Finding
	seen := map[string]bool{}
	add := func(f Finding, group string) {
		if p := pools[group]; p != nil && !seen[group+" "+f.Code] {
			seen[group+" "+f.Code] = true
			f.Pool, f.Group = p.Name, group
			all = append(all, f)
		}
	}
	found, err := plugin.Findings(ctx, names)
	for _, f := range found {
		if f.Severity == pluginsdk.FindingInfo {
			continue // nothing to mend
		}
		add(Finding{Provider: i.provider, Code: f.Code, Severity: f.Severity, Message: f.Message, Fix: f.Fix}, f.Group)
	}
	if err != nil && !errors.Is(err, pluginsdk.ErrUnsupported) {
		all = append(all, i.about("findings_failed", pluginsdk.FindingError, "see the message", "the plugin could not look at its groups: %v", err))
	}
	for _, name := range names {
		for _, f := range append(i.bounds(ctx, plugin, pools[name]), i.hook(plugin, pools[name], found)...) {
			add(f, name)
		}
	}
	return all
}

// bounds compares the pool's numbers with the group's own.
func (i *inspection) bounds(ctx context.Context, plugin *providers.Plugin, p *config.Pool) []Finding {
	s, err := plugin.Group(p.Name, p.Group).Status(ctx)
	if err == nil {
		err = s.Err
	}
	const warning = pluginsdk.FindingWarning
	var all []Finding
	switch {
	case errors.Is(err, pluginsdk.ErrNotFound):
		return []Finding{i.about("group_not_found", pluginsdk.FindingError, "create it, or correct the pool's group", "the group does not exist")}
	case err != nil:
		return []Finding{i.about("group_unreadable", pluginsdk.FindingError, "see the message", "the group can't be read: %v", err)}
	case s.Max == 0:
		return []Finding{i.about("max_zero", pluginsdk.FindingError, "raise the group's maximum", "the group's maximum is 0: nothing will ever start")}
	case s.Min > p.Policy.Max:
		all = append(all, i.about("bounds_conflict", warning, "lower the group's minimum, or raise policy.max",
			"the group's minimum %d is above policy.max %d: the group's minimum wins", s.Min, p.Policy.Max))
	case s.Max < p.Policy.Max:
		all = append(all, i.about("max_below_ours", warning, "raise the group's maximum, or lower policy.max",
			"the group's maximum %d is below policy.max %d: the lower one holds", s.Max, p.Policy.Max))
	}
	if s.Min > p.Policy.Min {
		all = append(all, i.about("min_above_ours", warning, "set the group's minimum to 0 and policy.min to what is wanted",
			"the group's minimum %d is above policy.min %d: so many instances always run", s.Min, p.Policy.Min))
	}
	return all
}
