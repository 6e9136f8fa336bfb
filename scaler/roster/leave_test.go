package roster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/router"
)

func (f *fleet) kinds() (kinds []ChangeKind) {
	for _, c := range f.Changes() {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

// serving is n registered instances i00, i01, … that are up for a minute.
func serving(n int) *fleet {
	f := newFleet()
	for i := range n {
		id := fmt.Sprintf("i%02d", i)
		f.launch(id)
		f.register(id)
	}
	f.look()
	f.pass(time.Minute)
	f.Changes()
	return f
}

// run is pass in the steps of a loop, so that nobody seems silent in between.
func (f *fleet) run(d time.Duration) {
	const tick = 10 * time.Second
	for ; d > tick; d -= tick {
		f.pass(tick)
	}
	f.pass(d)
}

func (f *fleet) warn(id, kind string, in time.Duration) {
	f.machines[id].InterruptionKind, f.machines[id].InterruptedAt, f.machines[id].InterruptionDeadline = kind, f.now, f.now.Add(in)
	f.look()
}

func TestC29_AMachinesOwnNoticeDrainsItForGood(t *testing.T) {
	for _, kind := range []string{router.InterruptionSpot, router.InterruptionMaintenance, router.InterruptionTerminating} {
		f := serving(2)
		f.machines["i00"].Busy = 1
		f.warn("i00", kind, 2*time.Minute)
		require.Equal(t, []ChangeKind{Noticed}, f.kinds())
		c := f.Census(f.now)
		require.Equal(t, 1, c.Interrupted)
		require.Equal(t, 1, c.Usable)
		require.Empty(t, f.TakeBack(5))
		require.Equal(t, []Order{{Instance: "i00", Machine: "m-i00", On: true, Reason: "interrupted"}}, f.Leaving(f.now))
		f.look()
		require.Empty(t, f.kinds(), "told once")
		want := 0
		if kind == router.InterruptionSpot {
			want = 1 // only there it goes with whatever runs
		}
		require.Equal(t, want, c.DoomedJobs)
	}
}

func TestC29_JobsAreGivenUpInTheLastTwoMinutes(t *testing.T) {
	f := serving(1)
	f.machines["i00"].Busy = 2
	f.warn("i00", router.InterruptionSpot, 10*time.Minute)
	f.pass(8*time.Minute - time.Second)
	require.Zero(t, f.Census(f.now).DoomedJobs, "they may still end")
	f.pass(time.Second)
	require.Equal(t, 2, f.Census(f.now).DoomedJobs)
}

func TestAGraverNoticeReplacesAMilderOne(t *testing.T) {
	f := serving(1)
	f.machines["i00"].Busy = 1
	f.warn("i00", router.InterruptionRebalance, 0)
	require.Equal(t, Usable, f.Instances["i00"].Phase, "no job is at stake yet")
	f.warn("i00", router.InterruptionTerminating, 0)
	require.Equal(t, Interrupted, f.Instances["i00"].Phase)
	f.warn("i00", router.InterruptionSpot, time.Minute)
	require.Equal(t, router.InterruptionSpot, f.Instances["i00"].Notice)
	f.warn("i00", router.InterruptionMaintenance, time.Minute)
	require.Equal(t, router.InterruptionSpot, f.Instances["i00"].Notice)
	require.Equal(t, []ChangeKind{Noticed, Noticed, Noticed}, f.kinds())
	require.False(t, f.Interrupt(Notice{Instance: "nobody", Kind: router.InterruptionSpot}))
}

func TestANoticeOutlivesSilenceAndAChangeOfOwner(t *testing.T) {
	f := serving(1)
	f.warn("i00", router.InterruptionMaintenance, time.Hour)
	f.machines["i00"].Connected = false
	f.pass(time.Minute)
	require.Equal(t, Silent, f.Instances["i00"].Phase)
	data, err := json.Marshal(f.Roster)
	require.NoError(t, err)
	var kept Roster
	require.NoError(t, json.Unmarshal(data, &kept))
	next := New(rules(), f.now)
	next.Adopt(kept)
	f.Roster = next
	f.machines["i00"].Connected, f.machines["i00"].InterruptionKind = true, ""
	f.pass(time.Second)
	require.Equal(t, Interrupted, f.Instances["i00"].Phase, "not draining, which could be taken back")
}

func TestANoticeBeforeTheMachineDoesNotLeakTheInstance(t *testing.T) {
	f := newFleet()
	f.launch("a")
	f.look()
	require.True(t, f.Interrupt(Notice{Instance: "a", Kind: router.InterruptionMaintenance}))
	f.pass(5 * time.Minute)
	require.Equal(t, Interrupted, f.Instances["a"].Phase, "never heard is not silent")
	f.pass(5 * time.Minute)
	require.Equal(t, []Removal{{"a", NeverRegistered}}, f.Removals(f.now, false))
	require.Zero(t, f.Boot.Failures, "of no launch's fault")
}

func TestARebalanceIsFollowedAtIdleAndInPaces(t *testing.T) {
	f := serving(8)
	for i := range 8 {
		f.machines[fmt.Sprintf("i%02d", i)].InterruptionKind = router.InterruptionRebalance
	}
	f.machines["i00"].Busy = 1
	f.look()
	require.Equal(t, 2, f.Census(f.now).Interrupted, "a quarter")
	require.Equal(t, Usable, f.Instances["i00"].Phase, "it has a job")
	f.pass(30 * time.Second)
	require.Equal(t, 2, f.Census(f.now).Interrupted)
	f.launch("new")
	f.pass(time.Minute)
	require.Equal(t, 2, f.Census(f.now).Interrupted, "what replaces them is not there yet")
	f.register("new")
	f.pass(time.Second)
	require.Equal(t, 3, f.Census(f.now).Interrupted, "a quarter of what is left")
}

func TestX01_MaxAgeOnlyDrainsAndSaysWhoEndedIt(t *testing.T) {
	f := serving(4)
	f.rules.MaxAge = 12 * time.Hour
	for _, m := range f.machines {
		m.Busy = 1
	}
	f.run(12*time.Hour - time.Minute - time.Second)
	require.Equal(t, 4, f.Census(f.now).Usable)
	f.pass(time.Second)
	require.Equal(t, 1, f.Census(f.now).UsedUp, "launched together, and not drained together")
	require.Equal(t, []ChangeKind{Aged}, f.kinds())
	require.Equal(t, "max_age", f.Leaving(f.now)[0].Reason)
	f.ack("i00")
	f.pass(2 * time.Hour)
	require.Empty(t, f.Removals(f.now, true), "busy for as long as it takes")
	f.machines["i00"].Busy = 0
	f.pass(time.Second)
	gone := f.Removals(f.now, true)
	require.Equal(t, "i00", gone[0].Instance)
	f.RemoveAsked(f.now, gone)
	f.Changes()
	f.list = f.list[1:]
	delete(f.machines, "i00")
	f.pass(time.Minute)
	changes := f.Changes()
	require.Equal(t, Change{Instance: "i00", Machine: "m-i00", Kind: Gone, Detail: "removed by us: max_age"}, changes[0])
}

func TestWhoEndedAnInstanceIsSaid(t *testing.T) {
	f := serving(3)
	f.warn("i00", router.InterruptionSpot, time.Minute)
	f.Changes()
	for _, id := range []string{"i00", "i01"} {
		delete(f.machines, id)
	}
	f.list = f.list[2:]
	f.pass(time.Minute)
	f.pass(time.Second)
	f.pass(time.Second)
	var texts []string
	for _, c := range f.Changes() {
		if c.Kind == Gone || c.Kind == GoneForeign {
			texts = append(texts, c.Instance+" "+string(c.Kind)+": "+c.Detail)
		}
	}
	require.Equal(t, []string{"i00 gone: taken by its cloud: spot", "i01 gone_unexpected: missing from 3 complete lists"}, texts)
}

func TestBrokenInstancesAreDrainedForGood(t *testing.T) {
	f := serving(4)
	f.machines["i00"].Unhealthy, f.machines["i00"].Busy = "the disk is full", 1
	f.list[1].Unhealthy = true
	f.pass(time.Second)
	require.Equal(t, 2, f.Census(f.now).Broken)
	require.Equal(t, []ChangeKind{FellIll, FellIll}, f.kinds())
	require.Len(t, f.Leaving(f.now), 2)
	require.Empty(t, f.TakeBack(5))
	f.ack("i00")
	f.ack("i01")
	f.machines["i00"].Unhealthy, f.list[1].Unhealthy = "", false
	f.pass(2 * time.Second)
	require.Equal(t, 2, f.Census(f.now).Broken, "for good")
	require.Equal(t, []Removal{{"i01", Unhealthy}}, f.Removals(f.now, true), "the other has a job")
	require.Empty(t, f.Removals(f.now, false))
}

// Who says that an instance is broken is told as it is.
func TestBrokenInstancesSayWhoseWordItIs(t *testing.T) {
	f := serving(3)
	f.machines["i00"].Unhealthy = "the disk is full"
	f.machines["i01"].Unhealthy, f.machines["i01"].UnhealthyBy = "its runner was deleted in GitLab", "GitLab"
	f.list[2].Unhealthy = true
	f.Changes()
	f.pass(time.Second)
	texts := map[string]string{}
	for _, c := range f.Changes() {
		require.Equal(t, FellIll, c.Kind)
		texts[c.Instance] = c.Detail
	}
	require.Equal(t, map[string]string{
		"i00": "by its own word: the disk is full", "i01": "by GitLab's word: its runner was deleted in GitLab", "i02": "by the provider's word",
	}, texts)
}

func TestAHealthCheckThatIsSetUpWrongDrainsNotEverything(t *testing.T) {
	f := serving(20)
	for i := range f.list {
		f.list[i].Unhealthy = true
	}
	f.pass(time.Second)
	require.Equal(t, 9, f.Census(f.now).Broken, "45 %")
	few := serving(4)
	for i := range few.list {
		few.list[i].Unhealthy = true
	}
	few.pass(time.Second)
	require.Equal(t, 3, few.Census(few.now).Broken)
}

func TestC20_AMachineThatSaysItLeavesIsRemovedAndABusyOneIsNot(t *testing.T) {
	f := serving(10)
	f.machines["i04"].Busy = 1
	f.machines["i03"].StoppingSince, f.machines["i04"].StoppingSince = f.now, f.now
	f.look()
	require.Len(t, f.Leaving(f.now), 2)
	f.ack("i03")
	f.ack("i04")
	f.pass(2 * time.Second)
	require.Equal(t, []Removal{{"i03", Idle}}, f.Removals(f.now, true))
	require.Equal(t, 8, f.Census(f.now).Usable, "nobody else is held up by it")
}

func TestC22_TwoHundredThatStaySilentGoInPassesOfFifty(t *testing.T) {
	f := newFleet()
	f.rules.Max = 200
	for i := range 200 {
		id := fmt.Sprintf("i%03d", i)
		f.launch(id)
		f.register(id)
	}
	f.look()
	for i := range 200 {
		f.machines[fmt.Sprintf("i%03d", i)].Connected = false
		f.list[i].Unhealthy = true
	}
	first, last, most, total := time.Time{}, time.Time{}, 0, 0
	for range 2 * 3600 / 5 {
		f.pass(5 * time.Second)
		if f.now.Sub(t0) <= 20*time.Minute {
			require.Empty(t, f.Lost(f.now), "an outage of twenty minutes ends nobody")
		}
		lost := f.Lost(f.now)
		if len(lost) == 0 {
			continue
		}
		require.GreaterOrEqual(t, f.now.Sub(t0), time.Hour, "all at once: more likely us than them")
		f.RemoveAsked(f.now, lost)
		if first.IsZero() {
			first = f.now
		}
		last, most, total = f.now, max(most, len(lost)), total+len(lost)
	}
	require.Equal(t, 200, total)
	require.Equal(t, 50, most)
	require.GreaterOrEqual(t, last.Sub(first), 5*time.Minute)
}

func TestC22_ThoseThatComeBackInTimeAreNotTouched(t *testing.T) {
	f := serving(20)
	for i := range f.list {
		f.list[i].Unhealthy = true
		f.machines[f.list[i].ID].Connected = false
	}
	f.pass(time.Minute)
	f.pass(59 * time.Minute)
	for _, m := range f.machines {
		m.Connected = true
	}
	for i := range f.list {
		f.list[i].Unhealthy = false
	}
	f.pass(time.Second)
	require.Empty(t, f.Lost(f.now))
	require.Equal(t, 20, f.Census(f.now).Usable)
}

func TestC21_AMachineOnNoInstanceOfTheGroupIsNoCapacity(t *testing.T) {
	f := serving(3)
	f.register("stray")
	f.look()
	require.Equal(t, 4, f.Census(f.now).Usable, "a list may be late")
	f.run(2 * time.Minute)
	require.Equal(t, 4, f.Census(f.now).Usable)
	f.kinds()
	f.pass(10 * time.Second)
	c := f.Census(f.now)
	require.Equal(t, 1, c.Zombies)
	require.Equal(t, 3, c.Usable)
	require.Equal(t, 3, c.Live)
	require.Equal(t, 1, f.Strangers(f.now))
	require.Equal(t, []ChangeKind{TurnedZombie}, f.kinds())
	require.Equal(t, "stray", f.Leaving(f.now)[0].Instance, "it gets no more jobs")
	f.ack("stray")
	f.run(time.Hour)
	require.Empty(t, f.Removals(f.now, true), "nothing can end it by name")

	f.launch("stray") // it is the group's after all
	f.pass(time.Second)
	require.Equal(t, Draining, f.Instances["stray"].Phase)
	require.Len(t, f.TakeBack(1), 1)
	require.Equal(t, 4, f.Census(f.now).Usable)
}

func TestAZombieThatLeavesIsForgotten(t *testing.T) {
	f := serving(3)
	f.register("stray")
	f.look()
	f.run(130 * time.Second)
	require.Equal(t, 1, f.Census(f.now).Zombies)
	f.machines["stray"].Connected = false
	f.pass(time.Minute)
	require.NotContains(t, f.Instances, "stray")
	f.pass(time.Minute)
	require.NotContains(t, f.Instances, "stray", "its record may stay behind")
}

func TestWhereMostNamesDoNotMatchNobodyIsDrainedOrRemoved(t *testing.T) {
	f := newFleet()
	f.pass(time.Minute)
	f.launch("i-1", "i-2")
	f.register("host-1", "host-2") // their own names for the same instances
	f.look()
	for range 60 {
		f.run(time.Minute)
		require.Empty(t, f.Leaving(f.now))
		require.Empty(t, f.Removals(f.now, true), "I1: the machine of each may be one of those")
	}
	require.Equal(t, 2, f.Strangers(f.now), "a person has to look")
	require.Equal(t, 2, f.Census(f.now).BootFailed)
}

func TestX19_ANewOwnerWithoutAMemorySweepsWhatItFinds(t *testing.T) {
	f := newFleet()
	f.launch("idle", "busy", "dead")
	f.register("idle", "busy")
	f.machines["busy"].Busy = 1
	f.now = f.now.Add(24 * time.Hour) // under an earlier owner, of which nothing is left
	f.Roster = New(rules(), f.now)
	f.pass(0)
	require.Equal(t, map[string]Phase{"idle": Usable, "busy": Usable, "dead": Booting}, f.phases())
	require.Empty(t, f.Removals(f.now, true), "not before everybody had time to be heard")
	f.pass(46 * time.Second)
	require.Equal(t, BootFailed, f.Instances["dead"].Phase)
	require.Equal(t, []Removal{{"dead", NeverRegistered}}, f.Removals(f.now, true))
	require.Equal(t, "idle", f.Drain(f.now, 5)[0].Instance)
	f.ack("idle")
	f.pass(2 * time.Second)
	require.Contains(t, f.Removals(f.now, true), Removal{"idle", Idle})
}

// The store has lost everything: the pool's memory, and the records of the machines. They
// are heard again with their next heartbeats; until then nobody may take them for boots
// that have failed, and launch them once more.
func TestI3_MachinesThatAreNotHeardYetHaveNotFailedToBoot(t *testing.T) {
	f := newFleet()
	f.launch("old")
	f.now = f.now.Add(24 * time.Hour)
	f.Roster = New(rules(), f.now)
	f.look()
	f.now = f.now.Add(44 * time.Second)
	f.look()
	require.Equal(t, 1, f.Census(f.now).Booting)
	f.register("old")
	f.look()
	require.Equal(t, 1, f.Census(f.now).Usable)
	require.Empty(t, f.Removals(f.now, true))
}

func TestX04_AScaleInThatWasHalfDoneIsResumed(t *testing.T) {
	f := serving(2)
	f.pass(10 * time.Minute)
	require.Len(t, f.Drain(f.now, 1), 1)
	data, err := json.Marshal(f.Roster) // persisted, then killed before the order went out
	require.NoError(t, err)
	var kept Roster
	require.NoError(t, json.Unmarshal(data, &kept))
	f.now = f.now.Add(5 * time.Second)
	f.Roster = New(rules(), f.now)
	f.Adopt(kept)
	f.pass(0)
	require.Equal(t, Draining, f.Instances["i00"].Phase)
	f.pass(29 * time.Second)
	back := f.SecondLook(f.now)
	require.Len(t, back, 1, "nobody acknowledges what nobody was told: it is taken back, and chosen again")
	require.Len(t, f.Drain(f.now, 1), 1)
	f.ack("i00")
	f.pass(2 * time.Second)
	require.Equal(t, []Removal{{"i00", Idle}}, f.Removals(f.now, true))
}

// What leaves for good never comes back as capacity, and is never taken back.
func TestWhatLeavesForGoodNeverComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := serving(4)
		f.rules.MaxAge = 2 * time.Hour
		gone := map[string]bool{}
		id := func(t *rapid.T) string { return fmt.Sprintf("i%02d", rapid.IntRange(0, 3).Draw(t, "id")) }
		t.Repeat(map[string]func(*rapid.T){
			"warn": func(t *rapid.T) {
				f.machines[id(t)].InterruptionKind = rapid.SampledFrom([]string{"spot", "rebalance", "maintenance", "terminating"}).Draw(t, "kind")
			},
			"complain": func(t *rapid.T) { f.machines[id(t)].Unhealthy = rapid.SampledFrom([]string{"", "ill"}).Draw(t, "why") },
			"check": func(t *rapid.T) {
				f.list[rapid.IntRange(0, 3).Draw(t, "nth")].Unhealthy = rapid.Bool().Draw(t, "unhealthy")
			},
			"work":  func(t *rapid.T) { f.machines[id(t)].Busy = rapid.IntRange(0, 2).Draw(t, "busy") },
			"cut":   func(t *rapid.T) { m := f.machines[id(t)]; m.Connected = !m.Connected },
			"drain": func(*rapid.T) { f.Drain(f.now, 1) },
			"back":  func(*rapid.T) { f.TakeBack(1) },
			"pass": func(t *rapid.T) {
				f.pass(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute}).Draw(t, "d"))
			},
			"": func(t *rapid.T) {
				f.look()
				for _, o := range append(f.SecondLook(f.now), f.Leaving(f.now)...) {
					require.True(t, o.On || !gone[o.Instance])
				}
				for i, in := range f.Instances {
					gone[i] = gone[i] || in.Leaves != ""
					require.False(t, gone[i] && (in.Phase == Usable || in.Phase == Draining))
				}
			},
		})
	})
}

func TestX03_WhatTheLastListDoesNotHaveIsNotChosen(t *testing.T) {
	f := serving(2)
	f.run(10 * time.Minute)
	f.list = f.list[1:]
	f.pass(time.Second)
	require.Equal(t, "i01", f.Drain(f.now, 5)[0].Instance)
	require.Empty(t, f.Drain(f.now, 5))
	require.Equal(t, Usable, f.Instances["i00"].Phase, "it is heard, and serves on")
}

func TestX16_BootsThatFailFastOpenTheBreaker(t *testing.T) {
	f := newFleet()
	f.pass(time.Minute)
	for i := range 3 {
		require.Equal(t, -1, f.Boot.Clamp(f.now), "%d failures may be chance", i)
		f.launch("a")
		f.look()
		f.list = nil
		f.pass(5 * time.Second) // its start script gave up, and took the group's number with it
		f.WriteOff(f.now, 1)
	}
	require.Zero(t, f.Boot.Clamp(f.now))
	require.Equal(t, f.now.Add(5*time.Minute), f.Boot.Until)
}
