package scaler

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
)

// What is coming covers jobs: an error in it is a launch too many, or a job that waits
// for nothing.

func TestI3_OnlyWhatWasComingCanHaveBooted(t *testing.T) {
	o := &offered{offer: offer{Coming: 3, Unfilled: 1}, boots: map[string]bool{"up": false, "boots": true, "boots-too": true}}
	machine := func(instance string) router.Machine {
		return router.Machine{InstanceID: instance, Connected: true, HeardAt: t0}
	}
	booted := func(machines ...router.Machine) int { return o.booted(t0, machines, spillway.SilentAfter) }
	require.Zero(t, booted())
	require.Zero(t, booted(machine("up")), "it was up before, whether it was heard or not")
	require.Equal(t, 1, booted(machine("up"), machine("boots")))
	require.Equal(t, 1, booted(machine("boots"), machine("boots")), "an older process of the same")
	require.Equal(t, 1, booted(machine("new")), "asked for, and not listed yet")
	require.Equal(t, 1, booted(machine("new"), machine("newer")), "only one was asked for: the other is a stranger")
	require.Zero(t, booted(machine("")), "on nobody's instance")
	left := machine("gone")
	left.Connected = false
	require.Zero(t, booted(left), "a record that an instance has left behind")
	left.Connected, left.HeardAt = true, t0.Add(-spillway.SilentAfter)
	require.Zero(t, booted(left))
}

func TestI3_WhatTheGroupReplacesIsComing(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.tick()
	r.boot()
	r.classes = nil
	r.machines[0].Busy, r.machines[1].Busy = 1, 1
	r.tick()
	for range 12 {
		r.pass(time.Minute)
		r.tick()
	}
	r.taken()

	r.list, r.machines[0].Connected = r.list[1:], false // somebody ended it: the group wants two still
	for range 4 {
		r.pass(5 * time.Second)
		r.tick()
	}
	r.pend(1)
	r.tick()
	require.NotContains(t, r.taken(), "set3|2", "one is coming, though we asked for none in a long time")
	for range 12 {
		r.pass(time.Minute)
		r.tick()
	}
	require.Contains(t, r.taken(), "set3|2", "nor does anybody wait for ever")
}

// Two of the four that the group wants were never launched, and may come yet. Then a
// boot that had failed ends, and the number falls with it: as many are coming as before.
func TestI3_WhatFellWithTheNumberHidesNobodyWhoIsComing(t *testing.T) {
	r := newRig(newWorld())
	r.status.RemovalHalt = "suspended"
	r.pend(2)
	r.tick()
	r.list = r.list[:1]
	r.pass(10 * time.Minute)
	r.tick()
	r.tick()
	require.Contains(t, r.taken(), "set4|2", "the one has failed, the other never came")
	r.list = slices.Delete(r.list, 2, 3)
	r.pend(3)
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, 3, r.pool.offer.Load().Coming)
	require.NotContains(t, r.taken(), "set5|4")

	r.list, r.status.Desired = r.list[1:], 3
	r.pass(5 * time.Second)
	r.tick()
	r.tick()
	require.Equal(t, 3, r.pool.offer.Load().Coming)
	require.NotContains(t, r.taken(), "set4|3", "each of the three jobs has its own")
}

// The number fell with an instance that is being ended: another that a short list
// doesn't have is still there.
func TestTheNumberFallsOnceWithEachThatEnds(t *testing.T) {
	r := newRig(newWorld())
	r.pend(4)
	r.tick()
	r.list = r.list[:3]
	r.pass(5 * time.Second)
	r.tick()
	r.list[0].State = pluginsdk.StateDeleting
	r.list, r.status.Desired = r.list[:2], 3
	r.pass(5 * time.Second)
	r.tick()
	require.True(t, r.pool.book.Has("i-2"))
	r.list, r.status.Desired = r.list[:1], 2
	r.pass(5 * time.Second)
	r.tick()
	require.False(t, r.pool.book.Has("i-1") && r.pool.book.Has("i-2"), "now one has ended")
}

func TestI3_ARefusalSaysNothingOfTheCallBefore(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.tick()
	r.list = nil // accepted, and not there yet
	r.fail["set"] = pluginsdk.Errorf(pluginsdk.KindCapacity, "no more of these")
	r.pend(2)
	r.pass(time.Second)
	r.tick()
	require.Equal(t, 1, r.pool.offer.Load().Coming, "the second call was refused, not the first")
	require.True(t, r.pool.state.CoolOff.Active(r.now))
	require.False(t, r.pool.Status().LaunchLost)
	require.NotContains(t, r.taken(), "withdraw1")

	r.status.Failures = []pluginsdk.GroupFailure{{ID: "f", Kind: pluginsdk.KindCapacity, At: r.now}}
	r.pass(5 * time.Second)
	r.tick()
	require.Zero(t, r.pool.offer.Load().Coming, "within the same cool-off the first has failed as well")
	require.True(t, r.pool.Status().LaunchLost)
}

// A job that was to wait for a boot that has failed is attributed anew before anything
// is launched for it: it may be for another pool.
func TestI3_WhoWaitedForWhatFailedIsAttributedAnew(t *testing.T) {
	r := newRig(newWorld())
	ctx := context.Background()
	r.pend(1)
	r.tick()
	r.taken()
	r.pass(10 * time.Minute)
	pic := r.fleet.Observe(ctx, r.now, []*Pool{r.pool})
	require.Equal(t, 1, pic.Attribution.Pools["linux"].Coming)
	res := r.pool.Tick(ctx, r.now, pic)
	require.True(t, res.Offers, "and that is at once")
	require.NotContains(t, r.taken(), "set2|1")
	r.tick()
	require.Contains(t, r.taken(), "set1|0", "nobody else has a place")
}

func TestI5_WithoutTheMachinesNobodyKnowsWhoIsWithoutAPlace(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.tick()
	r.boot()
	r.classes = nil
	r.tick()
	r.taken()
	r.pend(2) // for the two that are idle
	r.fail["machines"] = context.DeadlineExceeded
	r.pass(5 * time.Second)
	r.tick()
	require.Empty(t, r.taken())
}
