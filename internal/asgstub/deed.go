package asgstub

import (
	"fmt"
	"time"
)

// What somebody else does. None of it is in the call log. A name that does not
// exist reports false, and nothing happens.

// SetDesiredExternally is somebody else's SetDesiredCapacity, bounded by the
// group's min and max. It returns the number before.
func (c *Cloud) SetDesiredExternally(name string, n int) (before int, ok bool) {
	c.withGroup(name, func(g *group) {
		before, ok = g.desired, true
		g.setDesired(min(max(n, g.min), g.max), "a user request explicitly set group desired capacity")
		g.converge(BySomebody)
	})
	return before, ok
}

// SetBounds is somebody else's UpdateAutoScalingGroup; desired is moved into them.
func (c *Cloud) SetBounds(name string, low, high int) (ok bool) {
	return c.withGroup(name, func(g *group) {
		g.min, g.max = low, max(low, high)
		g.setDesired(min(max(g.desired, g.min), g.max), g.constraintsText(g.min, g.max, g.desired))
		g.converge(BySomebody)
	})
}

// TerminateExternally is somebody else's EC2 TerminateInstances.
func (c *Cloud) TerminateExternally(id string) (ok bool) {
	return c.withInstance(id, func(in *instance) { in.g.lose(in, BySomebody) })
}

// SelfTerminate is the instance shutting itself down.
func (c *Cloud) SelfTerminate(id string) (ok bool) {
	return c.withInstance(id, func(in *instance) { in.g.lose(in, BySelf) })
}

// DefaultNotice is how long before it EC2 announces a spot interruption:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const DefaultNotice = 2 * time.Minute

// Interrupt is EC2's notice that it takes an instance at now + notice: a message
// to the queues, and later the end of the instance.
func (c *Cloud) Interrupt(id string, notice time.Duration) (ok bool) {
	return c.withInstance(id, func(in *instance) {
		if !in.taken.IsZero() {
			return
		}
		in.taken = c.mu.now.Add(notice)
		c.event(in, eventInterruption)
		c.after(notice, func() { in.g.lose(in, Interruption) })
	})
}

// Rebalance is EC2's recommendation to replace an instance. A group with capacity
// rebalancing launches another one first, and then ends this one, protected or not.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-capacity-rebalancing.html
func (c *Cloud) Rebalance(id string) (ok bool) {
	return c.withInstance(id, func(in *instance) {
		c.event(in, eventRebalance)
		g := in.g
		if !g.rebalances || in.state != InService || g.isSuspended(procLaunch) {
			return
		}
		g.replaceFirst(Rebalance, "At "+seconds(c.mu.now)+" an instance was started in response to an EC2 instance rebalance recommendation.",
			func() *instance {
				if in.state != InService {
					return nil
				}
				return in
			})
	})
}

// StartInstanceRefresh is somebody else starting a refresh; false if one runs.
func (c *Cloud) StartInstanceRefresh(name string) (started bool) {
	c.withGroup(name, func(g *group) {
		if g.activeRefresh() == nil {
			g.startRefresh()
			started = true
		}
	})
	return started
}

// AZRebalance makes the group move an instance from its fullest zone to its
// emptiest now, balanced or not, unless it is suspended.
func (c *Cloud) AZRebalance(name string) (ok bool) {
	return c.withGroup(name, func(g *group) {
		if !g.isSuspended(procAZRebalance) {
			g.balance()
		}
	})
}

// SetFaults changes how a group misbehaves from now on; the windows count from now.
func (c *Cloud) SetFaults(name string, f Faults) (ok bool) {
	must(f.Validate())
	return c.withGroup(name, func(g *group) { g.faults = newFaultState(f, c.mu.now) })
}

func (c *Cloud) withGroup(name string, f func(*group)) (ok bool) {
	c.do(func() {
		g := c.mu.groups[name]
		if ok = g != nil; ok {
			f(g)
		}
	})
	return ok
}

// withInstance calls f if there is such an instance and it runs.
func (c *Cloud) withInstance(id string, f func(*instance)) (ok bool) {
	c.do(func() {
		in := c.mu.instances[id]
		if ok = in != nil && in.runs(); ok {
			f(in)
		}
	})
	return ok
}

func (g *group) constraintsText(low, high, desired int) string {
	return fmt.Sprintf("a user request update of AutoScalingGroup constraints to min: %d, max: %d, desired: %d", low, high, desired)
}
