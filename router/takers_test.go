package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

func drawTags(t *rapid.T, label string) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 3).Draw(t, label)
}

func drawPools(t *rapid.T) []spillway.Pool {
	pools := make([]spillway.Pool, rapid.IntRange(0, 6).Draw(t, "pools"))
	for i := range pools {
		pools[i] = spillway.Pool{Name: fmt.Sprint("p", i), CapacityPerInstance: 1, Capability: spillway.Capability{
			Tags: drawTags(t, "has"), RunUntagged: rapid.Bool().Draw(t, "untagged"), Protected: rapid.Bool().Draw(t, "protected"),
		}}
	}
	return pools
}

func drawCounts(t *rapid.T) []ClassCount {
	counts := make([]ClassCount, rapid.IntRange(0, 6).Draw(t, "classes"))
	for i := range counts {
		r := spillway.Requirement{Tags: drawTags(t, "needs"), Protected: rapid.Bool().Draw(t, "on protected ref")}
		counts[i] = ClassCount{Class: r.Class(), Requirement: r, Pending: rapid.IntRange(1, 3).Draw(t, "pending")}
	}
	return counts
}

// Whom a class is taken by is what asking every pool says, also after a reload.
func TestTakersAreThoseOfAskingEveryPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := NewEngine(drawPools(t), Options{})
		agrees := func() {
			for _, c := range e.classes {
				for _, p := range e.pools {
					require.Equal(t, Match(&p.Capability, &c.requirement).OK(), c.takenBy(p), "%+v in %+v", c.requirement, p.Capability)
				}
			}
		}
		e.SetCounts(drawCounts(t))
		agrees()
		e.SetPools(drawPools(t))
		agrees()
		e.SetCounts(drawCounts(t))
		agrees()
	})
}

// Whom a class has something in common with is forgotten with it: what jobs ask for is
// without end.
func TestNothingIsKeptOfClassesThatAreGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := NewEngine(drawPools(t), Options{})
		for range rapid.IntRange(1, 4).Draw(t, "pictures") {
			e.SetCounts(drawCounts(t))
			if rapid.Bool().Draw(t, "reloaded") {
				e.SetPools(drawPools(t))
			}
			kinds := make(map[*kind]bool)
			for _, c := range e.classes {
				kinds[c.kind] = true
			}
			require.Len(t, e.kinds, len(kinds))
		}
		e.SetCounts(nil)
		require.Empty(t, e.classes)
		require.Empty(t, e.kinds)
		require.Empty(t, e.projects)
	})
}

// What a plan considers is what looking at every pair of class and berth finds.
func TestAPlanConsidersWhatFitsAndNothingElse(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		e := NewEngine(pools, Options{})
		counts := drawCounts(t)
		e.SetCounts(counts)
		for i, p := range pools {
			for k := range rapid.IntRange(0, 2).Draw(t, "machines") {
				id := spillway.MachineID(fmt.Sprint(i, "/", k))
				e.Connect(now, Machine{ID: id, Pool: p.Name, Capacity: 1}, nil)
				if len(counts) > 0 && rapid.Bool().Draw(t, "has refused") {
					e.pause(e.machines[id], rapid.SampledFrom(counts).Draw(t, "refused").Class)
				}
			}
		}
		berths := e.berths()
		fits := make(map[int]bool) // berths
		waits := make(map[spillway.JobClass]bool)
		for _, c := range e.classes {
			for _, b := range berths {
				if b.holds(c) {
					fits[b.number], waits[c.id] = true, true
				}
			}
		}
		classes, useful := e.waitingFor(berths)
		require.Len(t, classes, len(waits))
		for _, c := range classes {
			require.True(t, waits[c.id])
		}
		require.Len(t, useful, len(fits))
		for _, b := range useful {
			require.True(t, fits[b.number])
		}
	})
}

// BenchmarkPlanLarge is a new picture of the queue and a plan: 1,000 classes, of
// which each fits two of 1,000 pools, all with a free machine.
func BenchmarkPlanLarge(b *testing.B) {
	const size = 1000
	now := time.Unix(1_700_000_000, 0)
	pools, counts := make([]spillway.Pool, size), make([]ClassCount, size)
	for i := range size {
		own := fmt.Sprintf("kind-%d", i)
		pools[i] = spillway.Pool{Name: fmt.Sprintf("pool-%d", i), CapacityPerInstance: 1, Capability: spillway.Capability{
			Tags: []string{"docker", own, fmt.Sprintf("kind-%d", (i+1)%size), "linux"},
		}}
		r := spillway.Requirement{Tags: []string{"linux", own}}
		counts[i] = ClassCount{Class: r.Class(), Requirement: r, Pending: 1, Oldest: now}
	}
	for _, waiting := range []int{1, size} {
		b.Run(fmt.Sprintf("classes=%d", waiting), func(b *testing.B) {
			e := NewEngine(pools, Options{})
			for i := range size {
				e.Connect(now, Machine{ID: spillway.MachineID(fmt.Sprint(i)), Pool: pools[i].Name, Capacity: 1}, nil)
			}
			b.ReportAllocs()
			for b.Loop() {
				e.SetCounts(nil) // all classes are new
				e.SetCounts(counts[:waiting])
				wants := e.Plan(now)
				if len(wants) != waiting {
					b.Fatalf("%d wants", len(wants))
				}
				e.Claimed(now, wants, nil)
			}
		})
	}
}

