package demand_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/demand"
)

// waitedFor is a class of which so many jobs have waited for a minute.
func waitedFor(pending, minute int, tags ...string) demand.Class {
	c := class(pending, tags...)
	c.Waited = []demand.Waited{{For: time.Minute, Jobs: minute}}
	return c
}

func spilling(name string, priority int, change func(*demand.Supply)) demand.Supply {
	return with(pool(name, "docker"), func(s *demand.Supply) {
		s.Priority, s.SpillAfter = priority, time.Minute
		change(s)
	})
}

func TestYoungJobsLetTheBetterPoolGrow(t *testing.T) {
	better := spilling("better", 0, func(s *demand.Supply) { s.Launchable = 9 })
	other := with(pool("other", "docker"), func(s *demand.Supply) { s.Priority, s.Free = 1, 9 })
	got := demand.Attribute([]demand.Class{waitedFor(5, 2, "docker")}, []demand.Supply{better, other}, match)
	require.Equal(t, demand.PoolShare{Launch: 3}, got.Pools["better"])
	require.Equal(t, demand.PoolShare{Free: 2}, got.Pools["other"])
	require.Equal(t, []demand.Flow{
		{Class: 0, Pool: "better", Stage: demand.LaunchPlaces, Jobs: 3}, {Class: 0, Pool: "other", Stage: demand.FreePlaces, Jobs: 2},
	}, got.Flows)
}

func TestWhatTheBetterPoolCannotHoldSpillsOver(t *testing.T) {
	better := spilling("better", 0, func(s *demand.Supply) { s.Free, s.Booting, s.Launchable = 1, 1, 1 })
	other := with(pool("other", "docker"), func(s *demand.Supply) { s.Priority, s.Free, s.Launchable = 1, 1, 9 })
	got := demand.Attribute([]demand.Class{waitedFor(5, 0, "docker")}, []demand.Supply{better, other}, match)
	require.Equal(t, demand.PoolShare{Free: 1, Coming: 1, Launch: 1}, got.Pools["better"])
	require.Equal(t, demand.PoolShare{Free: 1, Launch: 1}, got.Pools["other"])

	better.CooledOff = true
	got = demand.Attribute([]demand.Class{waitedFor(5, 0, "docker")}, []demand.Supply{better, other}, match)
	require.Equal(t, demand.PoolShare{Free: 1, Coming: 1}, got.Pools["better"])
	require.Equal(t, demand.PoolShare{Free: 1, Launch: 2}, got.Pools["other"])
}

func TestJobsOfUnknownAgeWaitForNobody(t *testing.T) {
	better := spilling("better", 0, func(s *demand.Supply) { s.Launchable = 9 })
	other := with(pool("other", "docker"), func(s *demand.Supply) { s.Priority, s.Free = 1, 9 })
	got := demand.Attribute([]demand.Class{class(2, "docker")}, []demand.Supply{better, other}, match)
	require.Equal(t, demand.PoolShare{Free: 2}, got.Pools["other"])
}

func TestPoolsOfOnePriorityDontWaitForEachOther(t *testing.T) {
	a := spilling("a", 0, func(s *demand.Supply) { s.Launchable = 9 })
	b := spilling("b", 0, func(s *demand.Supply) { s.Free = 2 })
	got := demand.Attribute([]demand.Class{waitedFor(2, 0, "docker")}, []demand.Supply{a, b}, match)
	require.Equal(t, demand.PoolShare{Free: 2}, got.Pools["b"])
}

func TestPartsOfAClassAreOneInWhatIsLeft(t *testing.T) {
	full := spilling("full", 0, func(*demand.Supply) {})
	got := demand.Attribute([]demand.Class{waitedFor(5, 2, "docker"), waitedFor(3, 1, "gpu")}, []demand.Supply{full}, match)
	require.Equal(t, []demand.Overflow{{Class: 0, Jobs: 5}}, got.Overflow)
	require.Len(t, got.Unmatched, 1)
	require.Equal(t, 3, got.Unmatched[0].Jobs)
}

// Waiting for better pools costs no place: as many jobs are placed as could be. And a job
// that is to wait for a pool is nowhere below it before that is full.
func TestSpillingPlacesAsManyAndNobodyTooSoon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		ages := []time.Duration{0, 20 * time.Second, time.Minute, time.Hour}
		for i := range f.pools {
			f.pools[i].SpillAfter = rapid.SampledFrom(ages[:3]).Draw(t, "spill after")
		}
		age := make([]time.Duration, len(f.classes))
		for i := range f.classes {
			age[i] = rapid.SampledFrom(ages).Draw(t, "age")
			f.classes[i].Waited = []demand.Waited{{For: age[i], Jobs: f.classes[i].Pending}}
		}
		got := demand.Attribute(f.classes, f.pools, match)
		used, placed := make(map[string]int), 0
		for _, flow := range got.Flows {
			used[flow.Pool] += flow.Jobs
			placed += flow.Jobs
		}
		require.Equal(t, f.most(f.jobs(), f.places(demand.LaunchPlaces)), placed)
		of := make(map[string]*demand.Supply)
		for i := range f.pools {
			of[f.pools[i].Pool] = &f.pools[i]
		}
		for _, flow := range got.Flows {
			for i := range f.pools {
				h := &f.pools[i]
				ok, _ := match(&h.Capability, &f.classes[flow.Class].Requirement)
				if !ok || h.Priority >= of[flow.Pool].Priority || h.SpillAfter <= age[flow.Class] {
					continue
				}
				places := h.Free + h.Booting + h.Draining
				if !h.CooledOff {
					places += h.Launchable
				}
				require.Equal(t, places, used[h.Pool], "%s still has places for what is in %s", h.Pool, flow.Pool)
			}
		}
	})
}

// What the best pool can't hold waits for the next one that it would wait for, too: that
// has room to grow, and the pool after that has a free place.
func TestWhatSpillsOverWaitsForTheNextPoolToo(t *testing.T) {
	best := spilling("best", 0, func(s *demand.Supply) { s.SpillAfter, s.Launchable = time.Second, 1 })
	next := spilling("next", 1, func(s *demand.Supply) { s.Launchable = 2 })
	last := with(pool("last", "docker"), func(s *demand.Supply) { s.Priority, s.Free = 2, 9 })
	got := demand.Attribute([]demand.Class{waitedFor(5, 0, "docker")}, []demand.Supply{best, next, last}, match)
	require.Equal(t, demand.PoolShare{Launch: 1}, got.Pools["best"])
	require.Equal(t, demand.PoolShare{Launch: 2}, got.Pools["next"])
	require.Equal(t, demand.PoolShare{Free: 2}, got.Pools["last"])
}

// Priorities beyond the bound cost nobody a place: there nobody waits.
func TestMoreLevelsThanTheBound(t *testing.T) {
	var pools []demand.Supply
	for i := range 40 {
		pools = append(pools, spilling(fmt.Sprintf("p%02d", i), i, func(s *demand.Supply) { s.Launchable = 1 }))
	}
	got := demand.Attribute([]demand.Class{waitedFor(40, 0, "docker")}, pools, match)
	require.Empty(t, got.Overflow)
	require.Len(t, got.Flows, 40)
}
