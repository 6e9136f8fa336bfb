package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
)

// What an explanation says of how many jobs come before a class is what the line has
// before its first job, where there are places for all.
func TestServedBeforeIsWhatStandsInLineBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		e := NewEngine([]spillway.Pool{{Name: "linux", CapacityPerInstance: 1000, Capability: spillway.Capability{RunUntagged: true}}}, Options{})
		e.Connect(now, Machine{ID: "m", Pool: "linux", Capacity: 1000}, nil)
		counts := make([]ClassCount, rapid.IntRange(1, 8).Draw(t, "classes"))
		for i := range counts {
			r := spillway.Requirement{Project: int64(rapid.IntRange(1, 3).Draw(t, "project")), Groups: []int64{int64(i + 1)}}
			counts[i] = ClassCount{
				Class: r.Class(), Requirement: r, Pending: rapid.IntRange(1, 6).Draw(t, "pending"), Claimed: rapid.IntRange(0, 6).Draw(t, "running"),
				Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Oldest: now.Add(-time.Duration(rapid.IntRange(0, 4).Draw(t, "age")) * time.Second),
			}
		}
		e.SetCounts(counts)
		berths := e.berths()
		classes, berths := e.waitingFor(berths)
		before, seen := 0, make(map[spillway.JobClass]bool)
		for _, turn := range e.line(classes, e.firstBerths(berths), berths, 0) {
			c := classes[turn.class]
			if !seen[c.id] {
				seen[c.id] = true
				_, served := e.standing(c)
				require.Equal(t, before, served, fmt.Sprint(c.id))
			}
			before += turn.jobs
		}
		require.Len(t, seen, len(counts))
	})
}

// Where all of a long queue waits for places that may come, the line is not as long as the
// queue, and projects have their share of each part of it.
func TestTheLineOfABurstIsShort(t *testing.T) {
	const projects, each = 3, 40_000
	now := time.Unix(1_700_000_000, 0)
	own := spillway.Pool{Name: "own", CapacityPerInstance: 1, Capability: spillway.Capability{RunUntagged: true}}
	later := own
	later.Name, later.Priority, later.LeastWait = "later", 1, time.Minute
	e := NewEngine([]spillway.Pool{own, later}, Options{})
	e.Connect(now, Machine{ID: "m", Pool: "later", Capacity: 1}, nil)
	counts := make([]ClassCount, projects)
	for i := range counts {
		r := spillway.Requirement{Project: int64(i + 1)}
		counts[i] = ClassCount{Class: r.Class(), Requirement: r, Pending: each, Oldest: now}
	}
	e.SetCounts(counts)
	require.Empty(t, e.Plan(now), "they are too young")
	classes, berths := e.waitingFor(e.berths())
	first := e.firstBerths(berths)
	_, _, more := e.ahead(classes, first)
	turns := e.line(classes, first, berths, more)
	require.Less(t, len(turns), 5_000)
	served, all := make([]int, projects), 0
	for _, turn := range turns {
		require.Equal(t, served[turn.class], turn.from)
		served[turn.class] += turn.jobs
		all += turn.jobs
		least, most := slices.Min(served), slices.Max(served)
		if all <= maxSingly {
			require.LessOrEqual(t, most-least, 1)
		}
		require.LessOrEqual(t, most-least, 1+most/shareParts)
	}
	require.Equal(t, projects*each, all, "some of them may be old enough")
}
