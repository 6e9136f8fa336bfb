package gcemig

import (
	"context"
	"math"
	"slices"
	"strconv"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// SetDesired implements pluginsdk.Provider. It only raises: a group that is made
// smaller chooses whom it ends.
func (p *Provider) SetDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	if r.Target < 0 || r.Target > math.MaxInt32 {
		return 0, pluginsdk.Errorf(pluginsdk.KindInvalid, "a target of %d instances is none", r.Target)
	}
	s, g, err := p.find(r.Group)
	if err != nil {
		return 0, err
	}
	igm, err := g.read(ctx)
	if err != nil {
		return 0, err
	}
	switch now := int(igm.GetTargetSize()); {
	case now == r.Target:
		return now, nil
	case now != r.Expected:
		return now, pluginsdk.Conflict(now)
	case r.Target < now:
		return now, pluginsdk.Errorf(pluginsdk.KindInvalid, "to go from %d to %d instances, name those that go: a managed instance group that is resized chooses them itself", now, r.Target)
	}
	if err := s.foreign(g, igm); err != nil {
		return 0, err
	}
	// The size is part of the id: with one token comes one size, and a host that breaks
	// that is not told that its second size was set.
	id := requestID(r.Token, "resize", r.Group, strconv.Itoa(r.Target))
	op, err := g.resize(ctx, g.name, int32(r.Target), id)
	if err != nil {
		return 0, err
	}
	g.grew(s.now())
	if err := s.confirm(ctx, g.scope, op, "the resize"); err != nil {
		return 0, err
	}
	return r.Target, nil
}

// read reads the group itself.
func (g *group) read(ctx context.Context) (*computepb.InstanceGroupManager, error) {
	return g.group(ctx, g.name)
}

// Withdraw implements pluginsdk.Provider. It deletes, by their names, the managed
// instances that have no VM. The group gives up on those at once and lowers its
// target by as many, whatever else it is waiting for.
//
// One that gets its VM between the list and the deletion, a fraction of a second, is
// ended while it boots: no job can have reached it.
func (p *Provider) Withdraw(ctx context.Context, id string, expected int, token string) (pluginsdk.WithdrawResult, error) {
	s, g, err := p.find(id)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	igm, err := g.read(ctx)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	desired := int(igm.GetTargetSize())
	if desired != expected {
		return pluginsdk.WithdrawResult{Desired: desired}, pluginsdk.Conflict(desired)
	}
	if err := s.foreign(g, igm); err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	managed, err := g.managed(ctx, g.name)
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	urls := unfilled(managed)
	if len(urls) == 0 {
		return pluginsdk.WithdrawResult{Desired: desired}, nil
	}
	op, err := g.remove(ctx, g.name, urls, requestID(token, append([]string{"withdraw", id}, urls...)...))
	if err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	if err := s.confirm(ctx, g.scope, op, "the withdrawal"); err != nil {
		return pluginsdk.WithdrawResult{}, err
	}
	if igm, err = g.read(ctx); err != nil {
		return pluginsdk.WithdrawResult{}, unconfirmed("the withdrawal", err)
	}
	left := int(igm.GetTargetSize())
	return pluginsdk.WithdrawResult{Desired: left, Withdrawn: min(max(desired-left, 0), len(urls))}, nil
}

// unfilled is those that the group is to create and that have no VM, at most as many
// as one call takes. Those without an URL belong to a resize request, which is
// somebody else's (InstanceGroupManagersDeleteInstancesRequest, instances).
func unfilled(managed []*computepb.ManagedInstance) (urls []string) {
	creating := []string{"CREATING", "CREATING_WITHOUT_RETRIES"}
	for _, m := range managed {
		if m.GetId() == 0 && m.GetInstanceStatus() == "" && m.GetInstance() != "" && slices.Contains(creating, m.GetCurrentAction()) {
			urls = append(urls, m.GetInstance())
		}
	}
	return urls[:min(len(urls), pluginsdk.MaxInstancesPerCall)]
}
