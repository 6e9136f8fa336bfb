package gcemig

import (
	"context"
	"errors"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Remove implements pluginsdk.Provider. The group lowers its target with each
// instance that it deletes by name. A protection from the group's own scale-in does
// not exist; a label that says that an instance is kept is looked at just before.
func (p *Provider) Remove(ctx context.Context, id string, ids []string, token string) ([]pluginsdk.RemoveResult, error) {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	s, g, err := p.find(id)
	if err != nil {
		return nil, err
	}
	igm, err := g.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.foreign(g, igm); err != nil {
		return nil, err
	}
	o, err := s.order(ctx, g, ids)
	if err != nil {
		return nil, err
	}
	if len(o.sent) == 0 {
		return o.results(ids), nil
	}
	op, err := g.remove(ctx, g.name, o.urls, requestID(token, append([]string{"remove", id}, o.urls...)...))
	if err != nil {
		return nil, err
	}
	err = s.confirm(ctx, g.scope, op, "the deletion")
	if err == nil {
		err = s.settle(ctx, g, o, int(igm.GetTargetSize()))
	}
	if err != nil && !errors.Is(err, pluginsdk.ErrTransient) {
		return nil, err // the operation failed, and nothing was removed
	}
	if err != nil { // some or all of them may be ending
		for _, id := range o.sent {
			o.answer(id, pluginsdk.NotRemoved, err)
		}
	}
	return o.results(ids), nil
}

// order is a write that names instances: those it is sent for, and what is known of
// the others.
type order struct {
	sent    []string // ids
	urls    []string // of the same, which is how the API names them
	answers map[string]pluginsdk.RemoveResult
}

// order looks at the instances as they are now. Those that are gone, or ending
// anyway, are answered and not sent for; so are those that must not be touched.
func (s *session) order(ctx context.Context, g *group, ids []string) (*order, error) {
	managed, err := g.managed(ctx, g.name)
	if err != nil {
		return nil, err
	}
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	o := &order{answers: make(map[string]pluginsdk.RemoveResult)}
	var there []*computepb.ManagedInstance
	for _, m := range existing(managed) {
		if asked[instanceID(m)] && state(m.GetCurrentAction(), m.GetInstanceStatus()) != pluginsdk.StateDeleting {
			there = append(there, m)
		}
	}
	details, err := s.readDetails(ctx, there)
	if err != nil {
		return nil, err
	}
	for _, m := range there {
		id := instanceID(m)
		d, exists := details[m.GetId()]
		switch foreign := s.foreignOwner(d.owner); {
		case !exists: // deleted past the group, which will make another of its name
		case d.kept:
			o.answer(id, pluginsdk.NotRemoved, pluginsdk.Errorf(pluginsdk.KindInvalid, "the instance has the label %s", keepLabel))
		case foreign != nil:
			o.answer(id, pluginsdk.NotRemoved, foreign)
		default:
			o.sent, o.urls = append(o.sent, id), append(o.urls, m.GetInstance())
		}
	}
	return o, nil
}

func (o *order) answer(id string, outcome pluginsdk.RemoveOutcome, err error) {
	o.answers[id] = pluginsdk.RemoveResult{ID: id, Outcome: outcome, Err: err}
}

// results is the answer for each id, in order. An id without one is gone; one that is
// there twice was removed once.
func (o *order) results(ids []string) []pluginsdk.RemoveResult {
	results := make([]pluginsdk.RemoveResult, len(ids))
	counted := make(map[string]bool, len(ids))
	for i, id := range ids {
		r, ok := o.answers[id]
		if !ok || r.Outcome == pluginsdk.Removed && counted[id] {
			r = pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.AlreadyGone}
		}
		counted[id] = true
		results[i] = r
	}
	return results
}

// settle answers for the instances of a deletion that is done. As a rule the target
// has fallen by as many, and all are removed. Otherwise the group skipped some,
// because somebody else was faster, and the list says which.
func (s *session) settle(ctx context.Context, g *group, o *order, before int) error {
	igm, err := g.read(ctx)
	if err != nil {
		return unconfirmed("the deletion", err)
	}
	for _, id := range o.sent {
		o.answer(id, pluginsdk.Removed, nil)
	}
	skipped := len(o.sent) - max(before-int(igm.GetTargetSize()), 0)
	if skipped <= 0 {
		return nil
	}
	managed, err := g.managed(ctx, g.name)
	if err != nil {
		return unconfirmed("the deletion", err)
	}
	o.skip(managed, skipped)
	return nil
}

// skip answers for n instances that the group skipped: first those that are as they
// were, then those that are gone from the list, then any that are ending.
func (o *order) skip(managed []*computepb.ManagedInstance, n int) {
	ending := make(map[string]bool, len(managed))
	for _, m := range managed {
		ending[instanceID(m)] = state(m.GetCurrentAction(), m.GetInstanceStatus()) == pluginsdk.StateDeleting
	}
	passes := []func(id string) (pluginsdk.RemoveOutcome, bool){
		func(id string) (pluginsdk.RemoveOutcome, bool) {
			deleting, listed := ending[id]
			return pluginsdk.NotRemoved, listed && !deleting
		},
		func(id string) (pluginsdk.RemoveOutcome, bool) {
			_, listed := ending[id]
			return pluginsdk.AlreadyGone, !listed
		},
		func(string) (pluginsdk.RemoveOutcome, bool) { return pluginsdk.AlreadyGone, true },
	}
	for _, pass := range passes {
		for _, id := range o.sent {
			outcome, meant := pass(id)
			if n == 0 || !meant || o.answers[id].Outcome != pluginsdk.Removed {
				continue
			}
			o.answer(id, outcome, nil)
			if outcome == pluginsdk.NotRemoved {
				o.answer(id, outcome, unconfirmed("the deletion", nil))
			}
			n--
		}
	}
}

// ReportUnhealthy implements pluginsdk.Provider. The group recreates the instances:
// each gets another VM of its name, and the target stays. An instance that must be
// kept is refused, and then nothing is done.
func (p *Provider) ReportUnhealthy(ctx context.Context, id string, ids []string) error {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return err
	}
	s, g, err := p.find(id)
	if err != nil {
		return err
	}
	igm, err := g.read(ctx)
	if err != nil {
		return err
	}
	if err := s.foreign(g, igm); err != nil {
		return err
	}
	o, err := s.order(ctx, g, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if refused, ok := o.answers[id]; ok {
			return pluginsdk.Errorf(pluginsdk.KindInvalid, "instance %s is not replaced: %w", id, refused.Err)
		}
	}
	if len(o.sent) == 0 {
		return nil
	}
	// No request id: what is being recreated was left out above, and a repetition after
	// an operation that failed must not be taken for the same request.
	op, err := g.recreate(ctx, g.name, o.urls)
	if err != nil {
		return err
	}
	return s.confirm(ctx, g.scope, op, "the recreation")
}
