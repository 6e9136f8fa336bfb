package router

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// Plan says what to claim now: jobs for free places, as demand.Attribute places
// them when it knows of nothing but those, the most urgent classes first. What it
// wants is reserved until Claimed answers for it, so that a second Plan wants only
// what is left.
func (e *Engine) Plan(now time.Time) []ClaimWant {
	e.advance(now)
	if !e.dirty {
		return nil
	}
	e.dirty = false
	berths := e.berths()
	if len(berths) == 0 {
		return nil
	}
	classes, berths := e.waitingFor(berths)
	if len(classes) == 0 {
		return nil
	}
	var wants []ClaimWant
	for _, f := range attribute(classes, berths) {
		c, p := classes[f.class], berths[f.berth].pool
		c.wanted += f.jobs
		e.reserved[p.Name] += f.jobs
		wants = want(wants, c, p, f.jobs)
	}
	return wants
}

// want adds n jobs of c for p, to the want of that kind if there is one. Wants of
// one class follow each other.
func want(wants []ClaimWant, c *class, p *pool, n int) []ClaimWant {
	for i := len(wants) - 1; i >= 0 && wants[i].Class == c.id; i-- {
		if wants[i].Pool == p.Name {
			wants[i].N += n
			return wants
		}
	}
	return append(wants, ClaimWant{Class: c.id, Pool: p.Name, N: n})
}

// berth is free places of one pool that are alike: those of a machine that has
// refused something lately, or those of all the others.
type berth struct {
	pool   *pool
	pauses map[spillway.JobClass]*refusal
	free   int // jobs
	number int // among all of a plan
}

// pausedFor reports whether b's machine has just refused c.
func (b *berth) pausedFor(c *class) bool {
	_, paused := b.pauses[c.id]
	return paused
}

// holds reports whether a job of c can have one of b's places.
func (b *berth) holds(c *class) bool { return !b.pausedFor(c) && c.takenBy(b.pool) }

// berths lists the places that a new claim may want. It looks at each pool and at
// each machine that has refused something lately, not at every machine.
//
// What is reserved goes off a pool's unpaused places first: whatever it was
// reserved for can have those, so no class is promised a place twice.
func (e *Engine) berths() []berth {
	var list []berth
	paused := e.pausedMachines()
	for _, p := range e.pools {
		reserved := e.reserved[p.Name]
		add := func(free int, pauses map[spillway.JobClass]*refusal) {
			taken := min(reserved, free)
			reserved -= taken
			if free > taken {
				list = append(list, berth{pool: p, pauses: pauses, free: free - taken, number: len(list)})
			}
		}
		unpaused := p.places
		for _, m := range paused[p] {
			unpaused -= m.places
		}
		add(unpaused, nil)
		for _, m := range paused[p] {
			add(m.places, m.refusals)
		}
	}
	return list
}

// pausedMachines lists, by pool, the machines with a free place that have refused
// something lately.
func (e *Engine) pausedMachines() map[*pool][]*machine {
	if e.refusals.first == nil {
		return nil
	}
	list := make(map[*pool][]*machine)
	seen := make(map[*machine]bool)
	for r := range e.refusals.all() {
		if m := r.machine; m.places > 0 && !seen[m] {
			seen[m] = true
			list[m.pool] = append(list[m.pool], m)
		}
	}
	return list
}

// waitingFor lists the classes with a job that one of the berths can hold, the most
// urgent first, and those berths that can hold one: with many pools, few classes
// wait at a time, and most free places are of no use to them.
func (e *Engine) waitingFor(berths []berth) ([]*class, []berth) {
	first := e.firstBerths(berths)
	useful := make([]bool, len(berths))
	var list []*class
	for _, c := range e.classes {
		if c.available() == 0 {
			continue
		}
		held := false
		for _, p := range c.takers {
			for i := first[p]; i < first[p+1]; i++ {
				if !berths[i].pausedFor(c) {
					useful[i], held = true, true
				}
			}
		}
		if held {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *class) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), a.oldest.Compare(b.oldest), cmp.Compare(a.id, b.id))
	})
	return list, slices.DeleteFunc(berths, func(b berth) bool { return !useful[b.number] })
}

// firstBerths returns where the berths of each pool begin, by the pool's index; they
// end where the next pool's begin. Berths are in the order of pools.
func (e *Engine) firstBerths(berths []berth) []int {
	first := make([]int, len(e.pools)+1)
	for i := range berths {
		first[berths[i].pool.index+1]++
	}
	for p := range e.pools {
		first[p+1] += first[p]
	}
	return first
}

// flow is jobs of a class that go to a berth, both by index.
type flow struct {
	class, berth, jobs int
}

// attribute asks demand.Attribute who gets which place. To it, capabilities and
// requirements are opaque but for their tags, by which it knows whom not to ask
// about: only the matcher reads the rest. Here each stands for one berth and one
// class by its index, so that the matcher can answer from what is known already, and
// by what nobody else knows: who has just refused what.
func attribute(classes []*class, berths []berth) []flow {
	entries := make([]demand.Class, len(classes))
	for i, c := range classes {
		entries[i] = demand.Class{
			ID:          c.id,
			Requirement: spillway.Requirement{Tags: c.requirement.Tags, Project: int64(i)},
			Priority:    c.priority,
			Pending:     c.available(),
			Oldest:      c.oldest,
		}
	}
	supplies := make([]demand.Supply, len(berths))
	index := make(map[string]int, len(berths))
	for i, b := range berths {
		supplies[i] = demand.Supply{
			Pool:       b.pool.Name,
			Capability: spillway.Capability{Tags: b.pool.Capability.Tags, RunUntagged: b.pool.Capability.RunUntagged, Projects: []int64{int64(i)}},
			Priority:   b.pool.Priority,
			CostPerJob: b.pool.CostPerJob,
			Free:       b.free,
		}
		if b.pauses != nil {
			supplies[i].Pool = fmt.Sprintf("%s/%d", b.pool.Name, b.number) // sorts after its pool's others
		}
		index[supplies[i].Pool] = i
	}
	match := func(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string) {
		return berths[c.Projects[0]].holds(classes[r.Project]), ""
	}
	given := demand.Attribute(entries, supplies, match).Flows
	flows := make([]flow, len(given))
	for i, f := range given {
		flows[i] = flow{class: f.Class, berth: index[f.Pool], jobs: f.Jobs}
	}
	return flows
}
