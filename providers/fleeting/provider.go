package fleeting

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider drives a fleeting plugin. Withdraw is unsupported: a fleeting plugin can't
// be told that fewer are wanted than it has accepted, and a number that is lowered
// here while the instances still come would launch others in their place.
type Provider struct {
	pluginsdk.Unsupported
	configured pluginsdk.Configured[group]
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider { return &Provider{} }

// Describe implements pluginsdk.Provider.
func (*Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{
		Name: "fleeting", Version: Version, ConfigSchema: ConfigSchema,
		Capabilities: []pluginsdk.Capability{pluginsdk.CanFind},
	}, nil
}

// Configure implements pluginsdk.Provider. It starts the fleeting plugin, so that a
// mistake shows now and not with the first job.
func (p *Provider) Configure(ctx context.Context, raw []byte) error {
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	profile, err := wire.Load(c.Profile)
	if err == nil {
		err = profile.Usable()
	}
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "profile: %w", err)
	}
	image, err := program.Open(c.Binary, c.SHA256, "")
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "binary: %w", err)
	}
	g := newGroup(c, profile, image)
	if err := g.launch(ctx); err != nil {
		_ = image.Close() // a copy in memory
		return err
	}
	if err := p.configured.Set(g); err != nil {
		_ = g.close(ctx) // configured already: what matters is that no process is left
		return err
	}
	return nil
}

// group finds the group.
func (p *Provider) group(name string) (*group, error) {
	g, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	if name != g.config.Groups[0] {
		return nil, pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no group %q", name)
	}
	return g, nil
}

// Status implements pluginsdk.Provider.
func (p *Provider) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return nil, err
	}
	statuses := make([]pluginsdk.GroupStatus, len(groups))
	for i, name := range groups {
		statuses[i] = pluginsdk.GroupStatus{Group: name}
		g, err := p.group(name)
		if err == nil {
			statuses[i], err = g.status(ctx)
		}
		statuses[i].Err = err
	}
	return statuses, nil
}

func (g *group) status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	s := pluginsdk.GroupStatus{Group: g.config.Groups[0]}
	ctx, leave, err := g.enter(ctx)
	if err != nil {
		return s, err
	}
	defer leave()
	if err := g.refresh(ctx, g.maxAge()); err != nil {
		return s, err
	}
	s.Desired, s.Max = g.members.desired(), g.limit()
	s.InTransition = g.members.changing()
	s.Failures = slices.Clone(g.members.failures)
	return s, nil
}

// limit is what the group may have at most.
func (g *group) limit() int {
	if g.pluginMax > 0 {
		return min(g.config.Max, g.pluginMax)
	}
	return g.config.Max
}

// ListInstances implements pluginsdk.Provider. What the plugin says timed out is
// among them, as deleting and unhealthy: it may still exist.
func (p *Provider) ListInstances(ctx context.Context, name string) ([]pluginsdk.Instance, error) {
	g, err := p.group(name)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := g.refresh(ctx, g.maxAge()); err != nil {
		return nil, err
	}
	return g.members.instances(), nil
}

// SetDesired implements pluginsdk.Provider. It only raises: Remove lowers.
func (p *Provider) SetDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	g, err := p.group(r.Group)
	if err != nil {
		return 0, err
	}
	ctx, leave, err := g.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	return pluginsdk.Once(&g.tokens, r.Group, r.Token, func() (int, error) { return g.setDesired(ctx, r) })
}

func (g *group) setDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	if r.Target < 0 {
		return 0, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is below 0", r.Target)
	}
	if err := g.refresh(ctx, maxWriteAge); err != nil {
		return 0, err
	}
	switch current := g.members.desired(); {
	case r.Target == current:
		return current, nil
	case r.Expected != current:
		return current, pluginsdk.Conflict(current)
	case r.Target < current:
		return current, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired is %d and can't be set to %d: only Remove lowers it", current, r.Target)
	case r.Target > g.limit():
		return current, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is above the group's max, %d", r.Target, g.limit())
	default:
		return g.increase(ctx, r.Target-current)
	}
}

// increase asks for n more.
func (g *group) increase(ctx context.Context, n int) (int, error) {
	sent := false
	took, err := call(ctx, g, wire.Increase, g.config.Deadlines.Increase, func(ctx context.Context, c *wire.Client) (int, error) {
		sent = true
		return c.Increase(ctx, n)
	})
	now := time.Now()
	switch {
	case err == nil && took == 0:
		err = pluginsdk.Errorf(pluginsdk.KindCapacity, "the plugin accepted none of %d instances", n)
	case err == nil || refusal(err):
		g.members.accepted(now, took)
		if err == nil && took < n {
			g.members.refused(now, n, took)
		}
	case sent:
		g.members.unsure(now, n)
	}
	g.stale = g.stale || err != nil // what it did all the same shows in the next list
	return g.members.desired(), err
}

// Remove implements pluginsdk.Provider.
func (p *Provider) Remove(ctx context.Context, name string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	g, err := p.group(name)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return pluginsdk.Once(&g.tokens, name, token, func() ([]pluginsdk.RemoveResult, error) { return g.remove(ctx, ids) })
}

func (g *group) remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	if err := g.refresh(ctx, maxWriteAge); err != nil {
		return nil, err
	}
	there := g.members.removable(ids)
	var took []string
	var err error
	if len(there) > 0 {
		took, err = call(ctx, g, wire.Decrease, g.config.Deadlines.Decrease, func(ctx context.Context, c *wire.Client) ([]string, error) {
			return c.Decrease(ctx, there)
		})
		took = slices.DeleteFunc(took, func(id string) bool { return !slices.Contains(there, id) })
		g.members.removed(time.Now(), took)
		g.stale = g.stale || err != nil
	}
	if err != nil && len(took) == 0 {
		return nil, err
	}
	if err == nil {
		err = pluginsdk.Errorf(pluginsdk.KindTransient, "Decrease: the plugin did not take it")
	}
	return results(ids, there, took, err), nil
}

// results are one per id: of those that were there, the first mention counts.
func results(ids, there, took []string, why error) []pluginsdk.RemoveResult {
	list := make([]pluginsdk.RemoveResult, len(ids))
	mentioned := map[string]bool{}
	for i, id := range ids {
		r := pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.AlreadyGone}
		switch {
		case mentioned[id] || !slices.Contains(there, id):
		case slices.Contains(took, id):
			r.Outcome = pluginsdk.Removed
		default:
			r.Outcome, r.Err = pluginsdk.NotRemoved, why
		}
		mentioned[id] = true
		list[i] = r
	}
	return list
}

// Close implements pluginsdk.Provider. The fleeting plugin ends; instances stay.
func (p *Provider) Close(ctx context.Context) error {
	if g, err := p.configured.Get(); err == nil { // else nothing was begun
		return g.close(ctx)
	}
	return nil
}
