package policy

import "fmt"

// minimum raises to our minimum and the group's: below its own, no group can go.
func (c *calculation) minimum() {
	lowest, whose := c.p.Min, "the pool's"
	if c.groupKnown() && c.o.GroupMin > lowest {
		lowest, whose = c.o.GroupMin, "the group's"
	}
	if c.n < lowest {
		c.raised = true
		c.to(lowest, "bounds", ReasonMin, "%s minimum is %d", whose, lowest)
	}
}

// maximum lowers to our maximum and the group's. A group whose minimum is above
// our maximum keeps its minimum, whatever we say: asking for less would be refused
// for ever.
func (c *calculation) maximum() {
	highest, rule := c.most()
	if c.n <= highest {
		return
	}
	if c.boundsConflict() {
		c.restrain(max(highest, c.o.GroupMin), "bounds", ReasonConflict,
			"the group's minimum %d is above the maximum %d", c.o.GroupMin, highest)
		return
	}
	whose := "the pool's"
	if rule == ReasonProviderMax {
		whose = "the group's"
	}
	c.restrain(highest, "bounds", rule, "%s maximum is %d", whose, highest)
}

// most is the maximum that no launch of ours may exceed, and whose it is.
func (c *calculation) most() (instances int, rule Reason) {
	if c.groupKnown() && c.o.GroupMax < c.p.Max {
		return c.o.GroupMax, ReasonProviderMax
	}
	return c.p.Max, ReasonMax
}

func (c *calculation) boundsConflict() bool {
	highest, _ := c.most()
	return c.groupKnown() && c.o.GroupMin > highest
}

func (c *calculation) groupKnown() bool { return c.o.GroupAge != Absent }

// launchRoom bounds launches by what bills already: instances that drain, leave or
// end are of no use and still count for max.
func (c *calculation) launchRoom() {
	highest, rule := c.most()
	c.launchAtMost(max(0, highest-c.o.billed()), "bounds", rule,
		"%d instances bill already, %d of them of no more use, and the maximum is %d",
		c.o.billed(), c.o.Leaving+c.o.Ending, highest)
}

// launchClamp lets only a probe launch after a failure.
func (c *calculation) launchClamp() {
	if c.o.LaunchClamp < 0 {
		return
	}
	rule, after := c.probing()
	c.launchAtMost(c.o.LaunchClamp, "probe", rule, "after %s %d may be launched to try", after, c.o.LaunchClamp)
}

// probing is why only a probe may launch.
func (c *calculation) probing() (rule Reason, after string) {
	if !c.o.CooledOff.IsZero() {
		return ReasonHoldCooledOff, "the provider's refusal"
	}
	return ReasonHoldBreaker, "boots that failed"
}

// overflow explains why jobs wait that this pool could take and was not given:
// attribution has counted its room already, so no other step sees them.
func (c *calculation) overflow() {
	if c.o.Overflow == 0 || c.limit != "" || c.surplus() > 0 {
		return
	}
	rule, why := c.launchHold()
	if highest, whose := c.most(); rule == "" && c.o.billed()+c.launch() >= highest {
		rule, why = whose, fmt.Sprintf("the maximum is %d", highest)
	}
	if clamp := c.o.LaunchClamp; rule == "" && clamp >= 0 && c.launch() >= clamp {
		var after string
		rule, after = c.probing()
		why = fmt.Sprintf("after %s %d may be launched to try", after, clamp)
	}
	if rule == "" {
		return // the room was counted a moment ago; the next look gives them to somebody
	}
	c.limit = rule
	c.note(c.n, "overflow", "%d more jobs wait that no pool has room for: %s", c.o.Overflow, why)
}

// groupTarget is what the group's desired number shall be raised to; the number
// that it has where nothing is to be raised.
func (c *calculation) groupTarget(launch int) int {
	switch {
	case launch > 0:
		return c.standing() + launch
	case c.mayAssert():
		return max(c.o.GroupDesired, c.held())
	default:
		return c.o.GroupDesired
	}
}

// held is the number that the group had by us, as far as instances for it still
// exist. Somebody who lowers it makes the cloud choose whom to end. Bounding it by
// what the group once had keeps a machine that isn't the group's from raising it
// again and again.
func (c *calculation) held() int {
	if !c.state.GroupSeen {
		return c.standing()
	}
	return min(c.standing(), c.state.Held)
}

// standing is the instances that the group's number stands for. One that is not
// listed, any more or yet, counts only as far as the number has it: whoever ended it
// and lowered the number with it took back what was there, and made nobody choose.
// Asking for it again would launch another for no job.
func (c *calculation) standing() int {
	n := c.o.inGroup()
	return max(n-c.o.Absent, min(n, c.o.GroupDesired))
}

// drifted reports whether somebody else lowered the group below what exists.
func (c *calculation) drifted() bool {
	return c.o.GroupAge == Whole && c.o.GroupDesired < c.held()
}

// mayAssert reports whether the number that we hold may be written again now.
func (c *calculation) mayAssert() bool {
	refused := c.o.NoLaunch == ReasonGroupHalt || c.o.NoLaunch == ReasonThrottled
	return c.drifted() && !c.p.Paused && c.o.ProviderDown == "" && !refused && !c.o.CooledOff.After(c.now) &&
		c.held() <= c.o.GroupMax
}
