package policy

// removals splits what is too much: what was asked for and isn't filled is taken
// back first, since nobody can be hurt by it; the rest is removed as far as facts
// and limits allow.
func (c *calculation) removals() {
	withdraw := min(c.surplus(), c.o.Withdrawable)
	c.remove = c.surplus() - withdraw
	atMost := func(limit int, step string, rule Reason, why string, args ...any) {
		if c.remove > limit {
			c.remove = limit
			c.restrain(c.present-withdraw-limit, step, rule, why, args...)
		}
	}
	// An instance that boots is no reason to end a ready one that the jobs need.
	atMost(max(0, c.o.Usable-c.jobs), "evidence", ReasonDemand, "the jobs need %d of %d usable instances", c.jobs, c.o.Usable)
	atMost(c.o.Removable, "evidence", ReasonIdleTime, "%d instances are proven idle for %s", c.o.Removable, c.p.IdleTime)
	if limit := c.p.MaxRemovalsPerTick; limit > 0 {
		atMost(limit, "step_limit", ReasonStepLimit, "at most %d are removed per tick", limit)
	}
	if c.p.InPercentBudget > 0 {
		w := c.seen(c.state.Window, c.budgetWindow())
		budget := max(1, w.Present*c.p.InPercentBudget/100)
		atMost(max(0, budget-w.Removed), "step_limit", ReasonStepLimit,
			"%d of a budget of %d (%d %% of %d) were removed in the last %s",
			w.Removed, budget, c.p.InPercentBudget, w.Present, c.budgetWindow())
	}
}
