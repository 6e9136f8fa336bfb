package ec2asg

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// namesPerCall is how many groups one call asks for: what AWS answers in one
	// page by default, so that a call has one page normally.
	namesPerCall = 50
	// maxPages bounds the pages of one call: a page has a group at least, so more
	// means an endpoint that hands out tokens without end.
	maxPages = namesPerCall + 1
)

// known keeps the names that were configured.
func (s *session) known(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.groups[name] })
}

// describe reads all of the named groups that exist, or returns an error.
func (s *session) describe(ctx context.Context, names []string) (map[string]*types.AutoScalingGroup, error) {
	found := make(map[string]*types.AutoScalingGroup, len(names))
	if len(names) == 0 {
		return found, nil // no names would mean all groups of the account to AWS
	}
	if _, err := s.credentials.Retrieve(ctx); err != nil { // kept until it expires
		return nil, pluginsdk.Errorf(pluginsdk.KindAuth, "no AWS credentials: %w", err)
	}
	for some := range slices.Chunk(names, namesPerCall) {
		if err := s.describeSome(ctx, some, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *session) describeSome(ctx context.Context, names []string, found map[string]*types.AutoScalingGroup) error {
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(s.client, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: names,
	})
	for page := 0; pages.HasMorePages(); page++ {
		if page == maxPages {
			return pluginsdk.Errorf(pluginsdk.KindTransient, "more than %d pages for %d groups", maxPages, len(names))
		}
		answer, err := pages.NextPage(ctx)
		if err != nil {
			return classify(err)
		}
		for _, group := range answer.AutoScalingGroups {
			found[aws.ToString(group.AutoScalingGroupName)] = &group
		}
	}
	return nil
}

func notFound(name string) error {
	return pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no Auto Scaling group %q, or it is not configured", name)
}

// status is the group in Spillway's words; group is nil if there is none.
func status(name string, group *types.AutoScalingGroup) pluginsdk.GroupStatus {
	if group == nil {
		return pluginsdk.GroupStatus{Group: name, Err: notFound(name)}
	}
	if err := checkUnit(group); err != nil {
		return pluginsdk.GroupStatus{Group: name, Err: err}
	}
	desired := int(aws.ToInt32(group.DesiredCapacity))
	return pluginsdk.GroupStatus{
		Group:        name,
		Desired:      desired,
		Min:          int(aws.ToInt32(group.MinSize)),
		Max:          int(aws.ToInt32(group.MaxSize)),
		InTransition: inTransition(group, desired),
	}
}

// checkUnit refuses groups whose numbers do not count instances.
func checkUnit(group *types.AutoScalingGroup) error {
	if unit := aws.ToString(group.DesiredCapacityType); unit != "" && unit != "units" {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the group's capacity is counted in %s, Spillway counts instances: set its desired capacity type to units", unit)
	}
	for _, instance := range group.Instances {
		if weight := aws.ToString(instance.WeightedCapacity); weight != "" && weight != "1" {
			return pluginsdk.Errorf(pluginsdk.KindInvalid, "the group weights its instances, Spillway counts them: remove the weights from its mixed instances policy")
		}
	}
	return nil
}

func inTransition(group *types.AutoScalingGroup, desired int) bool {
	running := 0
	for _, instance := range group.Instances {
		switch state(instance.LifecycleState) {
		case pluginsdk.StateRunning:
			running++
		case pluginsdk.StateCreating, pluginsdk.StateDeleting:
			return true
		case pluginsdk.StateUnknown: // it may stay like that for ever
		}
	}
	return running != desired
}

// instances are those that the group still pays for.
func instances(group *types.AutoScalingGroup) []pluginsdk.Instance {
	list := make([]pluginsdk.Instance, 0, len(group.Instances))
	for _, instance := range group.Instances {
		if gone(instance.LifecycleState) {
			continue
		}
		list = append(list, pluginsdk.Instance{
			ID:        aws.ToString(instance.InstanceId),
			State:     state(instance.LifecycleState),
			Zone:      aws.ToString(instance.AvailabilityZone),
			Protected: aws.ToBool(instance.ProtectedFromScaleIn),
			Unhealthy: strings.EqualFold(aws.ToString(instance.HealthStatus), "Unhealthy"),
		})
	}
	return list
}

func gone(s types.LifecycleState) bool {
	return s == types.LifecycleStateTerminated || s == types.LifecycleStateDetached
}

// state maps a lifecycle state. Standby, detaching and warm instances are none
// that a decision could use: unknown counts as running and busy.
func state(s types.LifecycleState) pluginsdk.InstanceState {
	switch s {
	case types.LifecycleStatePending, types.LifecycleStatePendingWait, types.LifecycleStatePendingProceed:
		return pluginsdk.StateCreating
	case types.LifecycleStateInService:
		return pluginsdk.StateRunning
	case types.LifecycleStateTerminating, types.LifecycleStateTerminatingWait, types.LifecycleStateTerminatingProceed:
		return pluginsdk.StateDeleting
	default:
		return pluginsdk.StateUnknown
	}
}
