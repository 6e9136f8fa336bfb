package ec2asg

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// protectPerCall is how many instances AWS takes in one call:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SetInstanceProtection.html
const protectPerCall = 50

// ours returns a group that may be written to, and those of ids that are in it, in
// its own words.
func (s *session) ours(ctx context.Context, group string, ids []string) ([]*types.Instance, error) {
	if err := pluginsdk.CheckInstances(ids); err != nil {
		return nil, err
	}
	g, err := s.groupBefore(ctx, group)
	if err != nil {
		return nil, err
	}
	if s.foreignOwner(g) != "" { // where it is being deleted there is all the more to complete
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", s.halt(g))
	}
	var found []*types.Instance
	for i := range g.Instances {
		if in := &g.Instances[i]; lifecycleOf(in).part != gone && slices.Contains(ids, aws.ToString(in.InstanceId)) {
			found = append(found, in)
		}
	}
	return found, nil
}

// CompleteHook implements pluginsdk.Provider: CONTINUE for every hook of ours that
// holds an instance.
func (p *Provider) CompleteHook(ctx context.Context, group string, ids []string) error {
	s, err := p.of(group)
	if err != nil {
		return err
	}
	held, err := s.ours(ctx, group, ids)
	if err != nil {
		return err
	}
	held = slices.DeleteFunc(held, func(in *types.Instance) bool { return waitsFor(in) == "" })
	if len(held) == 0 {
		return nil
	}
	var list []lifecycleHook
	err = s.before(ctx, func(early context.Context) error {
		list, err = s.hooks.of(early, group)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, in := range held {
		for _, hook := range list {
			if hook.transition == waitsFor(in) && s.config.Hooks.mine(hook.name) {
				errs = append(errs, s.complete(ctx, waitKey{group, aws.ToString(in.InstanceId), hook.name}))
			}
		}
	}
	return worst(errs)
}

// complete lets one instance go on. That it does not wait any more is no failure.
func (s *session) complete(ctx context.Context, key waitKey) error {
	if err := s.turn(ctx, key.group, func(context.Context) error { return nil }); err != nil {
		return err
	}
	defer s.reader.writing(key.group)()
	_, err := sendNow(ctx, s, s.scaling.CompleteLifecycleAction, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String(key.group), InstanceId: aws.String(key.instance), LifecycleHookName: aws.String(key.hook),
		LifecycleActionResult: aws.String("CONTINUE"),
	})
	if err != nil && !says(err, textNoWait) && !says(err, textNoInstance) {
		return err
	}
	s.hooks.over(key)
	return nil
}

// ReportUnhealthy implements pluginsdk.Provider. The group ends the instance and
// launches another one; its grace period is for instances that boot, and ours have
// been judged by somebody who knows.
func (p *Provider) ReportUnhealthy(ctx context.Context, group string, ids []string) error {
	s, err := p.of(group)
	if err != nil {
		return err
	}
	found, err := s.ours(ctx, group, ids)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(in *types.Instance) bool { return lifecycleOf(in).part == leaving })
	present := make([]string, len(found))
	for i, in := range found {
		present[i] = aws.ToString(in.InstanceId)
	}
	if len(present) > 0 {
		if err := s.askAgain(ctx, present); err != nil {
			return err
		}
	}
	var errs []error
	for _, id := range present {
		errs = append(errs, s.unhealthy(ctx, group, id))
	}
	return worst(errs)
}

func (s *session) unhealthy(ctx context.Context, group, id string) error {
	if s.machines.get(id).kept {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "somebody has tagged instance %s with %s: it is not to be touched", id, keepTag)
	}
	if err := s.turn(ctx, group, func(context.Context) error { return nil }); err != nil {
		return err
	}
	defer s.reader.writing(group)()
	_, err := sendNow(ctx, s, s.scaling.SetInstanceHealth, &autoscaling.SetInstanceHealthInput{
		InstanceId: aws.String(id), HealthStatus: aws.String("Unhealthy"), ShouldRespectGracePeriod: aws.Bool(false),
	})
	if says(err, textNoInstance) {
		return nil
	}
	return err
}

// Protect implements pluginsdk.Provider. AWS takes it only for instances in service
// or standby: those that have left or are leaving are passed over, and those that
// boot are an ErrTransient once the others are done.
func (p *Provider) Protect(ctx context.Context, group string, ids []string, protected bool) error {
	s, err := p.of(group)
	if err != nil {
		return err
	}
	found, err := s.ours(ctx, group, ids)
	if err != nil {
		return err
	}
	var ready []string
	var errs []error
	for _, in := range found {
		switch l := lifecycleOf(in); {
		case l.part == leaving:
		case l.state == pluginsdk.StateCreating:
			errs = append(errs, pluginsdk.Errorf(pluginsdk.KindTransient, "instance %s is not in service yet", aws.ToString(in.InstanceId)))
		case aws.ToBool(in.ProtectedFromScaleIn) != protected:
			ready = append(ready, aws.ToString(in.InstanceId))
		}
	}
	for some := range slices.Chunk(ready, protectPerCall) {
		errs = append(errs, s.protect(ctx, group, some, protected))
	}
	return worst(errs)
}

func (s *session) protect(ctx context.Context, group string, ids []string, protected bool) error {
	if err := s.turn(ctx, group, func(context.Context) error { return nil }); err != nil {
		return err
	}
	defer s.reader.writing(group)()
	_, err := sendNow(ctx, s, s.scaling.SetInstanceProtection, &autoscaling.SetInstanceProtectionInput{
		AutoScalingGroupName: aws.String(group), InstanceIds: ids, ProtectedFromScaleIn: aws.Bool(protected),
	})
	return err
}

// worst is nil if all are, and otherwise the error that says most of what to do:
// throttling and auth concern all that is asked, the rest one instance.
func worst(errs []error) error {
	for _, kind := range []*pluginsdk.Error{pluginsdk.ErrThrottled, pluginsdk.ErrAuth} {
		for _, err := range errs {
			if errors.Is(err, kind) {
				return err
			}
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
