package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler/policy"
)

// An instance that is gone from the list, with the group's number, is no reason to
// raise the number again; one that the number still stands for is counted.
func TestWhatIsNoLongerListedIsNotAskedForAgain(t *testing.T) {
	decide := func(o policy.Observation) policy.Decision {
		s := policy.State{Held: 4, GroupSeen: true}
		d, _ := policy.Decide(rules(nil), s, seen(o), t0)
		return d
	}
	d := decide(policy.Observation{Usable: 4, InUse: 3, Running: 3, Absent: 1, GroupDesired: 3})
	require.NotEqual(t, policy.ReasonDrift, d.Reason, "somebody ended one and lowered the number: no drift")
	require.Equal(t, 3, d.GroupTarget)

	d = decide(policy.Observation{Usable: 4, InUse: 4, Running: 4, GroupDesired: 3})
	require.Equal(t, 4, d.GroupTarget, "it was only lowered: all four are listed")

	d = decide(policy.Observation{Usable: 2, InUse: 2, Running: 2, Leaving: 1, Absent: 1, Attributed: 1, GroupDesired: 2})
	require.Equal(t, 1, d.Launch)
	require.Equal(t, 3, d.GroupTarget, "the one that left is not in the number any more")

	d = decide(policy.Observation{Usable: 2, InUse: 2, Running: 2, Leaving: 1, Absent: 1, Attributed: 1, GroupDesired: 3})
	require.Equal(t, 4, d.GroupTarget, "the number still stands for it: the group replaces it")
}

// What no list has had yet is not asked for again either: it may have ended with the
// number. As soon as it is listed it is.
func TestC33_WhatIsNotListedYetIsAskedForAgainOnceItIs(t *testing.T) {
	s := policy.State{Held: 3, GroupSeen: true}
	unlisted := policy.Observation{Usable: 3, InUse: 3, Running: 3, Absent: 3, GroupDesired: 1}
	d, s := policy.Decide(rules(nil), s, seen(unlisted), t0)
	require.Equal(t, 1, d.GroupTarget)
	listed := unlisted
	listed.Absent = 0
	d, s = policy.Decide(rules(nil), s, seen(listed), t0)
	require.Equal(t, policy.ReasonDrift, d.Reason)
	require.Equal(t, 3, d.GroupTarget)

	gone := policy.Observation{Usable: 1, InUse: 1, Running: 1, GroupDesired: 1}
	_, s = policy.Decide(rules(nil), s, seen(gone), t0)
	listed.GroupDesired = 1
	d, _ = policy.Decide(rules(nil), s, seen(listed), t0)
	require.Equal(t, 1, d.GroupTarget, "the two were gone: what is more than the group ever had is not its own")
}

func TestAProbeUnderWayIsWhyJobsWait(t *testing.T) {
	o := policy.Observation{Usable: 1, InUse: 1, Running: 1, Booting: 1, Attributed: 1, Overflow: 3, CooledOff: t0.Add(-1), GroupDesired: 2, GroupMax: 100}
	o.LaunchClamp = 0
	d, _ := policy.Decide(rules(nil), policy.State{}, o, t0)
	require.Equal(t, policy.ReasonHoldCooledOff, d.LimitedBy)
}
