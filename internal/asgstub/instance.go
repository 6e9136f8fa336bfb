package asgstub

import (
	"slices"
	"time"
)

// The lifecycle states:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-lifecycle.html
const (
	Pending            = "Pending"
	PendingWait        = "Pending:Wait"
	PendingProceed     = "Pending:Proceed"
	InService          = "InService"
	TerminatingNow     = "Terminating"
	TerminatingWait    = "Terminating:Wait"
	TerminatingProceed = "Terminating:Proceed"
	Terminated         = "Terminated"
	Detaching          = "Detaching"
	Detached           = "Detached"
	EnteringStandby    = "EnteringStandby"
	Standby            = "Standby"
	WarmedPending      = "Warmed:Pending"
	WarmedStopped      = "Warmed:Stopped"
	WarmedRunning      = "Warmed:Running"
	WarmedHibernated   = "Warmed:Hibernated"
)

// The states of an EC2 instance:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
const (
	ec2Pending      = "pending"
	ec2Running      = "running"
	ec2ShuttingDown = "shutting-down"
	ec2Terminated   = "terminated"
	ec2Stopped      = "stopped"
)

// instance is one instance, as Auto Scaling and as EC2 see it.
type instance struct {
	id       string
	g        *group
	zone     string
	kind     string // instance type
	spot     bool
	launched time.Time
	tags     []Tag

	state     string
	gen       int // raised with every state
	ec2       string
	ready     bool // its runner registered, or would have
	readyAt   time.Time
	registers bool
	protected bool
	unhealthy bool
	waits     []*wait   // for hooks
	work      *activity // under way
	ended     time.Time // shut down; zero = it runs
	left      time.Time // not of the group any more
	cause     Cause
	taken     time.Time // when EC2 takes it; zero = it does not
	refreshed int       // by which refresh it was made
	whenUp    func()    // when it is in service or will not be; nil = nothing
}

// toState moves on to a state; what was planned for the last one is void.
func (in *instance) toState(state string) {
	in.state = state
	in.gen++
}

// counts reports whether the instance counts towards desired.
func (in *instance) counts() bool {
	switch in.state {
	case Pending, PendingWait, PendingProceed, InService:
		return true
	}
	return false
}

func (in *instance) terminating() bool {
	switch in.state {
	case TerminatingNow, TerminatingWait, TerminatingProceed:
		return true
	}
	return false
}

// runs reports whether it is there and has not been shut down.
func (in *instance) runs() bool { return in.ended.IsZero() }

// shielded reports whether the group may not choose it. Protection starts when
// the instance is in service:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-instance-protection.html
func (in *instance) shielded() bool { return in.protected && in.state == InService }

func (in *instance) visible() bool {
	return !in.g.c.mu.now.Before(in.launched.Add(in.g.faults.VisibleAfter))
}

// newInstance is the next instance of the group, launched now.
func (g *group) newInstance(zone string, spot bool) *instance {
	g.launches++
	n := g.launches
	never := g.faults.NeverRegister
	in := &instance{
		id: g.instanceID(n), g: g, zone: zone, kind: g.instanceType(), spot: spot, launched: g.c.mu.now,
		state: Pending, ec2: ec2Pending,
	}
	in.registers = !never.All && (never.Every == 0 || n%never.Every != 0) && !slices.Contains(never.IDs, in.id)
	for _, t := range g.tags {
		if t.PropagateAtLaunch {
			in.tags = append(in.tags, t)
		}
	}
	in.tags = append(in.tags, Tag{Key: "aws:autoscaling:groupName", Value: g.name})
	g.c.mu.instances[in.id] = in
	return in
}

func (g *group) instanceType() string {
	if g.cfg.InstanceType != "" {
		return g.cfg.InstanceType
	}
	return "m5.large"
}

// addRunning adds an instance that has been in service for long.
func (g *group) addRunning() {
	in := g.newInstance(g.nextZone(), g.spotNext())
	in.registers = !slices.Contains(g.faults.NeverRegister.IDs, in.id)
	in.ready, in.readyAt, in.ec2, in.protected = true, g.c.mu.now, ec2Running, g.protectNew
	in.launched = g.c.mu.now.Add(-g.faults.VisibleAfter)
	in.toState(InService)
	g.instances = append(g.instances, in)
}

// launch starts an instance, or takes one out of the warm pool.
func (g *group) launch(zone string, spot bool, cause string) *instance {
	in := g.takeWarm()
	if in == nil {
		in = g.newInstance(zone, spot)
		g.c.tell(Change{Kind: Launched, Group: g.name, ID: in.id})
	}
	in.refreshed = g.refreshNo()
	g.instances = append(g.instances, in)
	in.work = g.startActivity("Launching a new EC2 instance: "+in.id, cause, in.zone)
	in.work.status, in.work.progress = statusPreInService, 30
	g.boot(in)
	return in
}

// boot plans what becomes of an instance that was started now.
func (g *group) boot(in *instance) {
	c := g.c
	boot := g.faults.Boot.draw(g.rng)
	in.readyAt = c.mu.now.Add(boot)
	c.afterIn(in, min(g.faults.Pending, boot), func() { g.running(in) })
	c.after(boot, func() { g.booted(in) })
}

// booted is when the instance's runner registers, or would have.
func (g *group) booted(in *instance) {
	if in.ready || !in.runs() {
		return
	}
	in.ready = true
	g.c.tell(Change{Kind: Ready, Group: g.name, ID: in.id, Registers: in.registers})
}

// running is when EC2 says that the instance runs.
func (g *group) running(in *instance) {
	in.ec2 = ec2Running
	if !g.hold(in, Launching, PendingWait) {
		g.inService(in)
	}
}

func (g *group) inService(in *instance) {
	in.toState(InService)
	in.protected = g.protectNew
	g.c.finish(in.work, statusSuccessful)
	g.c.event(in, eventLaunched)
	in.up()
	g.settled()
}

// up plans whenUp for now, so that it does not happen in the middle of something.
func (in *instance) up() {
	if do := in.whenUp; do != nil {
		in.whenUp = nil
		in.g.c.after(0, do)
	}
}

// drop takes the instance out of the group.
func (g *group) drop(in *instance, state string) {
	in.toState(state)
	in.left = g.c.mu.now
	same := func(o *instance) bool { return o == in }
	g.instances = slices.DeleteFunc(g.instances, same)
	g.warm = slices.DeleteFunc(g.warm, same)
	g.gone = append(g.gone, in)
	if extra := len(g.gone) - maxGone; extra > 0 {
		for _, old := range g.gone[:extra] {
			delete(g.c.mu.instances, old.id)
		}
		g.gone = slices.Delete(g.gone, 0, extra)
	}
}
