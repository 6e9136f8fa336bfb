package local

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// closeGrace is how long instances get to end at Close. The plugin's host waits
// 3 s for the whole plugin.
const closeGrace = 1500 * time.Millisecond

// Provider keeps groups of processes. They never scale in by themselves, and
// nobody tells before one ends.
type Provider struct {
	pluginsdk.Unsupported

	mu struct {
		sync.Mutex
		config  *config // nil until Configure
		tempDir string  // to be deleted at the end; empty when there is none
		groups  map[string]*group
		tokens  pluginsdk.Tokens
		closed  bool
	}
	instances sync.WaitGroup
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider { return &Provider{} }

// Describe implements pluginsdk.Provider.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{
		Name:         "local",
		Version:      Version,
		Capabilities: []pluginsdk.Capability{pluginsdk.CanWithdraw, pluginsdk.CanCompareAndSet},
		ConfigSchema: ConfigSchema,
	}, nil
}

// Configure implements pluginsdk.Provider. Groups begin at their min.
func (p *Provider) Configure(_ context.Context, raw []byte) error {
	c, err := parseConfig(raw)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.config != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "configured already")
	}
	if err := p.makeWorkDir(&c); err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "local provider: work_dir: %w", err)
	}
	p.mu.config = &c
	p.mu.groups = make(map[string]*group, len(c.Groups))
	for _, settings := range c.Groups {
		g := &group{groupConfig: settings, desired: settings.Min, instances: map[string]*instance{}}
		p.mu.groups[settings.Name] = g
		p.converge(g, 0)
	}
	return nil
}

func (p *Provider) makeWorkDir(c *config) (err error) {
	if c.WorkDir != "" {
		return os.MkdirAll(c.WorkDir, 0o700)
	}
	c.WorkDir, err = os.MkdirTemp("", "spillway-local-")
	p.mu.tempDir = c.WorkDir
	return err
}

// Status implements pluginsdk.Provider.
func (p *Provider) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	statuses := make([]pluginsdk.GroupStatus, len(groups))
	for i, name := range groups {
		g, err := p.group(name)
		if err != nil {
			statuses[i] = pluginsdk.GroupStatus{Group: name, Err: err}
			continue
		}
		statuses[i] = g.status()
	}
	return statuses, nil
}

// ListInstances implements pluginsdk.Provider. Instances that wait for their boot
// delay are among them, as creating.
func (p *Provider) ListInstances(_ context.Context, name string) ([]pluginsdk.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.group(name)
	if err != nil {
		return nil, err
	}
	return g.list(), nil
}

// SetDesired implements pluginsdk.Provider. A lower number ends instances that
// were not started first, and then the newest.
func (p *Provider) SetDesired(_ context.Context, r pluginsdk.SetDesired) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.group(r.Group)
	if err != nil {
		return 0, err
	}
	return pluginsdk.Once(&p.mu.tokens, r.Group, r.Token, func() (int, error) {
		switch {
		case r.Target == g.desired:
			return g.desired, nil
		case r.Expected != g.desired:
			return g.desired, pluginsdk.Conflict(g.desired)
		case r.Target < g.Min || r.Target > g.Max:
			return g.desired, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is outside of the group's bounds, %d to %d", r.Target, g.Min, g.Max)
		}
		g.desired = r.Target
		p.converge(g, 0)
		return g.desired, nil
	})
}

// Remove implements pluginsdk.Provider. It returns once the instances were told to
// end; they are deleting until their processes are gone.
func (p *Provider) Remove(_ context.Context, name string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.group(name)
	if err != nil {
		return nil, err
	}
	return pluginsdk.Once(&p.mu.tokens, name, token, func() ([]pluginsdk.RemoveResult, error) {
		results := make([]pluginsdk.RemoveResult, len(ids))
		for i, id := range ids {
			results[i] = p.removeOne(g, id)
		}
		return results, nil
	})
}

func (p *Provider) removeOne(g *group, id string) pluginsdk.RemoveResult {
	in := g.instances[id]
	switch {
	case in == nil || in.state == pluginsdk.StateDeleting:
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.AlreadyGone}
	case g.desired <= g.Min:
		err := pluginsdk.Errorf(pluginsdk.KindInvalid, "desired is %d, the group's min", g.desired)
		return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.NotRemoved, Err: err}
	}
	g.desired--
	g.end(in, p.mu.config.StopGrace)
	return pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed}
}

// Withdraw implements pluginsdk.Provider: instances that wait for their boot delay
// are never started.
func (p *Provider) Withdraw(_ context.Context, name string, expected int, token string) (pluginsdk.WithdrawResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.group(name)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	return pluginsdk.Once(&p.mu.tokens, name, token, func() (pluginsdk.WithdrawResult, error) {
		if expected != g.desired {
			return pluginsdk.WithdrawResult{Desired: g.desired}, pluginsdk.Conflict(g.desired)
		}
		waiting := g.newestFirst(pluginsdk.StateCreating)
		waiting = waiting[:min(len(waiting), g.desired-g.Min)]
		for _, in := range waiting {
			g.end(in, 0)
		}
		g.desired -= len(waiting)
		return pluginsdk.WithdrawResult{Desired: g.desired, Withdrawn: len(waiting)}, nil
	})
}

// Close ends all instances: they can't outlive the plugin. It returns when they
// are gone, at the latest when ctx ends; the kernel ends what is left then.
func (p *Provider) Close(ctx context.Context) error {
	tempDir := p.endAll()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.instances.Wait()
	}()
	select {
	case <-gone:
	case <-ctx.Done():
		return pluginsdk.Errorf(pluginsdk.KindTransient, "some instances have not ended yet: %w", context.Cause(ctx))
	}
	if tempDir == "" {
		return nil
	}
	if err := os.RemoveAll(tempDir); err != nil {
		return fmt.Errorf("delete the work directory: %w", err)
	}
	return nil
}

// endAll orders all instances to end, once.
func (p *Provider) endAll() (tempDir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return p.mu.tempDir
	}
	p.mu.closed = true
	for _, g := range p.mu.groups {
		for _, in := range g.instances {
			in.hurry(closeGrace)
		}
	}
	return p.mu.tempDir
}

// group finds a group. The lock is held.
func (p *Provider) group(name string) (*group, error) {
	switch g := p.mu.groups[name]; {
	case p.mu.closed:
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "closed")
	case p.mu.config == nil:
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "not configured")
	case g == nil:
		return nil, pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no group %q", name)
	default:
		return g, nil
	}
}
