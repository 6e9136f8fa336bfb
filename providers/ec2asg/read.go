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

// gatherTime is how long looks wait for others at most.
const gatherTime = time.Second

// Status implements pluginsdk.Provider: one call for a hundred groups, and none for
// those that were read a moment ago, along with others. After a write of ours,
// whatever came of it, it always asks. A call that fails is the failure of its groups.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(names); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	answers := s.looked(ctx, s.known(names))
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
	a := s.looked(ctx, []string{name})[name]
	g, err := existent(name, a)
	if err != nil {
		return nil, err
	}
	side, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	s.hooks.keepAlive(side, []*types.AutoScalingGroup{g}) // first: it is what can't wait
	s.homes.saw([]*types.AutoScalingGroup{g})
	if !s.yields() {
		s.machines.learn(side, idsOf(g))
	}
	return s.instances(g), nil
}

// looked returns groups as a look sees them. While writes wait for the call budget
// the looks leave together, once in gatherTime: who was written to a moment ago is
// looked at next, and a call for each would halve the pace of the writes.
func (s *session) looked(ctx context.Context, names []string) map[string]answer {
	age := maxReadAge
	if s.yields() {
		age = crowdedReadAge
		if !s.reader.has(names, age) {
			gather(ctx)
		}
	}
	return s.reader.get(ctx, names, age, s.reader.longestUnseen)
}

// gather waits for the next moment at which looks leave.
func gather(ctx context.Context) {
	timer := time.NewTimer(gatherTime - time.Duration(time.Now().UnixNano())%gatherTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// group returns a group that exists, no older than a second: for a write. Read along
// are those only that will be written to next, for a longer answer takes longer.
func (s *session) group(ctx context.Context, name string) (*types.AutoScalingGroup, error) {
	return existent(name, s.reader.get(ctx, []string{name}, maxReadAge, s.line.names)[name])
}

// groupBefore is group, as a part of a write.
func (s *session) groupBefore(ctx context.Context, name string) (g *types.AutoScalingGroup, err error) {
	err = s.before(ctx, func(early context.Context) error {
		g, err = s.group(early, name)
		return err
	})
	return g, err
}

func existent(name string, a answer) (*types.AutoScalingGroup, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.group == nil:
		return nil, notFound(name)
	}
	return a.group, nil
}

// attend does what is to be done at every look at the groups. Nothing of it fails
// the look.
func (s *session) attend(ctx context.Context, groups []*types.AutoScalingGroup) {
	side, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	s.hooks.keepAlive(side, groups) // first: it is what can't wait
	s.homes.saw(groups)
	if s.yields() {
		return
	}
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
