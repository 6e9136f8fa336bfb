package fake

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider serves several groups on the wall clock.
type Provider struct {
	pluginsdk.Unsupported

	// Exit ends the process, for the fault "exit"; nil answers the call with
	// ErrTransient instead, as a host sees a plugin that died.
	Exit func()

	mu struct {
		sync.Mutex
		clouds map[string]*Cloud // nil until Configure
		faults []*fault
		tokens pluginsdk.Tokens
	}
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider { return &Provider{} }

// Describe implements pluginsdk.Provider.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{
		Name:    "fake",
		Version: Version,
		Capabilities: []pluginsdk.Capability{
			pluginsdk.CanWithdraw, pluginsdk.CanProtect, pluginsdk.CanCompareAndSet,
			pluginsdk.CanCompleteHook, pluginsdk.CanReportHealth,
		},
		ConfigSchema: ConfigSchema,
	}, nil
}

// Configure implements pluginsdk.Provider. The groups exist from now on.
func (p *Provider) Configure(_ context.Context, config []byte) error {
	var s settings
	if err := pluginsdk.DecodeConfig(config, &s); err != nil {
		return err
	}
	start := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.clouds = make(map[string]*Cloud, len(s.Groups))
	for name, g := range s.Groups {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // a hash never fails
		p.mu.clouds[name] = NewCloud(g.config(), start, s.Seed^h.Sum64())
	}
	p.mu.faults = nil
	for _, f := range s.Faults {
		p.mu.faults = append(p.mu.faults, f.fault())
	}
	return nil
}

// Status implements pluginsdk.Provider.
func (p *Provider) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	if err := p.misbehave(ctx, opStatus); err != nil {
		return nil, err
	}
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	out := make([]pluginsdk.GroupStatus, len(groups))
	for i, name := range groups {
		cloud, err := p.cloud(name)
		if err != nil {
			out[i] = pluginsdk.GroupStatus{Group: name, Err: err}
			continue
		}
		out[i] = cloud.Status(now)
		out[i].Group = name
	}
	return out, nil
}

// ListInstances implements pluginsdk.Provider.
func (p *Provider) ListInstances(ctx context.Context, group string) ([]pluginsdk.Instance, error) {
	if err := p.misbehave(ctx, opList); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud, err := p.cloud(group)
	if err != nil {
		return nil, err
	}
	return cloud.List(time.Now()), nil
}

// SetDesired implements pluginsdk.Provider.
func (p *Provider) SetDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	if err := p.misbehave(ctx, opSetDesired); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud, err := p.cloud(r.Group)
	if err != nil {
		return 0, err
	}
	return pluginsdk.Once(&p.mu.tokens, r.Group, r.Token, func() (int, error) {
		return cloud.SetDesired(time.Now(), r.Target, r.Expected)
	})
}

// Remove implements pluginsdk.Provider.
func (p *Provider) Remove(ctx context.Context, group string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
	if err := p.misbehave(ctx, opRemove); err != nil {
		return nil, err
	}
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud, err := p.cloud(group)
	if err != nil {
		return nil, err
	}
	return pluginsdk.Once(&p.mu.tokens, group, token, func() ([]pluginsdk.RemoveResult, error) {
		return cloud.Remove(time.Now(), ids)
	})
}

// Withdraw implements pluginsdk.Provider.
func (p *Provider) Withdraw(ctx context.Context, group string, expected int, token string) (pluginsdk.WithdrawResult, error) {
	if err := p.misbehave(ctx, opWithdraw); err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud, err := p.cloud(group)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	return pluginsdk.Once(&p.mu.tokens, group, token, func() (pluginsdk.WithdrawResult, error) {
		return cloud.Withdraw(time.Now(), expected)
	})
}

// Protect implements pluginsdk.Provider.
func (p *Provider) Protect(ctx context.Context, group string, ids []string, protected bool) error {
	return p.onInstances(ctx, opProtect, group, ids, func(c *Cloud, now time.Time, ids []string) error {
		return c.Protect(now, ids, protected)
	})
}

// CompleteHook implements pluginsdk.Provider.
func (p *Provider) CompleteHook(ctx context.Context, group string, ids []string) error {
	return p.onInstances(ctx, opCompleteHook, group, ids, (*Cloud).CompleteHook)
}

// ReportUnhealthy implements pluginsdk.Provider.
func (p *Provider) ReportUnhealthy(ctx context.Context, group string, ids []string) error {
	return p.onInstances(ctx, opReportUnhealthy, group, ids, (*Cloud).ReportUnhealthy)
}

func (p *Provider) onInstances(ctx context.Context, op, group string, ids []string, do func(*Cloud, time.Time, []string) error) error {
	if err := p.misbehave(ctx, op); err != nil {
		return err
	}
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud, err := p.cloud(group)
	if err != nil {
		return err
	}
	return do(cloud, time.Now(), ids)
}

// Close implements pluginsdk.Provider.
func (p *Provider) Close(context.Context) error { return nil }

// cloud is the group called name. The lock is held.
func (p *Provider) cloud(name string) (*Cloud, error) {
	if p.mu.clouds == nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "not configured yet")
	}
	c := p.mu.clouds[name]
	if c == nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindNotFound, "no group %q", name)
	}
	return c, nil
}
