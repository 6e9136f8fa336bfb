package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
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
