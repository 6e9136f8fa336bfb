package asgstub

import (
	"fmt"
	"slices"
)

// terminate makes the group end an instance: it waits for terminating hooks, is
// shut down, shows for a while as terminating, and is gone. why is how the
// activity explains it.
func (g *group) terminate(in *instance, cause Cause, why string) {
	hooked := in.state == InService || in.state == Standby
	g.c.finish(in.work, statusCancelled)
	in.cause = cause
	in.waits = nil
	in.work = g.startActivity("Terminating EC2 instance: "+in.id, why, in.zone)
	in.toState(TerminatingNow)
	if !hooked || !g.hold(in, Terminating, TerminatingWait) {
		g.shutDown(in)
	}
	in.up()
}

// shutDown is when nothing holds the termination any more.
func (g *group) shutDown(in *instance) {
	g.halt(in, in.cause)
	g.c.afterIn(in, g.faults.Terminating, func() { g.vanish(in) })
}

// halt stops the virtual machine, if it still runs.
func (g *group) halt(in *instance, cause Cause) {
	if !in.runs() {
		return
	}
	in.ended, in.cause = g.c.mu.now, cause
	in.ec2 = ec2ShuttingDown
	g.c.tell(Change{Kind: Ended, Group: g.name, ID: in.id, Cause: cause})
	g.c.event(in, eventState)
	g.c.after(g.faults.Terminating, func() {
		in.ec2 = ec2Terminated
		g.c.event(in, eventState)
	})
}

func (g *group) vanish(in *instance) {
	g.drop(in, Terminated)
	g.c.finish(in.work, statusSuccessful)
	g.c.event(in, eventTerminated)
	g.settled()
}

// lose is when EC2 ended an instance behind the group's back: it is dead at once,
// and the group notices later.
func (g *group) lose(in *instance, cause Cause) {
	if !in.runs() {
		return
	}
	g.halt(in, cause)
	g.c.after(g.faults.HealthCheck, func() { g.noticeDead(in) })
}

func (g *group) noticeDead(in *instance) {
	if g.deleted || !in.left.IsZero() || in.terminating() {
		return
	}
	if g.isSuspended(procHealthCheck) || g.isSuspended(procReplace) || g.isSuspended(procTerminate) {
		g.c.afterIn(in, healthRetry, func() { g.noticeDead(in) })
		return
	}
	counted := in.counts()
	in.unhealthy = true
	g.terminate(in, in.cause, fmt.Sprintf(
		"At %s an instance was taken out of service in response to an EC2 health check indicating it has been terminated or stopped.",
		seconds(g.c.mu.now)))
	g.afterLoss(counted, in.cause)
}

// afterLoss replaces what was lost, or lets desired fall with it.
func (g *group) afterLoss(counted bool, cause Cause) {
	if counted && !g.faults.replaces() && g.desired > g.active()+g.outstanding() {
		g.setDesired(max(g.desired-1, g.min), "the loss of an instance")
	} else {
		g.why = fmt.Sprintf("At %s an instance was launched in response to an unhealthy instance needing to be replaced.", seconds(g.c.mu.now))
	}
	g.converge(cause)
}

// victim is whom the group takes when it has one too many, nil for nobody.
// ok narrows the choice; nil takes any.
func (g *group) victim(ok func(*instance) bool) *instance {
	var list []*instance
	for _, in := range g.instances {
		if in.counts() && !in.shielded() && (ok == nil || ok(in)) {
			list = append(list, in)
		}
	}
	if len(list) == 0 {
		return nil
	}
	switch g.faults.Victim {
	case BusyFirst:
		if i := slices.IndexFunc(list, g.busy); i >= 0 {
			return list[i]
		}
	case RandomVictim:
		return list[g.rng.IntN(len(list))]
	case Oldest:
	default:
		return slices.MaxFunc(list, func(a, b *instance) int { return g.byInstances(a.zone, b.zone) })
	}
	return list[0]
}

func (g *group) busy(in *instance) bool { return g.c.Busy != nil && g.c.Busy(in.id) }
