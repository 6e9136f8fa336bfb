package policy

import (
	"math"
	"time"
)

// need asks for what the jobs need. Where nothing is known of the jobs nothing
// can be computed, and unknown is not zero: the number stays.
func (c *calculation) need() {
	if c.o.DemandAge == Absent {
		c.jobs, c.limit = c.present, ReasonHoldStale
		c.state.BelowSince = time.Time{}
		c.note(c.present, "need", "%s", c.unknownJobs())
		return
	}
	jobs := c.o.Running + c.o.Attributed
	c.jobs = max(ceilDiv(jobs, c.capacity()), c.o.InUse, c.neededForUnplaced())
	if c.p.Need == Step {
		c.stepNeed(jobs)
		return
	}
	if c.o.Counted {
		c.demand(c.jobs, "a count says %d jobs, %d per instance, %d instances in use", jobs, c.capacity(), c.o.InUse)
		return
	}
	c.demand(c.jobs, "%d running and %d pending jobs, %d per instance, %d instances in use",
		c.o.Running, c.o.Attributed, c.capacity(), c.o.InUse)
}

// neededForUnplaced is the instances for jobs that have no place although the total
// would suffice: an instance that is nearly used up has fewer places than others.
func (c *calculation) neededForUnplaced() int {
	if c.o.Unplaced == 0 {
		return 0
	}
	return c.present + ceilDiv(c.o.Unplaced, c.capacity())
}

// demand makes n the number that the jobs ask for. It is traced even when it
// changes nothing: it is what all else is judged by.
func (c *calculation) demand(n int, why string, args ...any) {
	switch {
	case n > c.present:
		c.out = ReasonDemand
	case n < c.present:
		c.in = ReasonIdle
	}
	c.note(n, "need", why, args...)
}

// stepNeed is the alarm-and-Lambda rule: a step out when all places are taken,
// one step in when the places that would remain are not all taken either, and
// were not for long. What boots counts, or each tick of a boot would add a step.
func (c *calculation) stepNeed(jobs int) {
	places, step := c.present*c.capacity(), max(1, c.p.Step)
	if jobs > 0 && jobs >= places {
		c.state.BelowSince = time.Time{}
		c.demand(c.present+step, "%d jobs%s fill all %d places: a step of %d", jobs, c.counted(), places, step)
		return
	}
	spare := c.stepSpare(jobs, step)
	if spare == 0 || c.o.DemandAge != Whole { // a lower bound is no proof of being below
		c.state.BelowSince = time.Time{}
		c.demand(c.present, "%d jobs%s on %d places: enough, and not too much", jobs, c.counted(), places)
		return
	}
	if c.state.BelowSince.IsZero() {
		c.state.BelowSince = c.now
	}
	since := c.state.BelowSince
	if jobs > 0 && c.state.LastInAt.After(since) {
		since = c.state.LastInAt // each step waits anew, unless there is nothing to do at all
	}
	if waited := c.now.Sub(since); waited < c.p.StepWait {
		c.limit = ReasonStabilization
		c.demand(c.present, "%d jobs%s on %d places: %d may go when it has been so for %s, not %s",
			jobs, c.counted(), places, spare, c.p.StepWait, waited)
		return
	}
	c.demand(c.present-spare, "%d jobs%s on %d places for %s: %d may go", jobs, c.counted(), places, c.p.StepWait, spare)
}

// counted says in a trace where the number of jobs is from.
func (c *calculation) counted() string {
	if c.o.Counted {
		return " (by a count)"
	}
	return ""
}

// stepSpare is how many instances may go at once: with nothing to do all, else at
// most a step, such that a place stays free. An instance in use stays.
func (c *calculation) stepSpare(jobs, step int) int {
	if jobs == 0 {
		return c.present - c.o.InUse
	}
	keep := max(jobs/c.capacity()+1, c.o.InUse)
	return max(0, min(step, c.present-keep))
}

// headroom keeps instances free on top. The step rule has no number that the jobs
// need, only a direction, so there it is on top of what is in use.
func (c *calculation) headroom() {
	idle := c.idleInstances()
	if idle == 0 || c.o.DemandAge == Absent {
		return
	}
	n := c.n + idle
	if c.p.Need == Step {
		n = max(c.n, c.o.InUse+idle)
	}
	c.to(n, "headroom", ReasonHeadroom, "%d instances are kept free (idle_count %d, idle_factor %g of %d in use)",
		idle, c.p.IdleCount, c.p.IdleFactor, c.o.InUse)
}

// floor keeps what a count of the jobs asks for, as far as it is there: a number
// without the jobs behind it is no reason to launch. So are jobs of which nobody knows
// whether they still wait.
func (c *calculation) floor() {
	least := min(c.present, ceilDiv(c.o.Floor, c.capacity()))
	if c.n < least {
		c.restrain(least, "floor", ReasonFloor, "a count says %d jobs", c.o.Floor)
	}
	if c.o.Unsettled == 0 {
		return
	}
	least = min(c.present, ceilDiv(c.o.Running+c.o.Attributed+c.o.Unsettled, c.capacity()))
	if c.n < least {
		c.restrain(least, "floor", ReasonDemand, "%d more jobs wait still, or have just begun", c.o.Unsettled)
	}
}

// idleInstances rounds the ratio up, but not for an error of the last bits: 10 %
// of 30 is 3.
func (c *calculation) idleInstances() int {
	const lastBits = 1e-9
	byFactor := 0
	if f := c.p.IdleFactor * float64(c.o.InUse); f > 0 {
		byFactor = int(math.Ceil(min(f, maxIdle) - lastBits))
	}
	return max(0, min(c.p.IdleCount, maxIdle), byFactor)
}

// maxIdle keeps an absurd setting from overflowing [instances].
const maxIdle = 1 << 20

// capacity is jobs per instance, at least one.
func (c *calculation) capacity() int { return max(1, c.p.CapacityPerInstance) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
