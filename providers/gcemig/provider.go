package gcemig

import (
	"context"
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider reads managed instance groups.
type Provider struct {
	pluginsdk.ReadOnly
	configured pluginsdk.Configured[session]
}

// session is what Configure makes; it never changes.
type session struct {
	groups map[string]bool
	scope  scope
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
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	scope, err := newScope(ctx, c)
	if err != nil {
		return err
	}
	if err := p.configured.Set(&session{groups: c.Groups.Set(), scope: scope}); err != nil {
		_ = scope.Close() // it was never used
		return err
	}
	return nil
}

// Status implements pluginsdk.Provider. All groups come from one list.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(names); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
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
		if s.groups[group.GetName()] {
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
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	if !s.groups[name] {
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

// Close implements pluginsdk.Provider.
func (p *Provider) Close(context.Context) error {
	s, err := p.configured.Get()
	if err != nil {
		return nil //nolint:nilerr // there is nothing to close before Configure
	}
	if err := s.scope.Close(); err != nil {
		return fmt.Errorf("close the client: %w", err)
	}
	return nil
}
