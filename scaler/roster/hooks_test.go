package roster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// held is one instance with a machine, which somebody ends and a hook holds.
func held(jobs int) *fleet {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.machines["a"].Busy = jobs
	f.look()
	f.pass(time.Minute)
	f.list[0].Deleting, f.list[0].Hook = true, TerminationHook
	f.look()
	return f
}

func TestC34_AHookIsLetGoOnceItsJobsHaveEnded(t *testing.T) {
	f := held(1)
	c := f.Census(f.now)
	require.Equal(t, 1, c.Removing, "it is no capacity")
	require.Equal(t, 1, c.Live, "it bills")
	require.Zero(t, c.Usable+c.FreePlaces+c.RunningJobs)
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", On: true, Reason: "removing"}}, f.Leaving(f.now))
	f.ack("a")
	for range 40 { // minutes
		f.pass(time.Minute)
		require.Empty(t, f.Releases(f.now), "it has a job")
		require.Empty(t, f.Leaving(f.now), "told once")
	}
	f.machines["a"].Busy = 0
	f.pass(time.Second)
	want := []Release{{Instance: "a", Hook: TerminationHook}}
	require.Equal(t, want, f.Releases(f.now), "by the next look")

	f.ReleaseAsked(f.now, want)
	f.pass(time.Minute - time.Second)
	require.Empty(t, f.Releases(f.now), "it was asked for")
	f.pass(time.Second)
	require.Equal(t, want, f.Releases(f.now), "held still: asked again, whatever came of it")
	f.ReleaseAsked(f.now, want)
	f.ReleaseRefused(want)
	require.Equal(t, want, f.Releases(f.now), "nothing was done")
}

// Where the hook is what stops the runner nobody acknowledges a drain: it is said again,
// in case the store has lost it, and that is no news as long as it stands.
func TestADrainThatNobodyAcknowledgesIsOrderedAgain(t *testing.T) {
	f := held(1)
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", On: true, Reason: "removing"}}, f.Leaving(f.now))
	f.machines["a"].Draining = true // by order, and that is all
	for range 3 {
		f.pass(f.rules.AckTimeout - time.Second)
		require.Empty(t, f.Leaving(f.now))
		f.pass(time.Second)
		require.Equal(t, []Order{{Instance: "a", Machine: "m-a", On: true, Reason: "removing", Again: true}}, f.Leaving(f.now))
	}
	f.machines["a"].Draining = false // the store was lost
	f.pass(f.rules.AckTimeout)
	require.Equal(t, []Order{{Instance: "a", Machine: "m-a", On: true, Reason: "removing"}}, f.Leaving(f.now), "that is news")
}

func TestC34_AHookWithoutAMachineIsLetGoAtOnce(t *testing.T) {
	f := newFleet()
	f.pass(time.Minute) // past the owner's first looks
	f.launch("a")
	f.list[0].Deleting, f.list[0].Hook = true, TerminationHook
	f.look()
	require.Equal(t, []Release{{Instance: "a", Hook: TerminationHook}}, f.Releases(f.now))

	fresh := newFleet()
	fresh.launch("a")
	fresh.list[0].Deleting, fresh.list[0].Hook = true, TerminationHook
	fresh.look()
	require.Empty(t, fresh.Releases(fresh.now), "a new owner may not have heard of its machine yet")
}

func TestC34_AMachineThatIsGoneHoldsNothingUp(t *testing.T) {
	f := held(1)
	f.machines["a"].Connected = false
	f.pass(f.rules.SilentTimeout)
	require.Equal(t, []Release{{Instance: "a", Hook: TerminationHook, Forced: true}}, f.Releases(f.now), "its jobs were given to others long ago")

	f = held(1)
	f.machines["a"].Connected = false
	f.pass(f.rules.SilentTimeout - time.Minute)
	require.Empty(t, f.Releases(f.now), "silence alone is no proof so soon: its record still has the job")
	f.list[0].Unhealthy = true
	f.pass(time.Second)
	require.Len(t, f.Releases(f.now), 1, "the provider says that it is dead")

	f = held(1)
	delete(f.machines, "a")
	f.pass(44 * time.Second)
	require.Empty(t, f.Releases(f.now))
	f.pass(time.Second)
	require.Len(t, f.Releases(f.now), 1, "the router has given it up, with its jobs")
}

func TestC34_DrainTimeoutForcesTheEndAndSaysSo(t *testing.T) {
	f := held(1)
	f.rules.DrainTimeout = 30 * time.Minute
	f.Leaving(f.now)
	f.ack("a")
	f.pass(30*time.Minute - time.Second)
	require.Empty(t, f.Releases(f.now))
	f.pass(time.Second)
	forced := []Release{{Instance: "a", Hook: TerminationHook, Forced: true}}
	require.Equal(t, forced, f.Releases(f.now))
	f.Changes()
	f.ReleaseAsked(f.now, forced)
	require.Equal(t, []Change{{Instance: "a", Machine: "m-a", Kind: ForcedEnd, Detail: "drain_timeout of 30m0s is over, with 1 jobs on it"}}, f.Changes())
}

func TestALaunchingHookWaitsForTheMachineAndForNoOther(t *testing.T) {
	f := newFleet()
	f.launch("a", "b")
	f.list[0].Hook, f.list[1].Hook = LaunchHook, LaunchHook
	f.pass(time.Minute)
	require.Empty(t, f.Releases(f.now))
	f.register("a")
	f.look()
	require.Equal(t, []Release{{Instance: "a", Hook: LaunchHook}}, f.Releases(f.now))
	f.list[0].Hook = NoHook
	f.pass(9 * time.Minute)
	require.Empty(t, f.Releases(f.now))
	require.Equal(t, []Removal{{"b", NeverRegistered}}, f.Removals(f.now, false), "at register_timeout as without a hook")
}

