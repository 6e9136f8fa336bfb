package scaler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// busy is n instances that are in service, each with a job.
func busy(t *testing.T, n int) *rig {
	t.Helper()
	r := newRig(newWorld())
	r.pend(n)
	r.tick()
	r.boot()
	r.classes = nil
	for i := range r.machines {
		r.machines[i].Busy = 1
	}
	for range 12 { // past the warm-up
		r.pass(5 * time.Second)
		r.tick()
	}
	r.taken()
	r.told = nil
	return r
}

func (r *rig) next(d time.Duration) []string {
	r.pass(d)
	r.tick()
	return r.taken()
}

func throttled(after time.Duration) error {
	err := pluginsdk.Errorf(pluginsdk.KindThrottled, "rate exceeded")
	err.RetryAfter = after
	return err
}

func TestC29_WhatReplacesAnInterruptedInstanceIsNotWaitedFor(t *testing.T) {
	r := busy(t, 3)
	r.machines[0].InterruptionKind, r.machines[0].InterruptionDeadline = router.InterruptionSpot, r.now.Add(2*time.Minute)
	require.Equal(t, []string{"drainmi-0=true", "set4|3"}, r.next(5*time.Second), "drained and replaced within a tick")
	require.Equal(t, 1, r.pool.Status().Lost)
	require.Equal(t, roster.Noticed, r.told[0].Kind)
	require.Empty(t, r.next(5*time.Second), "I3: once")
}

func TestAProvidersNoticeDoesTheSame(t *testing.T) {
	r := busy(t, 2)
	r.pool.Interrupted(pluginsdk.Interruption{InstanceID: "i-0", Kind: pluginsdk.SpotInterruption, Deadline: r.now.Add(time.Minute)})
	require.Equal(t, []string{"drainmi-0=true", "set3|2"}, r.next(time.Second))
	r = busy(t, 2)
	r.pool.Interrupted(pluginsdk.Interruption{InstanceID: "i-0", Kind: "of a newer plugin"})
	require.Equal(t, []string{"drainmi-0=true"}, r.next(time.Second))
	r = busy(t, 2)
	r.pool.Interrupted(pluginsdk.Interruption{InstanceID: "i-0", Kind: pluginsdk.Rebalance})
	require.Empty(t, r.next(time.Second), "it may be taken: no job is at stake yet")
}

func TestC34_AHeldInstanceIsDrainedWaitedForAndLetGo(t *testing.T) {
	r := busy(t, 2)
	r.list[0].State, r.list[0].Hook = pluginsdk.StateDeleting, pluginsdk.TerminationHook
	r.status.Desired = 1 // whoever ended it lowered the number with it
	require.Equal(t, []string{"drainmi-0=true"}, r.next(5*time.Second))
	require.Equal(t, 1, r.pool.Status().Ending)
	require.Equal(t, 1, r.pool.Status().InService)
	r.machines[0].Draining, r.machines[0].DrainAckedAt = true, r.now
	for range 480 { // 40 minutes
		require.Empty(t, r.next(5*time.Second), "its job goes on")
	}
	r.machines[0].Busy = 0
	r.fail["complete"] = context.DeadlineExceeded
	require.Equal(t, []string{"complete[i-0]"}, r.next(5*time.Second), "by the next tick")
	require.False(t, r.pool.state.CoolOff.Active(r.now), "it says nothing of whether the group launches")
	delete(r.fail, "complete")
	for range 11 {
		require.Empty(t, r.next(5*time.Second), "nobody knows what came of it")
	}
	require.Equal(t, []string{"complete[i-0]"}, r.next(5*time.Second), "and it is held still")
}

func TestAHookThatTheProviderCannotCompleteIsNotAskedForAgain(t *testing.T) {
	r := busy(t, 1)
	r.list[0].Hook = pluginsdk.LaunchHook
	r.fail["complete"] = pluginsdk.Errorf(pluginsdk.KindUnsupported, "no hooks")
	require.Equal(t, []string{"complete[i-0]"}, r.next(5*time.Second))
	for range 100 {
		require.Empty(t, r.next(5*time.Second))
	}
}

