package router

import (
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
	e.dirty, e.ripensAt, e.remote.wanted = false, time.Time{}, false
	berths := e.berths()
	if len(berths) == 0 {
		return nil
	}
	classes, berths := e.waitingFor(berths)
	if len(classes) == 0 {
		return nil
	}
	var wants wants
	want := func(c *class, p *pool, jobs int) {
		c.wanted += jobs
		e.reserved[p.Name] += jobs
		wants.add(c.id, p.Name, jobs)
	}
	flows := e.oneOvertakes(e.attribute(classes, berths), classes, berths)
	for _, f := range flows {
		want(classes[f.class], berths[f.berth].pool, f.jobs)
	}
	e.wantOvertaken(wants.list, want)
	return wants.list
}

// wants collects what a plan wants, in the order in which it first comes.
type wants struct {
	list []ClaimWant
	at   map[pairing]int // in list; made when there are many
}

// pairing is what one want is about.
type pairing struct {
	class spillway.JobClass
	pool  string
}

// manyWants is how many are looked through without an index.
const manyWants = 8

func (w *wants) add(class spillway.JobClass, pool string, jobs int) {
	for i := range w.list[:min(len(w.list), manyWants)] {
		if w.list[i].Class == class && w.list[i].Pool == pool {
			w.list[i].N += jobs
			return
		}
	}
	if i, known := w.at[pairing{class, pool}]; known {
		w.list[i].N += jobs
		return
	}
	if len(w.list) >= manyWants {
		if w.at == nil {
			w.at = make(map[pairing]int)
		}
		w.at[pairing{class, pool}] = len(w.list)
	}
	w.list = append(w.list, ClaimWant{Class: class, Pool: pool, N: jobs})
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

// waitingFor lists the classes with a job that one of the berths can hold, in no order,
// and those berths that can hold one: with many pools, few classes wait at a time, and
// most free places are of no use to them.
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
// about: only the matcher reads the rest. Here each stands for one berth (or what a pool
// has ahead) and one turn by its index, so that the matcher can answer from what is
// known already, and by what nobody else knows: who has just refused what.
func (e *Engine) attribute(classes []*class, berths []berth) []flow {
	first := e.firstBerths(berths)
	ahead, spills, more := e.ahead(classes, first)
	turns := e.split(classes, e.line(classes, first, berths, more))
	entries := make([]demand.Class, len(turns))
	for i := range turns {
		entries[i] = e.entry(&turns[i], classes, spills)
		entries[i].Requirement.Project = int64(i)
	}
	supplies, index := supplies(berths, ahead)
	match := func(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string) {
		t := &turns[r.Project]
		if n := c.Projects[0]; n < 0 {
			p := e.pools[-1-n]
			return classes[t.class].takenBy(p) && e.admits(p, t), ""
		}
		b := &berths[c.Projects[0]]
		return b.holds(classes[t.class]) && e.admits(b.pool, t), ""
	}
	given := demand.Attribute(entries, supplies, match).Flows
	flows := make([]flow, 0, len(given))
	for _, f := range given {
		class := turns[f.Class].class
		if i, here := index[f.Pool]; here {
			flows = append(flows, flow{class: class, berth: i, jobs: f.Jobs})
		} else {
			e.noteHeld(classes[class], spills)
		}
	}
	return flows
}

// entry is a turn as demand.Attribute knows it.
func (e *Engine) entry(t *turn, classes []*class, spills []time.Duration) demand.Class {
	c := classes[t.class]
	return demand.Class{
		ID:          t.id(c),
		Requirement: spillway.Requirement{Tags: c.requirement.Tags},
		Priority:    c.priority,
		Pending:     t.jobs,
		Oldest:      c.oldest,
		Share:       t.share,
		Waited:      t.ages(e.now, c, spills),
	}
}

// supplies lists the berths and what is ahead; index says which of them are berths.
func supplies(berths []berth, ahead []demand.Supply) (list []demand.Supply, index map[string]int) {
	list = make([]demand.Supply, len(berths), len(berths)+len(ahead))
	index = make(map[string]int, len(berths))
	for i := range berths {
		b := &berths[i]
		list[i] = demand.Supply{
			Pool:       b.pool.Name,
			Capability: opaque(b.pool, i),
			Alike:      i + 1,
			Priority:   b.pool.Priority,
			CostPerJob: b.pool.CostPerJob,
			Free:       b.free,
			Fair:       b.pool.fair(),
		}
		if b.pauses != nil {
			list[i].Pool = fmt.Sprintf("%s/%d", b.pool.Name, b.number) // sorts after its pool's others
		}
		index[list[i].Pool] = i
	}
	return append(list, ahead...), index
}
