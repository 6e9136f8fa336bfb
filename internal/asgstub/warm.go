package asgstub

import "cmp"

// A warm pool keeps prepared instances:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-warm-pools.html

// warmState is what instances of the pool end up as.
func (g *group) warmState() string {
	switch g.cfg.WarmPool.PoolState {
	case "Running":
		return WarmedRunning
	case "Hibernated":
		return WarmedHibernated
	}
	return WarmedStopped
}

// warmMissing is how many instances the pool lacks. Its size is the prepared
// capacity, the group's max where none is given, less what is in the group, and
// at least its min.
func (g *group) warmMissing() int {
	w := g.cfg.WarmPool
	if w == nil {
		return 0
	}
	return max(w.MinSize, cmp.Or(w.MaxGroupPreparedCapacity, g.max)-g.desired) - len(g.warm)
}

func (g *group) addWarm() *instance {
	in := g.newInstance(g.nextZone(), false)
	in.ec2 = ec2Stopped
	if g.cfg.WarmPool.PoolState == "Running" {
		in.ec2 = ec2Running
	}
	in.toState(WarmedPending)
	g.warm = append(g.warm, in)
	return in
}

// refillWarm launches what the pool lacks.
func (g *group) refillWarm() {
	if g.deleted || g.isSuspended(procLaunch) {
		return
	}
	for range g.warmMissing() {
		in := g.addWarm()
		g.c.tell(Change{Kind: Launched, Group: g.name, ID: in.id})
		in.work = g.startActivity("Launching a new EC2 instance into warm pool: "+in.id,
			"At "+seconds(g.c.mu.now)+" an instance was started in response to a difference between desired and actual capacity of the warm pool.", in.zone)
		g.c.afterIn(in, g.faults.Pending, func() {
			in.toState(g.warmState())
			g.c.finish(in.work, statusSuccessful)
		})
	}
}

// takeWarm takes an instance out of the pool, the oldest first; nil for none.
func (g *group) takeWarm() *instance {
	for i, in := range g.warm {
		if in.state == g.warmState() {
			g.warm = append(g.warm[:i:i], g.warm[i+1:]...)
			in.ec2 = ec2Pending
			in.toState(Pending)
			return in
		}
	}
	return nil
}
