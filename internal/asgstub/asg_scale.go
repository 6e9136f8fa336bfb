package asgstub

import (
	"fmt"
	"slices"
)

// group is the group that the call is about.
func (x *exchange) group() (*group, error) {
	name := arnGroup(x.p.need("AutoScalingGroupName"))
	g := x.c.mu.groups[name]
	if x.p.err == nil && g == nil {
		x.p.fail(invalid("AutoScalingGroup name not found - AutoScalingGroup: %s not found", name))
	}
	return g, x.p.done()
}

// setDesiredCapacity:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SetDesiredCapacity.html
func setDesiredCapacity(x *exchange) error {
	n := x.p.needInt("DesiredCapacity")
	honor := x.p.bool("HonorCooldown", false)
	g, err := x.group()
	switch {
	case err != nil:
		return err
	case n > g.max:
		return invalid("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", n, g.max)
	case n < g.min:
		return invalid("New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.", n, g.min)
	case honor && g.cooling():
		return inProgress(g.activities[len(g.activities)-1])
	}
	g.setDesired(n, "a user request explicitly set group desired capacity")
	g.converge(ByScaleIn)
	return nil
}

// cooling reports whether the last scaling activity ended less than a cooldown ago.
func (g *group) cooling() bool {
	return !g.lastScaling.IsZero() && g.c.mu.now.Sub(g.lastScaling) < g.cooldown.Duration()
}

func inProgress(a *activity) *failure {
	return &failure{
		code: "ScalingActivityInProgress", status: 400,
		message: fmt.Sprintf("Scaling activity %s is in progress and blocks this action", a.id),
	}
}

// terminateInstance ends an instance by name, protected or not, and while Terminate
// is suspended too. One that is being terminated already is not decremented again;
// the activity under way is the answer.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html
func terminateInstance(x *exchange) error {
	id := x.p.need("InstanceId")
	decrement := x.p.needBool("ShouldDecrementDesiredCapacity")
	if err := x.p.done(); err != nil {
		return err
	}
	in := x.c.mu.instances[id]
	if in == nil || !in.left.IsZero() {
		return invalid("Instance Id not found - No managed instance found for instance ID: %s", id)
	}
	g := in.g
	switch {
	case slices.Contains(g.warm, in):
		return invalid("The instance %s is part of a warm pool.", id)
	case in.terminating():
		x.w.in("Activity", func() { in.work.describe(&x.w) })
		return nil
	case decrement && g.desired <= g.min:
		return invalid("Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.min)
	}
	g.terminateByName(in, decrement)
	x.w.in("Activity", func() { in.work.describe(&x.w) })
	return nil
}

func (g *group) terminateByName(in *instance, decrement bool) {
	counted := in.counts()
	why := fmt.Sprintf("At %s instance %s was taken out of service in response to a user request.", seconds(g.c.mu.now), in.id)
	if decrement {
		n := g.desired
		g.setDesired(n-1, "a user request")
		why = fmt.Sprintf("At %s instance %s was taken out of service in response to a user request, shrinking the capacity from %d to %d.",
			seconds(g.c.mu.now), in.id, n, n-1)
	}
	g.terminate(in, ByName, why)
	switch {
	case !decrement:
		g.afterLoss(counted, ByName)
	case g.faults.ReplaceRace:
		g.raceReplacement()
	default:
		g.converge(ByScaleIn)
	}
}

// setProtection:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SetInstanceProtection.html
func setProtection(x *exchange) error {
	const maxIDs = 50
	ids := x.p.list("InstanceIds.member")
	protect := x.p.needBool("ProtectedFromScaleIn")
	g, err := x.group()
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return missing("InstanceIds")
	case len(ids) > maxIDs:
		return invalid("The number of instance ids that may be passed in is limited to %d", maxIDs)
	}
	found, err := g.named(ids, "InService or EnteringStandby or Standby", InService, EnteringStandby, Standby)
	if err != nil {
		return err
	}
	for _, in := range found {
		in.protected = protect
	}
	g.converge(ByScaleIn) // somebody may have become free to go
	return nil
}

// named are the instances of the group with these ids, all in one of the states.
func (g *group) named(ids []string, allowed string, states ...string) (found []*instance, err error) {
	for _, id := range ids {
		at := slices.IndexFunc(g.instances, func(in *instance) bool { return in.id == id })
		switch {
		case at < 0:
			return nil, invalid("The instance %s is not part of Auto Scaling group %s.", id, g.name)
		case !slices.Contains(states, g.instances[at].state):
			return nil, invalid("The instance %s is not in %s.", id, allowed)
		}
		found = append(found, g.instances[at])
	}
	return found, nil
}

// setHealth:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SetInstanceHealth.html
func setHealth(x *exchange) error {
	id, health := x.p.need("InstanceId"), x.p.need("HealthStatus")
	x.p.bool("ShouldRespectGracePeriod", true) // groups of the stand-in have none
	if x.p.err == nil && health != "Healthy" && health != "Unhealthy" {
		x.p.fail(invalid("HealthStatus must be either Healthy or Unhealthy"))
	}
	if err := x.p.done(); err != nil {
		return err
	}
	in := x.c.mu.instances[id]
	if in == nil || !in.left.IsZero() {
		return invalid("Instance Id not found - No managed instance found for instance ID: %s", id)
	}
	in.unhealthy = health == "Unhealthy"
	g := in.g
	if in.unhealthy && in.counts() && !g.isSuspended(procReplace) && !g.isSuspended(procTerminate) {
		g.terminate(in, Unhealthy, fmt.Sprintf("At %s an instance was taken out of service in response to a user health-check.", seconds(g.c.mu.now)))
		g.afterLoss(true, Unhealthy)
	}
	return nil
}

// suspendProcesses:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_SuspendProcesses.html
func suspendProcesses(x *exchange) error {
	names := x.processes()
	g, err := x.group()
	if err != nil {
		return err
	}
	g.suspend(names)
	return nil
}

// resumeProcesses:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_ResumeProcesses.html
func resumeProcesses(x *exchange) error {
	names := x.processes()
	g, err := x.group()
	if err != nil {
		return err
	}
	g.resume(names)
	g.converge(ByScaleIn)
	g.settled()
	return nil
}

func (x *exchange) processes() []string {
	names := x.p.list("ScalingProcesses.member")
	for _, n := range names {
		if !slices.Contains(processes, n) {
			x.p.fail(invalid("%s is not a valid Auto Scaling process", n))
		}
	}
	if len(names) == 0 {
		return processes
	}
	return names
}
