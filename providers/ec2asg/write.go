package ec2asg

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// SetDesired implements pluginsdk.Provider.
//
// It only raises. To lower the number is to let the group choose whom it ends, and it
// would choose one with a job: scale-in is by name (Remove), and what was never
// filled is taken back with a look at what exists (Withdraw).
//
// A token needs no memory here: the number is absolute, and what has been carried out
// is seen in the group.
func (p *Provider) SetDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	s, err := p.of(r.Group)
	if err != nil {
		return 0, err
	}
	if r.Target < 0 {
		return 0, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is negative", r.Target)
	}
	unlock, err := s.lock(ctx, r.Group)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if g, ok := s.reader.recent(r.Group); ok { // what is known already costs no turn
		if write, err := s.checkTarget(r, g); err != nil || !write {
			return answered(r.Target, err)
		}
	}
	write := false
	err = s.turn(ctx, r.Group, func(ctx context.Context) error {
		g, err := s.group(ctx, r.Group)
		if err != nil {
			return err
		}
		write, err = s.checkTarget(r, g)
		return err
	})
	if err == nil && write {
		err = s.setCapacity(ctx, r.Group, r.Target)
		s.activities.asked(r.Group) // also after an error: it may have been carried out
	}
	return answered(r.Target, err)
}

func answered(desired int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return desired, nil
}

// checkTarget reports whether the number is to be written: not if it is there
// already, and not with an error.
func (s *session) checkTarget(r pluginsdk.SetDesired, g *types.AutoScalingGroup) (write bool, err error) {
	if g == nil {
		return false, notFound(r.Group)
	}
	if err := checkUnit(g); err != nil {
		return false, err
	}
	switch current := desired(g); {
	case current == r.Target:
		return false, nil
	case current != r.Expected:
		return false, pluginsdk.Conflict(current)
	case s.launchHalt(g) != "":
		return false, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", s.launchHalt(g))
	case r.Target > maxSize(g):
		return false, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is above the group's max %d", r.Target, maxSize(g))
	case r.Target < minSize(g):
		return false, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired %d is below the group's min %d", r.Target, minSize(g))
	case r.Target < current && len(idsOf(g)) > 0:
		return false, pluginsdk.Errorf(pluginsdk.KindInvalid, "desired is not lowered from %d to %d: the group would choose whom to end; remove instances by name", current, r.Target)
	}
	return true, nil
}

// setCapacity makes the call. Cooldowns are for scaling policies: who honours one
// waits behind whatever the group did last.
func (s *session) setCapacity(ctx context.Context, name string, target int) error {
	defer s.reader.writing(name)()
	_, err := sendNow(ctx, s, s.scaling.SetDesiredCapacity, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(name), DesiredCapacity: aws.Int32(int32(target)), HonorCooldown: aws.Bool(false),
	})
	return err
}

// Withdraw implements pluginsdk.Provider: it lowers desired to the number of
// instances that exist.
//
// What could go wrong is that one more comes into being between our look and our
// call: then there is one too many, and the group ends one. So every instance that is
// listed must be protected from that, as the group itself says in a read that is made
// for this; then it ends the newest, which has no job yet, or nobody: where that one is
// protected too, the group stays at one more, and the next look sees it. An instance on its way out of the group counts as one that exists:
// rather too little is withdrawn.
//
// Protection begins when an instance is in service
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-instance-protection.html):
// one that is pending could still be ended in that race. It has no job.
func (p *Provider) Withdraw(ctx context.Context, group string, expected int, _ string) (pluginsdk.WithdrawResult, error) {
	var none pluginsdk.WithdrawResult
	s, err := p.of(group)
	if err != nil {
		return none, err
	}
	unlock, err := s.lock(ctx, group)
	if err != nil {
		return none, err
	}
	defer unlock()
	var result pluginsdk.WithdrawResult
	err = s.turn(ctx, group, func(ctx context.Context) error {
		a := s.reader.read(ctx, []string{group})[group] // anew, not a second ago
		if a.err != nil {
			return a.err
		}
		result, err = s.withdrawal(group, a.group, expected)
		return err
	})
	if err != nil || result.Withdrawn == 0 {
		return result, err
	}
	s.activities.lowered(group)
	if err := s.setCapacity(ctx, group, result.Desired); err != nil {
		return none, err
	}
	return result, nil
}

// withdrawal is what may be withdrawn.
func (s *session) withdrawal(name string, g *types.AutoScalingGroup, expected int) (pluginsdk.WithdrawResult, error) {
	var none pluginsdk.WithdrawResult
	if g == nil {
		return none, notFound(name)
	}
	if err := checkUnit(g); err != nil {
		return none, err
	}
	current := desired(g)
	target := max(existing(g), minSize(g))
	switch why := s.halt(g); {
	case current != expected:
		return none, pluginsdk.Conflict(current)
	case target >= current:
		return pluginsdk.WithdrawResult{Desired: current}, nil
	case why != "":
		return none, pluginsdk.Errorf(pluginsdk.KindInvalid, "%s", why)
	}
	for i := range g.Instances {
		if in := &g.Instances[i]; lifecycleOf(in).part == counted && !aws.ToBool(in.ProtectedFromScaleIn) {
			return none, pluginsdk.Errorf(pluginsdk.KindUnsupported,
				"instance %s is not protected from scale-in, so the group might end it: switch on the group's protection of new instances", aws.ToString(in.InstanceId))
		}
	}
	return pluginsdk.WithdrawResult{Desired: target, Withdrawn: current - target}, nil
}
