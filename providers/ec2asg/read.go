package ec2asg

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// sideTimeout bounds what a look does beside reading the groups: asking EC2, asking
// for failed activities, heartbeats. When that hangs, the groups' numbers do not.
const sideTimeout = 5 * time.Second

// Status implements pluginsdk.Provider. It always asks: one call for a hundred
// groups. A call that fails is the failure of its groups.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(names); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	answers := s.reader.read(ctx, s.known(names))
	if err := nothingTold(answers); err != nil {
		return nil, err
	}
	found := make([]*types.AutoScalingGroup, 0, len(answers))
	for _, name := range names {
		if g := answers[name].group; g != nil {
			found = append(found, g)
		}
	}
	s.attend(ctx, found)
	statuses := make([]pluginsdk.GroupStatus, len(names))
	for i, name := range names {
		if a := answers[name]; a.err != nil {
			statuses[i] = pluginsdk.GroupStatus{Group: name, Err: a.err}
		} else {
			statuses[i] = s.status(name, a.group)
		}
	}
	return statuses, nil
}

// known keeps the names that were configured, each once.
func (s *session) known(names []string) []string {
	known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.groups[name] })
	slices.Sort(known)
	return slices.Compact(known)
}

// nothingTold is an error if no group at all could be read.
func nothingTold(answers map[string]answer) (err error) {
	for _, a := range answers {
		if a.err == nil {
			return nil
		}
		err = a.err
	}
	return err
}

// ListInstances implements pluginsdk.Provider. After a Status, which is when the
// control plane asks, it costs no call.
func (p *Provider) ListInstances(ctx context.Context, name string) ([]pluginsdk.Instance, error) {
	s, err := p.of(name)
	if err != nil {
		return nil, err
	}
	g, err := s.group(ctx, name)
	if err != nil {
		return nil, err
	}
	side, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	s.machines.learn(side, idsOf(g))
	s.homes.saw([]*types.AutoScalingGroup{g})
	s.hooks.keepAlive(side, []*types.AutoScalingGroup{g})
	return s.instances(g), nil
}

// group returns a group that exists, no older than a second.
func (s *session) group(ctx context.Context, name string) (*types.AutoScalingGroup, error) {
	g, err := s.reader.get(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, notFound(name)
	}
	return g, nil
}

// attend does what is to be done at every look at the groups. Nothing of it fails
// the look.
func (s *session) attend(ctx context.Context, groups []*types.AutoScalingGroup) {
	side, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	s.hooks.keepAlive(side, groups) // first: it is what can't wait
	s.homes.saw(groups)
	s.activities.look(side, groups)
	var ids []string
	for _, g := range groups {
		ids = append(ids, idsOf(g)...)
	}
	s.machines.learn(side, ids)
}

// idsOf are the instances that are listed for a group.
func idsOf(g *types.AutoScalingGroup) []string {
	ids := make([]string, 0, len(g.Instances))
	for i := range g.Instances {
		if lifecycleOf(&g.Instances[i]).part != gone {
			ids = append(ids, aws.ToString(g.Instances[i].InstanceId))
		}
	}
	return ids
}
