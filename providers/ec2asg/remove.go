package ec2asg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Remove implements pluginsdk.Provider: TerminateInstanceInAutoScalingGroup with a
// decrement, for each id by itself. There is no other way here to end an instance,
// and none to lower desired while it is alive.
//
// The call names no group, so that it would end an instance of any group of the
// account: only what the group lists, as of a second ago at most, is named in it.
// Scale-in protection does not hinder it and is not lifted: from then until the
// instance is gone the group could choose it, or another one.
//
// A token needs no memory: an id that was removed is terminating, and what is
// terminating is AlreadyGone.
func (p *Provider) Remove(ctx context.Context, group string, ids []string, _ string) ([]pluginsdk.RemoveResult, error) {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	s, err := p.of(group)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx, group)
	if err != nil {
		return nil, err
	}
	defer unlock()
	g, err := s.groupBefore(ctx, group)
	if err != nil {
		return nil, err
	}
	if err := checkUnit(g); err != nil {
		return nil, err
	}
	if why := s.removalHalt(g); why != "" {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", why)
	}
	r := &removal{session: s, group: g, room: desired(g) - minSize(g)}
	present := r.present(ids)
	if len(present) > 0 {
		if err := s.askAgain(ctx, present); err != nil {
			return nil, err
		}
	}
	return r.all(ctx, ids), nil
}

// removal is one Remove under way.
type removal struct {
	*session
	group *types.AutoScalingGroup
	room  int   // how far desired may still fall
	stop  error // why no more calls are made
}

// present are those of ids that could be removed.
func (r *removal) present(ids []string) (present []string) {
	for _, id := range ids {
		if in := r.instance(id); in != nil && lifecycleOf(in).part == counted {
			present = append(present, id)
		}
	}
	return present
}

func (r *removal) instance(id string) *types.Instance {
	for i := range r.group.Instances {
		if aws.ToString(r.group.Instances[i].InstanceId) == id {
			return &r.group.Instances[i]
		}
	}
	return nil
}

func (r *removal) all(ctx context.Context, ids []string) []pluginsdk.RemoveResult {
	results := make([]pluginsdk.RemoveResult, len(ids))
	for i, id := range ids {
		outcome, err := r.one(ctx, id)
		if outcome == pluginsdk.Removed {
			r.room--
		}
		results[i] = pluginsdk.RemoveResult{ID: id, Outcome: outcome, Err: err}
	}
	return results
}

// one removes one instance, unless something speaks against it.
func (r *removal) one(ctx context.Context, id string) (pluginsdk.RemoveOutcome, error) {
	in := r.instance(id)
	if in == nil || lifecycleOf(in).part != counted || r.ended.has(id) {
		return pluginsdk.AlreadyGone, nil
	}
	if err := r.against(in); err != nil {
		return pluginsdk.NotRemoved, err
	}
	if r.stop != nil {
		return pluginsdk.NotRemoved, r.stop
	}
	err := r.terminate(ctx, id)
	switch {
	case err == nil:
		return pluginsdk.Removed, nil
	case says(err, textNoInstance):
		return pluginsdk.AlreadyGone, nil
	case errors.Is(err, pluginsdk.ErrThrottled), errors.Is(err, pluginsdk.ErrAuth), ctx.Err() != nil:
		r.stop = err // the next one would fare no better
	}
	return pluginsdk.NotRemoved, err
}

// against is why an instance may not be removed; nil for nothing.
func (r *removal) against(in *types.Instance) error {
	id := aws.ToString(in.InstanceId)
	switch l := lifecycleOf(in); {
	case r.machines.get(id).kept:
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "somebody has tagged instance %s with %s: it is not to be touched", id, keepTag)
	case l.part != counted || l.state == pluginsdk.StateUnknown:
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "instance %s is %s: somebody has taken it out of service", id, in.LifecycleState)
	case r.room <= 0:
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the group's min %d does not allow one less", minSize(r.group))
	}
	return nil
}

func (r *removal) terminate(ctx context.Context, id string) error {
	name := aws.ToString(r.group.AutoScalingGroupName)
	if err := r.turn(ctx, name, func(context.Context) error { return nil }); err != nil {
		return err
	}
	defer r.reader.writing(name)()
	r.activities.lowered(name)
	r.ended.add(id) // before: the notice of it may be faster than the answer
	_, err := sendNow(ctx, r.session, r.scaling.TerminateInstanceInAutoScalingGroup, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(true),
	})
	if err != nil {
		r.ended.drop(id) // carried out or not: the list will tell
	}
	return err
}

// endedLife is how long an id is remembered whose termination was accepted: longer
// than the group takes to list it as terminating.
const endedLife = 10 * time.Minute

// ended are the instances that we have ended. Should the group list one as in service
// for a moment longer, it is not ended, and desired not lowered, a second time.
type ended struct {
	now func() time.Time
	mu  sync.Mutex
	at  map[string]time.Time
}

func newEnded(now func() time.Time) *ended {
	return &ended{now: now, at: map[string]time.Time{}}
}

func (e *ended) add(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	for other, at := range e.at {
		if now.Sub(at) >= endedLife {
			delete(e.at, other)
		}
	}
	e.at[id] = now
}

func (e *ended) drop(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, id)
}

func (e *ended) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.at[id]
	return ok && e.now().Sub(at) < endedLife
}
