package policy

import (
	"fmt"
	"time"
)

// holdOut stops what must not grow now. Taking our own drains back asks nothing
// of the provider, so only a pause and not knowing the jobs stop that.
func (c *calculation) holdOut() {
	switch {
	case c.missing() == 0:
	case c.p.Paused:
		c.restrain(c.present, "hold", ReasonHoldPaused, "the pool is paused")
	case c.o.DemandAge == Absent:
		c.restrain(c.present, "hold", ReasonHoldStale, "%s", c.unknownJobs())
	case c.launch() > 0:
		if rule, why := c.launchHold(); rule != "" {
			c.launchAtMost(0, "hold", rule, "%s", why)
		}
	}
}

// launchHold is why nothing may be launched now; empty when something may.
func (c *calculation) launchHold() (rule Reason, why string) {
	switch {
	case c.p.Paused:
		return ReasonHoldPaused, "the pool is paused"
	case c.o.ProviderDown != "":
		return ReasonHoldProvider, "the provider can't be asked: " + c.o.ProviderDown
	case c.o.GroupAge != Whole:
		return ReasonHoldStale, "the last look at the group is too old to write to it"
	case c.o.CooledOff.After(c.now):
		return ReasonHoldCooledOff, "the provider refused: next try at " + clock(c.o.CooledOff)
	case c.o.NoLaunch != "":
		return c.o.NoLaunch, c.o.NoLaunchWhy
	case c.cooling(c.p.Out, c.state.LastOutAt):
		return ReasonCooldown, fmt.Sprintf("cooldown of %s since the last launch at %s", c.p.Out.Cooldown, clock(c.state.LastOutAt))
	default:
		return "", ""
	}
}

// holdIn stops what must not shrink now.
func (c *calculation) holdIn() {
	c.holdUndrainable()
	if c.surplus() == 0 {
		return
	}
	hold := func(rule Reason, why string, args ...any) { c.restrain(c.present, "hold", rule, why, args...) }
	switch {
	case c.p.Paused:
		hold(ReasonHoldPaused, "the pool is paused")
	case c.o.DemandAge == Absent:
		hold(ReasonHoldStale, "%s", c.unknownJobs())
	case c.o.DemandAge == Partial:
		hold(ReasonHoldPartial, "%s", c.because("only a part of the jobs is known, there may be more"))
	case c.o.ProviderDown != "":
		hold(ReasonHoldProvider, "the provider can't be asked: %s", c.o.ProviderDown)
	case c.o.GroupAge != Whole:
		hold(ReasonHoldStale, "the last look at the group is too old to write to it")
	case c.o.NoScaleIn != "" && c.o.NoScaleIn != ReasonCannotDrain:
		hold(c.o.NoScaleIn, "%s", c.o.NoScaleInWhy)
	case c.mayAssert():
		hold(ReasonDrift, "somebody else set the group from %d to %d: it is set back first", c.held(), c.o.GroupDesired)
	case c.cooling(c.p.In, c.state.LastInAt):
		hold(ReasonCooldown, "cooldown of %s since the last scale-in at %s", c.p.In.Cooldown, clock(c.state.LastInAt))
	}
}

func (c *calculation) unknownJobs() string { return c.because("nothing is known of the jobs") }

// because adds what is wrong with the sources of jobs, as far as anybody can say.
func (c *calculation) because(what string) string {
	if c.o.DemandWhy == "" {
		return what
	}
	return what + ": " + c.o.DemandWhy
}

// holdUndrainable keeps what nothing can drain. What nobody has got yet needs none.
func (c *calculation) holdUndrainable() {
	if keep := c.present - c.o.Withdrawable; c.o.NoScaleIn == ReasonCannotDrain && c.n < keep {
		c.restrain(keep, "hold", ReasonCannotDrain, "%s", c.o.NoScaleInWhy)
	}
}

func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }
