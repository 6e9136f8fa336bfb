package roster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestC20_APausedRunnerServesNobodyAndStays(t *testing.T) {
	f := newFleet()
	f.launch("a", "b")
	f.register("a", "b")
	f.pass(time.Minute)
	f.machines["a"].Paused = true
	f.pass(5 * time.Second)
	require.Equal(t, map[string]Phase{"a": Paused, "b": Usable}, f.phases())
	c := f.Census(f.now)
	require.Equal(t, 1, c.Usable)
	require.Equal(t, 1, c.Paused)
	require.Equal(t, 2, c.Live, "it bills")
	require.Equal(t, 1, c.Leaving(), "and is of no use")
	f.pass(time.Hour)
	require.Empty(t, f.Leaving(f.now))
	require.Len(t, f.Drain(f.now, 2), 1, "only the other one")
	require.Empty(t, f.Removals(f.now, true))

	f.machines["a"].Paused = false
	f.pass(5 * time.Second)
	require.Equal(t, Usable, f.phases()["a"])
	require.Contains(t, f.Changes(), Change{Instance: "a", Machine: "m-a", Kind: WasResumed})
}

func TestC20_APauseTakesADrainBack(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.pass(time.Hour)
	require.Len(t, f.Drain(f.now, 1), 1)
	f.ack("a")
	f.machines["a"].Paused = true
	f.pass(5 * time.Second)
	require.Empty(t, f.Removals(f.now, true), "somebody may want to look at it")
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", Reason: "paused"}}, f.SecondLook(f.now))
	f.machines["a"].Draining = false
	f.pass(5 * time.Second)
	require.Equal(t, Paused, f.phases()["a"])
}

func TestC20_WhatLeavesForGoodStaysAsLongAsItIsPaused(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.pass(time.Minute)
	f.machines["a"].Unhealthy = "its runner was deleted in GitLab"
	f.pass(5 * time.Second)
	require.Equal(t, Broken, f.phases()["a"])
	require.Len(t, f.Leaving(f.now), 1)
	f.ack("a")
	f.pass(5 * time.Second)
	f.machines["a"].Paused = true
	f.look()
	require.Empty(t, f.Removals(f.now, true))
	f.machines["a"].Paused = false
	f.look()
	require.Equal(t, []Removal{{Instance: "a", Evidence: Unhealthy}}, f.Removals(f.now, true))
}

func TestANewOwnerLeavesThePausedAloneUntilItHasHeardOfThem(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.machines["a"].Paused = true
	f.pass(time.Minute)
	next := New(rules(), f.now)
	next.Adopt(*f.Roster)
	next.Listed(f.now, f.list)
	require.Equal(t, Paused, next.Instances["a"].Phase)
}

// Where a job may run on an instance that nothing is heard of, silence proves nothing.
func TestWhatIsUnheardOfIsLeftAloneWhereAJobMayRunOnIt(t *testing.T) {
	for _, may := range []bool{true, false} {
		f := newFleet()
		f.launch("never", "gone")
		f.register("gone")
		f.pass(time.Minute)
		f.JobsUnheardOf(may)
		delete(f.machines, "gone") // not even a record is left of it
		f.list[1].Hook = TerminationHook
		f.pass(10 * time.Minute)
		require.Equal(t, BootFailed, f.phases()["never"])
		if may {
			require.Empty(t, f.Removals(f.now, true))
			require.Empty(t, f.Releases(f.now))
			f.pass(time.Hour)
			require.Empty(t, f.Releases(f.now), "not even after silent_timeout")
		} else {
			require.Equal(t, []Removal{{Instance: "never", Evidence: NeverRegistered}}, f.Removals(f.now, true))
			require.Equal(t, []Release{{Instance: "gone", Hook: TerminationHook}}, f.Releases(f.now))
		}
	}
}
