package gcemig

import (
	"context"
	"fmt"
	"sync"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider reads managed instance groups.
type Provider struct {
	mu struct {
		sync.Mutex
		session *session // nil until Configure
	}
}

// session is what Configure makes; it never changes.
type session struct {
	configured map[string]bool // groups
	scope      scope
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider { return &Provider{} }

// Describe implements pluginsdk.Provider. It has no capability: they are all about
// writes and notices.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "gcemig", Version: Version, ConfigSchema: ConfigSchema}, nil
}

// Configure implements pluginsdk.Provider.
func (p *Provider) Configure(ctx context.Context, raw []byte) error {
	c, err := parseConfig(raw)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.session != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "configured already")
	}
	scope, err := newScope(ctx, c)
	if err != nil {
		return err
	}
	p.mu.session = &session{configured: c.groups, scope: scope}
	return nil
}

// Status implements pluginsdk.Provider. All groups come from one list.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if len(names) > pluginsdk.MaxGroupsPerCall {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%d groups in one call, at most %d are allowed", len(names), pluginsdk.MaxGroupsPerCall)
	}
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	statuses := make([]pluginsdk.GroupStatus, len(names))
	if len(names) == 0 {
		return statuses, nil
	}
	all, err := s.scope.groups(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*computepb.InstanceGroupManager, len(all))
	for _, group := range all {
		if s.configured[group.GetName()] {
			found[group.GetName()] = group
		}
	}
	for i, name := range names {
		statuses[i] = status(name, found[name], s.scope.maxSize())
	}
	return statuses, nil
}

// ListInstances implements pluginsdk.Provider.
func (p *Provider) ListInstances(ctx context.Context, name string) ([]pluginsdk.Instance, error) {
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	if !s.configured[name] {
		return nil, notFound(name)
	}
	managed, err := s.scope.instances(ctx, name)
	if err != nil {
		return nil, err
	}
	list := make([]pluginsdk.Instance, len(managed))
	for i, m := range managed {
		list[i] = instance(m)
	}
	return list, nil
}

func (p *Provider) session() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.session == nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "not configured")
	}
	return p.mu.session, nil
}

// readOnly is the answer to every write.
func readOnly() error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "this version of gcemig only reads: run the pool in shadow mode, or use a version that writes")
}

// SetDesired implements pluginsdk.Provider: unsupported.
func (p *Provider) SetDesired(context.Context, pluginsdk.SetDesired) (int, error) {
	return 0, readOnly()
}

// Remove implements pluginsdk.Provider: unsupported.
func (p *Provider) Remove(context.Context, string, []string, string) ([]pluginsdk.RemoveResult, error) {
	return nil, readOnly()
}

// Withdraw implements pluginsdk.Provider: unsupported.
func (p *Provider) Withdraw(context.Context, string, int, string) (pluginsdk.WithdrawResult, error) {
	return pluginsdk.WithdrawResult{}, readOnly()
}

// Protect implements pluginsdk.Provider: managed instance groups have no such
// protection.
func (p *Provider) Protect(context.Context, string, []string, bool) error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "managed instance groups have no protection from scale-in")
}

// Watch implements pluginsdk.Provider: unsupported.
func (p *Provider) Watch(context.Context, []string, func(pluginsdk.Interruption)) error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "this version of gcemig does not listen for interruptions")
}

// Close implements pluginsdk.Provider.
func (p *Provider) Close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.session == nil {
		return nil
	}
	if err := p.mu.session.scope.Close(); err != nil {
		return fmt.Errorf("close the client: %w", err)
	}
	return nil
}
