package asgstub

import (
	"fmt"
	"slices"
)

// Rebalancing launches first and terminates then, so a group has one instance more
// than desired for a while:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-benefits.html

// planBalance plans to balance the zones if they need it.
func (g *group) planBalance() {
	if !g.faults.AZRebalance || g.rebalancing || g.isSuspended(procAZRebalance) || g.imbalance() < 2 {
		return
	}
	g.rebalancing = true
	g.c.after(balanceAfter, func() {
		g.rebalancing = false
		if g.imbalance() >= 2 && !g.isSuspended(procAZRebalance) {
			g.balance()
		}
	})
}

// imbalance is by how many instances the zones differ.
func (g *group) imbalance() int {
	return g.inZone(g.fullest()) - g.inZone(g.nextZone())
}

func (g *group) fullest() string { return slices.MaxFunc(g.zones, g.byInstances) }

// balance moves one instance from the fullest zone to the emptiest. While the group
// may not terminate it only launches.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/understand-how-suspending-processes-affects-other-processes.html
func (g *group) balance() {
	if g.deleted || g.isSuspended(procLaunch) {
		return
	}
	from := g.fullest()
	g.replaceFirst(AZRebalanced, fmt.Sprintf("At %s instances were launched to balance instances in zones %s with other zones.",
		seconds(g.c.mu.now), from), func() *instance {
		if g.isSuspended(procTerminate) {
			return nil
		}
		return g.victim(func(in *instance) bool { return in.zone == from && in.state == InService })
	})
}

// replaceFirst launches an instance and, once it is in service, ends the one that
// pick chooses then; nil ends none, and the group has one too many.
func (g *group) replaceFirst(cause Cause, why string, pick func() *instance) {
	zone, spot := g.nextZone(), g.spotNext()
	if fault := g.faults.launch(g.c.mu.now, zone, spot, g.rng); fault != nil {
		g.failActivity(fault, why)
		return
	}
	g.surplus++
	in := g.launch(zone, spot, why)
	in.whenUp = func() {
		g.surplus--
		if victim := pick(); victim != nil && g.active() > g.desired+g.surplus {
			g.terminate(victim, cause, fmt.Sprintf("At %s an instance was taken out of service in response to %s. At %s instance %s was selected for termination.",
				seconds(g.c.mu.now), cause.text(), seconds(g.c.mu.now), victim.id))
		}
		g.converge(cause)
	}
}

func (c Cause) text() string {
	switch c {
	case AZRebalanced:
		return "a difference between the number of instances in zones"
	case Rebalance:
		return "an EC2 instance rebalance recommendation"
	default:
		return "a user request"
	}
}
