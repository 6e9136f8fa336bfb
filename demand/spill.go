package demand

import (
	"cmp"
	"slices"
	"time"
)

// spillTimes returns the times that jobs wait for some pool, ascending; nil if they
// wait for none.
func spillTimes(pools []Supply) []time.Duration {
	var times []time.Duration
	for i := range pools {
		if pools[i].SpillAfter > 0 {
			times = append(times, pools[i].SpillAfter)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// waitedFor returns how many of the pending jobs have waited for at least d, as far
// as that is known: all of them where nothing is.
func (c *Class) waitedFor(d time.Duration) int {
	if c.Waited == nil {
		return c.Pending
	}
	for _, w := range c.Waited {
		if w.For >= d {
			return min(w.Jobs, c.Pending)
		}
	}
	return 0
}

// splitByAge splits each entry into parts whose jobs all wait for the same pools, the
// older ones first, and returns the entry that each part is of. A part's Waited says
// in one element for how long all of it has waited at least.
func splitByAge(classes []Class, spills []time.Duration) (parts []Class, of []int) {
	for i := range classes {
		rest := 0 // jobs in parts so far
		part := func(age time.Duration, jobs int) {
			if jobs <= 0 {
				return
			}
			p := classes[i]
			p.Pending = jobs
			p.Waited = []Waited{{For: age, Jobs: jobs}}
			parts, of = append(parts, p), append(of, i)
			rest += jobs
		}
		for k := len(spills) - 1; k >= 0; k-- {
			part(spills[k], classes[i].waitedFor(spills[k])-rest)
		}
		part(0, classes[i].Pending-rest)
	}
	return parts, of
}

// age is for how long every job of a part has waited at least.
func (c *Class) age() time.Duration { return c.Waited[0].For }

// maxLevels bounds the priorities for whose pools jobs wait one after the other: the
// network is gone through once for each.
const maxLevels = 16

// waitedFor returns those of the capabilities that a part waits for.
func (e *eligibility) waitedFor(set bits64, part *Class, pools []Supply) bits64 {
	waits := newBits(len(e.firstPool))
	for k := range set.all {
		if pools[e.firstPool[k]].SpillAfter > part.age() {
			waits.set(k)
		}
	}
	return waits
}

// findLevels fills levels.
func (e *eligibility) findLevels(pools []Supply) {
	if !e.held {
		return
	}
	awaited := newBits(len(e.firstPool)) // that some group waits for
	for _, waits := range e.waits {
		for i := range waits {
			awaited[i] |= waits[i]
		}
	}
	for k := range awaited.all {
		e.levels = append(e.levels, pools[e.firstPool[k]].Priority)
	}
	slices.Sort(e.levels)
	e.levels = slices.Compact(e.levels)
	e.levels = e.levels[:min(len(e.levels), maxLevels)]
}

// spillTo sets what each group may have once the pools of the levels before this one are
// full: no pool that comes after one that it still waits for.
func (e *eligibility) spillTo(level int, pools []Supply) {
	if level >= len(e.levels) {
		e.takes = e.takenBy(e.members)
		return
	}
	now := make([]bits64, len(e.members))
	for g, set := range e.members {
		now[g] = set
		waits, last := false, 0
		for k := range e.waits[g].all {
			if p := pools[e.firstPool[k]].Priority; p >= e.levels[level] && (!waits || p < last) {
				waits, last = true, p
			}
		}
		if !waits {
			continue
		}
		now[g] = newBits(len(e.firstPool))
		for k := range set.all {
			if pools[e.firstPool[k]].Priority <= last {
				now[g].set(k)
			}
		}
	}
	e.takes = e.takenBy(now)
}

// spill places what found no place in the pools of the levels before this one: whatever
// they have and can come to have is taken. Places that are left are added once more, those
// of each level before the next, so that nobody who waits for a pool is moved past it;
// and within a level in the order of stages and pools.
func (n *network) spill(level int, pools []Supply) {
	n.spillTo(level, pools)
	clear(n.sealed)
	used, added := make([]int, len(pools)), make([]int, len(pools))
	for p := range pools {
		for stage := range Stage(numberOfStage) {
			used[p] += pools[p].places(stage)
		}
		used[p] -= n.room[p]
		n.room[p] = 0
	}
	for from := 0; from < len(pools); {
		to := from
		for to < len(pools) && n.levelOf(&pools[to], level) == n.levelOf(&pools[from], level) {
			to++
		}
		upTo := make([]int, len(pools)) // places up to the stage
		for stage := range Stage(numberOfStage) {
			for p := from; p < to; p++ {
				upTo[p] += pools[p].places(stage)
				if more := upTo[p] - used[p] - added[p]; more > 0 {
					added[p] += more
					n.addPlaces(p, more)
				}
			}
		}
		from = to
	}
}

// levelOf is the level that a pool is of, of those before one; that one if it is of none.
func (e *eligibility) levelOf(p *Supply, before int) int {
	at, _ := slices.BinarySearch(e.levels[:before], p.Priority)
	return at
}

// fold turns an attribution of parts into one of the entries that they are of.
func (a Attribution) fold(of []int) Attribution {
	for i := range a.Flows {
		a.Flows[i].Class = of[a.Flows[i].Class]
	}
	slices.SortStableFunc(a.Flows, func(x, y Flow) int {
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Stage, y.Stage))
	})
	a.Flows = merged(a.Flows, func(x, y *Flow) bool {
		same := x.Class == y.Class && x.Pool == y.Pool && x.Stage == y.Stage
		if same {
			x.Jobs += y.Jobs
		}
		return same
	})
	for i := range a.Unmatched {
		a.Unmatched[i].Class = of[a.Unmatched[i].Class]
	}
	a.Unmatched = merged(a.Unmatched, func(x, y *Unmatched) bool {
		same := x.Class == y.Class
		if same {
			x.Jobs += y.Jobs
		}
		return same
	})
	for i := range a.Overflow {
		a.Overflow[i].Class = of[a.Overflow[i].Class]
	}
	a.Overflow = merged(a.Overflow, func(x, y *Overflow) bool {
		same := x.Class == y.Class
		if same {
			x.Jobs += y.Jobs
		}
		return same
	})
	return a
}

// merged joins neighbours for which join says that it has added the second to the
// first.
func merged[T any](list []T, join func(x, y *T) bool) []T {
	var out []T
	for i := range list {
		if len(out) == 0 || !join(&out[len(out)-1], &list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}
