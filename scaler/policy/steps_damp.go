package policy

import "time"

// minBudgetWindow is the shortest window of a percent budget. Without one, a
// budget per decision would be no budget at all at a tick of seconds.
const minBudgetWindow = time.Minute

// sample notes the need for the windows. Unknown is not low: for scale-in, a need
// that is only partly known counts as what is present.
func (c *calculation) sample() {
	s := Sample{At: c.now, Need: c.n, Least: c.n}
	c.state.OutWindow = remember(c.state.OutWindow, s, c.p.Out.Stabilization)
	s.Present = c.present
	if c.o.DemandAge != Whole {
		s.Need = max(c.n, c.present)
	}
	length := c.p.In.Stabilization
	if c.p.InPercentBudget > 0 {
		length = c.budgetWindow()
	}
	c.state.Window = remember(c.state.Window, s, length)
}

func (c *calculation) budgetWindow() time.Duration {
	return max(c.p.In.Stabilization, minBudgetWindow)
}

// tolerance leaves a small excess alone.
func (c *calculation) tolerance() {
	excess := c.surplus()
	if excess > 0 && float64(excess) <= c.p.Tolerance*float64(c.present) {
		c.restrain(c.present, "tolerance", ReasonTolerance, "an excess of %d is within %g of %d", excess, c.p.Tolerance, c.present)
	}
}

// stabilization lets the lowest need of the window count for scale-out and the
// highest for scale-in, so that a need that comes and goes moves nothing.
func (c *calculation) stabilization() {
	if w := c.p.Out.Stabilization; w > 0 && c.missing() > 0 {
		if least := max(c.present, c.seen(c.state.OutWindow, w).Least); least < c.n {
			c.restrain(least, "stabilization", ReasonStabilization, "the lowest need of the last %s", w)
		}
	}
	// A view that isn't whole is held anyway, and for that better reason.
	if w := c.p.In.Stabilization; w > 0 && c.surplus() > 0 && c.o.DemandAge == Whole {
		if most := min(c.present, c.seen(c.state.Window, w).Need); most > c.n {
			c.restrain(most, "stabilization", ReasonStabilization, "the highest need of the last %s", w)
		}
	}
}

// stepLimit bounds what one decision launches or takes away.
func (c *calculation) stepLimit() {
	if limit := c.p.Out.StepLimit; limit > 0 {
		c.launchAtMost(limit, "step_limit", ReasonStepLimit, "at most %d are launched at once", limit)
	}
	if limit := c.p.In.StepLimit; limit > 0 && c.surplus() > limit {
		c.restrain(c.present-limit, "step_limit", ReasonStepLimit, "at most %d go at once", limit)
	}
}

// cooling reports whether a rule's cooldown after its last change lasts still.
func (c *calculation) cooling(r Rules, last time.Time) bool {
	return !last.IsZero() && c.now.Sub(last) < r.Cooldown
}