func TestAHaltIsAReasonAndNothingIsDrainedForIt(t *testing.T) {
	r := busy(t, 2)
	r.machines[0].Busy = 0
	r.status.RemovalHalt = "spillway-owner is somebody else"
	for range 200 {
		require.Empty(t, r.next(5*time.Second))
	}
	st := r.pool.Status()
	require.Equal(t, policy.ReasonGroupHalt, st.Hold)
	require.Equal(t, "group_halt: the group removes nothing: spillway-owner is somebody else", st.Finding)
	require.Contains(t, st.Decision.Trace[len(st.Decision.Trace)-1].Why, "spillway-owner")

	r.status.RemovalHalt, r.status.LaunchHalt = "", "Launch is suspended"
	r.machines[0].Busy = 1
	r.pend(3)
	require.Empty(t, r.next(5*time.Second))
	require.Equal(t, "group_halt: the group launches nothing: Launch is suspended", r.pool.Status().Finding)
	pic := r.fleet.Observe(context.Background(), r.now, []*Pool{r.pool})
	require.Len(t, pic.Attribution.Overflow, 1, "the jobs are free for other pools")
	r.status.Desired = 1
	require.Empty(t, r.next(5*time.Second), "nor is a number asserted that it would refuse")
	r.status.LaunchHalt, r.status.Desired = "", 2
	require.Equal(t, []string{"set5|2"}, r.next(5*time.Second))
}

func TestX05_AShortThrottleIsWaitedForExactly(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.fail["set"] = throttled(7 * time.Second)
	res := r.tick()
	require.Equal(t, []string{"set2|0"}, r.taken())
	require.False(t, res.Respill || res.Again)
	require.Equal(t, r.now.Add(7*time.Second), res.Wake)
	require.Equal(t, CoolOff{}, r.pool.state.CoolOff)
	require.Equal(t, r.now.Add(7*time.Second), r.pool.Status().WaitTill)
	require.Empty(t, r.next(7*time.Second-time.Millisecond))
	require.Equal(t, policy.ReasonThrottled, r.pool.Status().Hold)
	require.Equal(t, policy.ReasonThrottled, r.pool.Status().Decision.Reason)
	pic := r.fleet.Observe(context.Background(), r.now, []*Pool{r.pool})
	require.Empty(t, pic.Attribution.Overflow, "no job is better off elsewhere for so long")
	require.Equal(t, []string{"set2|0"}, r.next(time.Millisecond), "all of it: no probe of one")
	require.Empty(t, r.next(6*time.Second), "no doubling")
	delete(r.fail, "set")
	require.Equal(t, []string{"set2|0"}, r.next(time.Second))
}

func TestX05_ALongOrUnknownThrottleCoolsOff(t *testing.T) {
	for _, after := range []time.Duration{0, maxShortWait + time.Nanosecond} {
		r := newRig(newWorld())
		r.pend(2)
		r.fail["set"] = throttled(after)
		require.True(t, r.tick().Respill)
		require.True(t, r.pool.state.CoolOff.Active(r.now))
		require.True(t, r.pool.Status().WaitTill.IsZero())
	}
	r := newRig(newWorld())
	r.pend(2)
	r.fail["set"] = throttled(maxShortWait)
	require.False(t, r.tick().Respill)
}

func TestAThrottledRemovalIsAskedForAgainWhenItMayBe(t *testing.T) {
	r := busy(t, 1)
	r.machines[0].Busy = 0
	r.next(10 * time.Minute)
	r.machines[0].Draining, r.machines[0].DrainAckedAt = true, r.now
	r.fail["remove"] = throttled(3 * time.Second)
	require.Equal(t, []string{"remove[i-0]"}, r.next(5*time.Second))
	require.Empty(t, r.next(time.Second))
	require.Equal(t, []string{"remove[i-0]"}, r.next(2*time.Second))
}

func TestAThrottledLookKeepsTheLastView(t *testing.T) {
	r := busy(t, 1)
	r.fail["status"] = throttled(10 * time.Second)
	r.next(5 * time.Second)
	require.Empty(t, r.pool.Status().Finding, "it is not down")
	require.Equal(t, r.now.Add(10*time.Second), r.pool.Status().WaitTill)
	delete(r.fail, "status")
	before := r.pool.Status().LastSuccess
	r.next(5 * time.Second)
	require.Equal(t, before, r.pool.Status().LastSuccess)
	r.next(5 * time.Second)
	require.Equal(t, r.now, r.pool.Status().LastSuccess)
}

