package ec2asg

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// part is what an instance is to its group's desired number.
type part int

// The parts.
const (
	gone    part = iota // not in the group any more, or not part of its numbers: not listed
	leaving             // being ended: desired does not count it
	counted             // desired counts it, or it may
)

// lifecycle is what Spillway makes of a lifecycle state:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-lifecycle.html
type lifecycle struct {
	state pluginsdk.InstanceState
	hook  pluginsdk.Hook
	part  part
}

// lifecycles are the states of the API model (LifecycleState of
// autoscaling/2011-01-01). A state that is not here is unknown and counted: such an
// instance is taken for running and busy, and is never removed.
//
// Warmed instances wait outside of the group's numbers. AWS lists them apart from
// the group (DescribeWarmPool), and so they are not listed here either. Nor are those
// on standby, which somebody has taken out of service and of the group's numbers: to
// count one would look as if the number had been lowered under it.
var lifecycles = map[types.LifecycleState]lifecycle{
	types.LifecycleStatePending:                    {pluginsdk.StateCreating, pluginsdk.NoHook, counted},
	types.LifecycleStatePendingWait:                {pluginsdk.StateCreating, pluginsdk.LaunchHook, counted},
	types.LifecycleStatePendingProceed:             {pluginsdk.StateCreating, pluginsdk.NoHook, counted},
	types.LifecycleStateInService:                  {pluginsdk.StateRunning, pluginsdk.NoHook, counted},
	types.LifecycleStateTerminating:                {pluginsdk.StateDeleting, pluginsdk.NoHook, leaving},
	types.LifecycleStateTerminatingWait:            {pluginsdk.StateDeleting, pluginsdk.TerminationHook, leaving},
	types.LifecycleStateTerminatingProceed:         {pluginsdk.StateDeleting, pluginsdk.NoHook, leaving},
	types.LifecycleStateTerminatingRetained:        {pluginsdk.StateDeleting, pluginsdk.NoHook, leaving}, // it bills until somebody ends it
	types.LifecycleStateTerminated:                 {part: gone},
	types.LifecycleStateDetached:                   {part: gone},
	types.LifecycleStateDetaching:                  {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
	types.LifecycleStateEnteringStandby:            {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
	types.LifecycleStateStandby:                    {part: gone},
	types.LifecycleStateQuarantined:                {pluginsdk.StateUnknown, pluginsdk.NoHook, counted}, // the model says that it is not used
	types.LifecycleStateReplacingRootVolume:        {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
	types.LifecycleStateReplacingRootVolumeWait:    {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
	types.LifecycleStateReplacingRootVolumeProceed: {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
	types.LifecycleStateRootVolumeReplaced:         {pluginsdk.StateUnknown, pluginsdk.NoHook, counted},
}

func lifecycleOf(in *types.Instance) lifecycle {
	if known, ok := lifecycles[in.LifecycleState]; ok {
		return known
	}
	if strings.HasPrefix(string(in.LifecycleState), "Warmed:") {
		return lifecycle{part: gone}
	}
	return lifecycle{state: pluginsdk.StateUnknown, part: counted}
}

// existing is how many instances the group's desired number counts, or may count.
func existing(g *types.AutoScalingGroup) (n int) {
	for i := range g.Instances {
		if lifecycleOf(&g.Instances[i]).part == counted {
			n++
		}
	}
	return n
}

func desired(g *types.AutoScalingGroup) int { return int(aws.ToInt32(g.DesiredCapacity)) }
func minSize(g *types.AutoScalingGroup) int { return int(aws.ToInt32(g.MinSize)) }
func maxSize(g *types.AutoScalingGroup) int { return int(aws.ToInt32(g.MaxSize)) }

// status is the group in Spillway's words.
func (s *session) status(name string, g *types.AutoScalingGroup) pluginsdk.GroupStatus {
	if g == nil {
		return pluginsdk.GroupStatus{Group: name, Err: notFound(name)}
	}
	if err := checkUnit(g); err != nil {
		return pluginsdk.GroupStatus{Group: name, Err: err}
	}
	return pluginsdk.GroupStatus{
		Group: name, Desired: desired(g), Min: minSize(g), Max: maxSize(g),
		InTransition: inTransition(g), Failures: s.activities.failures(name),
		LaunchHalt: s.launchHalt(g), RemovalHalt: s.removalHalt(g),
	}
}

// checkUnit refuses groups whose numbers do not count instances.
func checkUnit(g *types.AutoScalingGroup) error {
	if unit := aws.ToString(g.DesiredCapacityType); unit != "" && unit != "units" {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the group's capacity is counted in %s, Spillway counts instances: set its desired capacity type to units", unit)
	}
	weighs := func(weight *string) bool { return aws.ToString(weight) != "" && aws.ToString(weight) != "1" }
	weighted := slices.ContainsFunc(g.Instances, func(in types.Instance) bool { return weighs(in.WeightedCapacity) })
	if p := g.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil {
		weighted = weighted || slices.ContainsFunc(p.LaunchTemplate.Overrides, func(o types.LaunchTemplateOverrides) bool { return weighs(o.WeightedCapacity) })
	}
	if weighted {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the group weights its instances, Spillway counts them: remove the weights from its mixed instances policy")
	}
	return nil
}

// launchHalt is why a higher desired number would launch nothing.
func (s *session) launchHalt(g *types.AutoScalingGroup) string {
	if why := s.halt(g); why != "" {
		return why
	}
	if suspended(g, "Launch") {
		return "the group's Launch process is suspended: resume it"
	}
	return ""
}

// removalHalt is why nothing can be removed.
//
// An instance refresh is no halt: it neither hinders launches nor our removals. It
// kills jobs, which is what the finding says.
func (s *session) removalHalt(g *types.AutoScalingGroup) string {
	if why := s.halt(g); why != "" {
		return why
	}
	if suspended(g, "Terminate") {
		return "the group's Terminate process is suspended: resume it"
	}
	return ""
}

// halt is why neither launches nor removals are written.
func (s *session) halt(g *types.AutoScalingGroup) string {
	if who := s.foreignOwner(g); who != "" {
		return fmt.Sprintf("the group belongs to somebody else: its tag %s is %.100q, the setting owner is %.100q", ownerTag, who, s.config.Owner)
	}
	if deleting := aws.ToString(g.Status); deleting != "" { // it is only set while the group is deleted
		return "the group is being deleted: " + deleting
	}
	return ""
}

func suspended(g *types.AutoScalingGroup, process string) bool {
	return slices.ContainsFunc(g.SuspendedProcesses, func(p types.SuspendedProcess) bool { return aws.ToString(p.ProcessName) == process })
}

func inTransition(g *types.AutoScalingGroup) bool {
	running := 0
	for i := range g.Instances {
		switch l := lifecycleOf(&g.Instances[i]); {
		case l.part == gone:
		case l.state == pluginsdk.StateRunning:
			running++
		case l.state == pluginsdk.StateCreating, l.state == pluginsdk.StateDeleting:
			return true
		case l.state == pluginsdk.StateUnknown: // it may stay like that for ever
		}
	}
	return running != desired(g)
}

// instances are those that the group still pays for, in the group's order.
func (s *session) instances(g *types.AutoScalingGroup) []pluginsdk.Instance {
	list := make([]pluginsdk.Instance, 0, len(g.Instances))
	for i := range g.Instances {
		in := &g.Instances[i]
		l := lifecycleOf(in)
		if l.part == gone {
			continue
		}
		id := aws.ToString(in.InstanceId)
		m := s.machines.get(id)
		list = append(list, pluginsdk.Instance{
			ID: id, State: l.state, Hook: l.hook,
			Zone:       aws.ToString(in.AvailabilityZone),
			Protected:  aws.ToBool(in.ProtectedFromScaleIn),
			Unhealthy:  strings.EqualFold(aws.ToString(in.HealthStatus), "Unhealthy"),
			LaunchedAt: m.launchedAt, Address: m.address, Spot: m.spot, Kept: m.kept,
		})
	}
	return list
}