// What a plan places is a maximum matching, whoever shares what with whom: with fair
// shares as many jobs get a place as without.
func TestSharingPlacesAsManyJobsAsAnyOrder(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		for i := range pools {
			pools[i].Priority = rapid.IntRange(0, 2).Draw(t, "priority")
			if rapid.Bool().Draw(t, "of projects") {
				pools[i].Capability.Type, pools[i].Capability.Projects = spillway.ProjectType, []int64{1, 2}
			}
		}
		counts := make([]ClassCount, rapid.IntRange(0, 8).Draw(t, "classes"))
		for i := range counts {
			r := spillway.Requirement{Tags: drawTags(t, "needs"), Project: int64(rapid.IntRange(1, 3).Draw(t, "project"))}
			counts[i] = ClassCount{
				Class: r.Class(), Requirement: r, Pending: rapid.IntRange(1, 5).Draw(t, "pending"),
				Claimed: rapid.IntRange(0, 5).Draw(t, "running"), Oldest: now.Add(-time.Duration(i) * time.Second),
			}
		}
		e := NewEngine(pools, Options{})
		e.SetCounts(counts)
		supplies := make([]demand.Supply, len(pools))
		for i := range pools {
			p := e.poolOf[pools[i].Name]
			n := rapid.IntRange(0, 3).Draw(t, "machines")
			for k := range n {
				e.Connect(now, Machine{ID: spillway.MachineID(fmt.Sprint(i, "/", k)), Pool: p.Name, Capacity: 1}, nil)
			}
			supplies[i] = demand.Supply{Pool: p.Name, Capability: p.Capability, Priority: p.Priority, Free: n}
		}
		var classes []demand.Class
		for _, c := range e.classes {
			classes = append(classes, demand.Class{ID: c.id, Requirement: c.requirement, Pending: c.pending, Oldest: c.oldest})
		}
		most, by := 0, make(map[string]int)
		for name, share := range demand.Attribute(classes, supplies, Fits).Pools {
			most += share.Free
			by[name] = share.Free
		}
		placed, perPool := 0, make(map[string]int)
		for _, w := range e.Plan(now) {
			placed += w.N
			perPool[w.Pool] += w.N
		}
		require.Equal(t, most, placed)
		for name, n := range by {
			require.Equal(t, n, perPool[name], "as many in each pool: better ones are filled first")
		}
	})
}

// Whatever is known of other pools: a job goes to a pool of lower priority only when each
// better one that it has to wait for is full, with all that it can come to have; and who
// has waited for long enough waits no more.
func TestNobodySpillsOverTooSoonOrTooLate(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		pools := drawPools(t)
		room := make(map[string]Room)
		for i := range pools {
			pools[i].Priority = rapid.IntRange(0, 2).Draw(t, "priority")
			pools[i].SpillAfter = rapid.SampledFrom([]time.Duration{0, 30 * time.Second, time.Minute}).Draw(t, "spill after")
			room[pools[i].Name] = Room{Jobs: rapid.IntRange(0, 3).Draw(t, "room"), At: now}
		}
		counts := drawCounts(t)
		age := make(map[spillway.JobClass]time.Duration)
		for i := range counts {
			c := &counts[i]
			age[c.Class] = rapid.SampledFrom([]time.Duration{0, 40 * time.Second, 2 * time.Minute}).Draw(t, "age")
			c.Oldest = now.Add(-age[c.Class])
		}
		e := NewEngine(pools, Options{})
		var places []RemotePlaces
		e.SetPeers(rapid.Bool().Draw(t, "peers"))
		for i := range pools {
			for k := range rapid.IntRange(0, 2).Draw(t, "machines") {
				e.Connect(now, Machine{ID: spillway.MachineID(fmt.Sprint(i, "/", k)), Pool: pools[i].Name, Capacity: 1}, nil)
			}
			places = append(places, RemotePlaces{Pool: pools[i].Name, Free: rapid.IntRange(0, 2).Draw(t, "elsewhere"), At: now})
		}
		e.SetRemote(now, places)
		e.SetRoom(room)
		e.SetCounts(counts)
		wants := e.Plan(now)

		left := func(p *pool) (n int) { // jobs that wait and that it could take
			for _, c := range e.classes {
				if c.takenBy(p) {
					n += c.available()
				}
			}
			return n
		}
		for _, w := range wants {
			c, l := e.classes[w.Class], e.poolOf[w.Pool]
			for _, h := range e.pools {
				if !c.takenBy(h) || h.Priority >= l.Priority {
					continue
				}
				require.Zero(t, h.places-e.reserved[h.Name], "%s has a free place", h.Name)
				ahead := 0
				if h.SpillAfter > age[w.Class] {
					ahead += e.roomOf(h)
				}
				if e.remote.peers && age[w.Class] < RemotePatience {
					ahead += e.remote.free[h.Name]
				}
				require.GreaterOrEqual(t, left(h), ahead, "%s can still come to have places", h.Name)
			}
		}
		for _, c := range e.classes {
			if c.available() == 0 || age[c.id] < time.Minute {
				continue
			}
			for _, p := range e.pools {
				require.False(t, c.takenBy(p) && p.places > e.reserved[p.Name], "%s has a place for who has waited for long enough", p.Name)
			}
		}
	})
}