func TestOneInstanceThatMayNotGoDoesNotStopLaunches(t *testing.T) {
	r := busy(t, 1)
	r.machines[0].Busy = 0
	r.next(10 * time.Minute)
	r.machines[0].Draining, r.machines[0].DrainAckedAt = true, r.now
	r.fail["remove"] = instanceError("i-0", pluginsdk.Errorf(pluginsdk.KindInvalid, "kept"))
	require.Equal(t, []string{"remove[i-0]"}, r.next(5*time.Second))
	require.False(t, r.pool.state.CoolOff.Active(r.now))
}

// broken is two busy instances, of which one is broken, drained and idle.
func broken(t *testing.T) *rig {
	t.Helper()
	r := busy(t, 2)
	r.machines[0].Unhealthy, r.machines[0].Busy = "the disk is full", 0
	require.Equal(t, []string{"drainmi-0=true"}, r.next(5*time.Second))
	r.machines[0].Draining, r.machines[0].DrainAckedAt = true, r.now
	return r
}

func TestABrokenInstanceIsRemovedByName(t *testing.T) {
	r := broken(t)
	require.Equal(t, []string{"remove[i-0]"}, r.next(5*time.Second))
}

func TestABrokenInstanceIsReplacedInItsPlaceWhereSomethingWouldBeLaunched(t *testing.T) {
	r := broken(t)
	r.pend(2)
	require.Equal(t, []string{"report[i-0]", "set3|2"}, r.next(5*time.Second), "one in its place, one on top")
	require.Equal(t, 2, r.pool.Status().Booting)
	require.Empty(t, r.next(5*time.Second), "I3")
}

func TestABrokenInstanceIsRemovedWhereTheProviderCannotReplaceIt(t *testing.T) {
	r := broken(t)
	r.pend(1)
	r.fail["report"] = pluginsdk.Errorf(pluginsdk.KindUnsupported, "no health checks")
	require.Equal(t, []string{"report[i-0]"}, r.next(5*time.Second))
	require.Equal(t, []string{"remove[i-0]", "set2|1"}, r.next(5*time.Second), "never asked again")
}

func TestC27_AnInstanceThatSomebodyElseEndsIsReplacedWithinATick(t *testing.T) {
	r := busy(t, 3)
	r.list, r.machines = append(r.list[:1:1], r.list[2]), append(r.machines[:1:1], r.machines[2])
	r.status.Desired = 2
	r.pend(1) // the router has put its job back
	r.pass(longSilence)
	require.Equal(t, []string{"set3|2", "forget[mi-1]"}, r.next(0))
	require.Contains(t, r.told, roster.Change{
		Instance: "i-1", Machine: "mi-1", Kind: roster.GoneForeign, Detail: "missing from the list, and the group's number fell with it",
	})
}

// longSilence is longer than a machine may be silent, so that nobody hears it any more.
const longSilence = 46 * time.Second

func TestC33_DriftNamesOldAndNewAndIsUndoneInOneTick(t *testing.T) {
	r := busy(t, 8)
	r.status.Desired = 2
	require.Equal(t, []string{"set8|2"}, r.next(5*time.Second))
	require.Equal(t, roster.Change{Kind: "drift", Detail: "somebody else set desired from 8 to 2"}, r.told[0])
}

func TestC31_AMaximumThatIsRaisedIsUsedAtTheNextLook(t *testing.T) {
	r := newRig(newWorld())
	r.status.Max = 5
	r.pend(9)
	r.tick()
	require.Equal(t, []string{"set5|0"}, r.taken())
	require.True(t, strings.HasPrefix(r.pool.Status().Finding, "provider_max"))
	r.status.Max = 10
	r.next(5 * time.Second)
	r.tick()
	require.Equal(t, 9, r.status.Desired)
}

func TestX23_AProviderThatFailedForLongIsAskedAgain(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.fail["status"] = errors.New("crash loop")
	for range 5000 {
		require.Empty(t, r.next(5*time.Second))
	}
	delete(r.fail, "status")
	require.Equal(t, []string{"set1|0"}, r.next(5*time.Second), "I7: nobody gave up")
}

func TestX20_AnOwnerThatEndsLeavesEverythingAsItIs(t *testing.T) {
	r := busy(t, 2)
	r.epoch = 0 // the lease was given back
	r.machines[0].Busy = 0
	for range 200 {
		require.Empty(t, r.next(5*time.Second))
	}
	next := newRig(r.world)
	r.epoch = 2
	for range 10 {
		next.next(5 * time.Second)
	}
	require.Equal(t, 2, next.status.Desired)
	require.Equal(t, 1, next.pool.Status().Running, "the next owner finds it so")
}