func TestOurOwnRemovalIsNotRepeatedWhileAHookHoldsIt(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.register("a")
	f.look()
	f.pass(10 * time.Minute)
	f.Drain(f.now, 1)
	f.ack("a")
	f.pass(2 * time.Second)
	f.RemoveAsked(f.now, f.Removals(f.now, true))
	f.list[0].Deleting, f.list[0].Hook = true, TerminationHook
	f.look()
	require.Len(t, f.Releases(f.now), 1, "it was proven idle before")
	f.pass(2 * time.Minute)
	require.Empty(t, f.Removals(f.now, true))
}

func TestX21_WhatSomebodyKeepsIsChosenOnNoPath(t *testing.T) {
	f := newFleet()
	ids := []string{"idle", "draining", "failed", "silent", "still", "broken", "old"}
	f.launch(ids...)
	f.register("idle", "draining", "silent", "still", "broken", "old")
	f.look()
	f.pass(11 * time.Minute)
	require.Equal(t, "broken", f.Drain(f.now, 1)[0].Instance) // of equals the first by name
	f.TakeBack(1)
	keep := func() {
		for i := range f.list {
			f.list[i].Kept = true
		}
	}
	f.Instances["draining"].Phase, f.Instances["draining"].DrainedAt = Draining, f.now
	f.Instances["still"].Phase, f.Instances["still"].RemovedAt = Removing, f.now.Add(-time.Hour)
	f.machines["silent"].Connected = false
	f.rules.MaxAge = time.Minute
	keep()
	for i, l := range f.list {
		f.list[i].Unhealthy = l.ID == "silent" || l.ID == "broken"
	}
	f.look()
	back := f.SecondLook(f.now)
	require.Len(t, back, 1, "marked after its drain was ordered: that is taken back")
	require.False(t, back[0].On)
	for range 100 {
		f.pass(time.Minute)
		require.Empty(t, f.Drain(f.now, 10))
		require.Empty(t, f.Leaving(f.now))
		require.Empty(t, f.Removals(f.now, true))
		require.Empty(t, f.Lost(f.now))
	}
	c := f.Census(f.now)
	require.Zero(t, c.Removable)
	require.Equal(t, len(ids), c.Live, "they count for max")
}

// Whatever happens, an instance that a terminating hook holds is let go without
// force only if its machine has no job, or can have none.
func TestI1_ReleaseProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		f.rules.DrainTimeout = rapid.SampledFrom([]time.Duration{0, 20 * time.Minute}).Draw(t, "drain timeout")
		ids := []string{"a", "b", "c"}
		f.launch(ids...)
		f.look()
		id := func(t *rapid.T) string { return rapid.SampledFrom(ids).Draw(t, "id") }
		end := func(t *rapid.T) {
			for i := range f.list {
				if f.list[i].ID == id(t) {
					f.list[i].Deleting, f.list[i].Hook = true, TerminationHook
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				if x := id(t); f.machines[x] == nil {
					f.register(x)
				}
			},
			"work": func(t *rapid.T) {
				if m := f.machines[id(t)]; m != nil {
					m.Busy = rapid.IntRange(0, 1).Draw(t, "busy")
				}
			},
			"cut": func(t *rapid.T) {
				if m := f.machines[id(t)]; m != nil {
					m.Connected = !m.Connected
				}
			},
			"end":  end,
			"keep": func(t *rapid.T) { f.list[0].Kept = rapid.Bool().Draw(t, "kept") },
			"ack": func(t *rapid.T) {
				x := id(t)
				if in := f.Instances[x]; in != nil && f.machines[x] != nil && !in.DrainedAt.IsZero() && f.machines[x].Connected {
					f.ack(x)
				}
			},
			"pass": func(t *rapid.T) {
				f.pass(rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute, 10 * time.Minute}).Draw(t, "d"))
			},
			"": func(t *rapid.T) {
				f.look()
				f.Leaving(f.now)
				rel := f.Releases(f.now)
				f.ReleaseAsked(f.now, rel)
				for _, r := range rel {
					in, m := f.Instances[r.Instance], f.machines[r.Instance]
					require.False(t, in.Kept)
					if r.Forced {
						late := f.rules.DrainTimeout > 0 && f.now.Sub(in.HeldAt) >= f.rules.DrainTimeout
						require.True(t, late || f.now.Sub(m.HeardAt) >= f.rules.SilentTimeout)
						continue
					}
					require.True(t, m == nil || (m.Connected && m.InUse() == 0 && m.HeartbeatAt.After(m.DrainAckedAt)))
				}
				c := f.Census(f.now)
				require.Equal(t, c.Live, c.Usable+c.Booting+c.Draining+c.Leaving())
			},
		})
	})
}

// What was proven before a hook began to hold an instance lets it go only where its
// machine took no more jobs then already.
func TestAProofFromBeforeTheHookLetsNothingGoThatTheHookStops(t *testing.T) {
	for _, byHook := range []bool{false, true} {
		f := newFleet()
		f.launch("a")
		f.register("a")
		f.pass(time.Hour)
		f.StoppedByHook(byHook)
		require.Len(t, f.Drain(f.now, 1), 1)
		f.ack("a")
		f.pass(5 * time.Second)
		f.RemoveAsked(f.now, f.Removals(f.now, true))
		f.list[0].Deleting, f.list[0].Hook = true, TerminationHook
		f.now = f.now.Add(5 * time.Second)
		f.look() // nothing was heard since
		if !byHook {
			require.Len(t, f.Releases(f.now), 1)
			continue
		}
		require.Empty(t, f.Releases(f.now))
		f.pass(time.Second)
		require.Len(t, f.Releases(f.now), 1)
	}
}
