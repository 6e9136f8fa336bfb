package router_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// fleet is the engine told again in the plainest way: it looks at every machine
// for every question. What the engine does is compared with it.
type fleet struct {
	now      time.Time
	pools    []spillway.Pool // any order
	machines map[spillway.MachineID]*twin
	queue    map[spillway.JobClass]*line
	wanted   [][]router.ClaimWant // claims under way
	attempts map[spillway.JobID]int
	released map[spillway.JobClass][]spillway.JobID // jobs to be claimed again
}

// twin is a machine.
type twin struct {
	id                                 spillway.MachineID
	pool                               string
	capacity, busy                     int
	connected, draining, stopped, full bool
	heardAt, lastUsed                  time.Time
	foreign                            int
	holds                              map[router.JobRef]*twinHold
	refused                            map[spillway.JobClass]time.Time // until when
}

type twinHold struct {
	counted bool // in busy
	begun   bool
	due     time.Time // zero once accepted
}

// line is a class in the queue as the engine knows it.
type line struct {
	requirement spillway.Requirement
	pending     int
}

func (f *fleet) pool(name string) *spillway.Pool {
	for i := range f.pools {
		if f.pools[i].Name == name {
			return &f.pools[i]
		}
	}
	return nil
}

// places is what m has free; 0 for one that may not be given jobs.
func (f *fleet) places(m *twin) int {
	p := f.pool(m.pool)
	if p == nil || !m.connected || m.draining || m.stopped || m.full || f.now.Sub(m.heardAt) >= spillway.SilentAfter {
		return 0
	}
	inUse := m.busy
	for _, h := range m.holds {
		if !h.counted {
			inUse++
		}
	}
	return max(0, min(m.capacity, p.CapacityPerInstance)-max(inUse, len(m.holds)))
}

func (f *fleet) refuses(m *twin, class spillway.JobClass) bool { return f.now.Before(m.refused[class]) }

// room is a pool's free and unreserved places, and how many of its free places a
// class can't have because their machines have just refused it.
func (f *fleet) room(pool string, class spillway.JobClass) (free, refused int) {
	for _, m := range f.machines {
		if m.pool == pool {
			free += f.places(m)
			if f.refuses(m, class) {
				refused += f.places(m)
			}
		}
	}
	return free - f.underway(func(w router.ClaimWant) bool { return w.Pool == pool }), refused
}

// takesMore reports whether the pool could be promised one more job of the class.
func (f *fleet) takesMore(p *spillway.Pool, class spillway.JobClass) bool {
	if !router.Match(&p.Capability, &f.queue[class].requirement).OK() {
		return false
	}
	free, refused := f.room(p.Name, class)
	return free > refused
}

func (f *fleet) underway(counts func(router.ClaimWant) bool) (n int) {
	for _, claim := range f.wanted {
		for _, w := range claim {
			if counts(w) {
				n += w.N
			}
		}
	}
	return n
}

// waiting is the jobs of a class that nothing has been promised to.
func (f *fleet) waiting(class spillway.JobClass) int {
	return f.queue[class].pending - f.underway(func(w router.ClaimWant) bool { return w.Class == class })
}

// best is the machine of a pool that must get the next job of a class.
func (f *fleet) best(pool string, class spillway.JobClass) *twin {
	var best *twin
	for _, m := range f.sorted() {
		if m.pool != pool || f.places(m) == 0 || f.refuses(m, class) {
			continue
		}
		if best == nil || m.lastUsed.After(best.lastUsed) {
			best = m
		}
	}
	return best
}

func (f *fleet) sorted() []*twin {
	return slices.SortedFunc(maps.Values(f.machines), func(a, b *twin) int { return cmp.Compare(a.id, b.id) })
}

// refs lists what is on m, by job id.
func (m *twin) refs() []router.JobRef {
	return slices.SortedFunc(maps.Keys(m.holds), func(a, b router.JobRef) int { return strings.Compare(string(a.ID), string(b.ID)) })
}

// all lists what is on any machine, in a fixed order.
func (f *fleet) all() (list []placed) {
	for _, m := range f.sorted() {
		for _, ref := range m.refs() {
			list = append(list, placed{m, ref})
		}
	}
	return list
}

type placed struct {
	on  *twin
	ref router.JobRef
}

// end strikes a job from m, whose machine says that its place is free.
func (m *twin) end(ref router.JobRef) {
	if m.holds[ref].counted {
		m.busy--
	}
	delete(m.holds, ref)
}

// drawSubset draws some of the refs.
func drawSubset(t *rapid.T, refs []router.JobRef) []router.JobRef {
	var some []router.JobRef
	for _, ref := range refs {
		if rapid.Bool().Draw(t, "listed "+string(ref.ID)) {
			some = append(some, ref)
		}
	}
	return some
}

var propertyTags = []string{"a", "b"}

func drawPools(t *rapid.T) []spillway.Pool {
	var pools []spillway.Pool
	for _, name := range []string{"p0", "p1", "p2"} {
		if len(pools) > 0 && rapid.IntRange(0, 7).Draw(t, "without "+name) == 0 {
			continue
		}
		tags := propertyTags[:rapid.IntRange(1, 2).Draw(t, name+" tags")]
		pools = append(pools, newPool(name, rapid.IntRange(0, 2).Draw(t, name+" priority"), rapid.IntRange(1, 3).Draw(t, name+" capacity"), tags...))
	}
	return pools
}

func requirements() []spillway.Requirement {
	return []spillway.Requirement{{}, {Tags: propertyTags[:1]}, {Tags: propertyTags[1:]}}
}
