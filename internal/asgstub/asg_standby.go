package asgstub

import "fmt"

// maxMoved bounds the ids of one call to detach, or to enter or exit standby.
const maxMoved = 20

// moved reads what the three operations have in common.
func (x *exchange) moved() (ids []string, g *group, err error) {
	ids = x.p.list("InstanceIds.member")
	g, err = x.group()
	switch {
	case err != nil:
	case len(ids) == 0:
		err = missing("InstanceIds")
	case len(ids) > maxMoved:
		err = invalid("The number of instance ids that may be passed in is limited to %d", maxMoved)
	}
	return ids, g, err
}

// detachInstances:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DetachInstances.html
func detachInstances(x *exchange) error {
	decrement := x.p.needBool("ShouldDecrementDesiredCapacity")
	ids, g, err := x.moved()
	if err != nil {
		return err
	}
	found, err := g.named(ids, "InService or Standby", InService, Standby)
	if err != nil {
		return err
	}
	counted := counting(found)
	if decrement && g.desired-counted < g.min {
		return invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To detach %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.name, g.min, g.max, g.desired, counted)
	}
	x.w.in("Activities", func() {
		for _, in := range found {
			in.work = g.startActivity("Detaching EC2 instance: "+in.id, g.userRequest(in, "detached", "shrinking", decrement, -1), in.zone)
			if decrement && in.counts() {
				g.setDesired(g.desired-1, "a user request")
			}
			in.protected = false
			g.drop(in, Detached)
			x.w.in("member", func() { in.work.describe(&x.w) })
			x.c.finish(in.work, statusSuccessful)
		}
	})
	g.converge(ByScaleIn)
	return nil
}

// enterStandby:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_EnterStandby.html
func enterStandby(x *exchange) error {
	decrement := x.p.needBool("ShouldDecrementDesiredCapacity")
	ids, g, err := x.moved()
	if err != nil {
		return err
	}
	found, err := g.named(ids, InService, InService)
	if err != nil {
		return err
	}
	if decrement && g.desired-len(found) < g.min {
		return invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To place into standby %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.name, g.min, g.max, g.desired, len(found))
	}
	x.w.in("Activities", func() {
		for _, in := range found {
			in.work = g.startActivity("Moving EC2 instance to Standby: "+in.id, g.userRequest(in, "moved to standby", "shrinking", decrement, -1), in.zone)
			if decrement {
				g.setDesired(g.desired-1, "a user request")
			}
			in.toState(Standby)
			x.w.in("member", func() { in.work.describe(&x.w) })
			x.c.finish(in.work, statusSuccessful)
		}
	})
	g.converge(ByScaleIn)
	return nil
}

// exitStandby raises desired, as the service does:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_ExitStandby.html
func exitStandby(x *exchange) error {
	ids, g, err := x.moved()
	if err != nil {
		return err
	}
	found, err := g.named(ids, Standby, Standby)
	if err != nil {
		return err
	}
	if g.desired+len(found) > g.max {
		return invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To place into service %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.name, g.min, g.max, g.desired, len(found))
	}
	x.w.in("Activities", func() {
		for _, in := range found {
			in.work = g.startActivity("Moving EC2 instance out of Standby: "+in.id, g.userRequest(in, "moved out of standby", "increasing", true, 1), in.zone)
			in.work.status = statusPreInService
			g.setDesired(g.desired+1, "a user request")
			in.toState(Pending)
			x.w.in("member", func() { in.work.describe(&x.w) })
			if !g.hold(in, Launching, PendingWait) {
				in.toState(InService)
				x.c.finish(in.work, statusSuccessful)
			}
		}
	})
	g.converge(ByScaleIn)
	return nil
}

func counting(list []*instance) (n int) {
	for _, in := range list {
		if in.counts() {
			n++
		}
	}
	return n
}

func (g *group) userRequest(in *instance, did, way string, changes bool, by int) string {
	text := fmt.Sprintf("At %s instance %s was %s in response to a user request", seconds(g.c.mu.now), in.id, did)
	if changes {
		text += fmt.Sprintf(", %s the capacity from %d to %d", way, g.desired, g.desired+by)
	}
	return text + "."
}
