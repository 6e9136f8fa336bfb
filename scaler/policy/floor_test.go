package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestACountIsAFloorForScaleInOnly(t *testing.T) {
	p := policy.Policy{Max: 20, CapacityPerInstance: 4}
	o := policy.Observation{Usable: 8, Removable: 8, GroupDesired: 8, GroupMax: 20, LaunchClamp: -1}
	for _, c := range []struct{ floor, want int }{{0, 0}, {1, 1}, {8, 2}, {9, 3}, {32, 8}, {33, 8}, {1 << 30, 8}} {
		o.Floor = c.floor
		d, _ := policy.Decide(p, policy.State{}, o, t0)
		require.Equal(t, c.want, d.Desired, "floor %d", c.floor)
		require.Zero(t, d.Launch)
		if c.want > 0 {
			require.Equal(t, policy.ReasonFloor, d.LimitedBy)
		}
	}
}

func TestACountNeverLaunchesAndNothingScalesInBelowIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		x.o.Floor = rapid.IntRange(0, 40).Draw(t, "floor")
		d := x.decide()
		without := x
		without.o.Floor = 0
		require.LessOrEqual(t, d.Launch, without.decide().Launch)
		if d.Direction == policy.In && d.GroupTarget <= x.o.GroupDesired {
			least := min(d.From, (x.o.Floor+x.p.CapacityPerInstance-1)/x.p.CapacityPerInstance)
			require.GreaterOrEqual(t, d.Desired, min(least, x.p.Max, x.o.GroupMax), "not even to the maximum")
		}
	})
}

func TestAHaltedGroupIsNotAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		x.o.NoLaunch, x.o.NoLaunchWhy = rapid.SampledFrom([]policy.Reason{policy.ReasonGroupHalt, policy.ReasonThrottled}).Draw(t, "why"), "it says so"
		d := x.decide()
		require.Zero(t, d.Launch)
		require.LessOrEqual(t, d.GroupTarget, x.o.GroupDesired, "nor is a number asserted that it would refuse")
	})
}

func TestWhatMayHaveBegunKeepsItsPlaceAndAsksForNone(t *testing.T) {
	o := policy.Observation{Running: 1, Attributed: 1, Unsettled: 1, Usable: 1, InUse: 1, Booting: 3, Unfilled: 3, Withdrawable: 3, GroupDesired: 4, GroupMax: 20, LaunchClamp: -1}
	d, _ := policy.Decide(policy.Policy{Max: 20}, policy.State{}, o, t0)
	require.Equal(t, 3, d.Desired)
	require.Equal(t, "1 more jobs wait still, or have just begun", d.Trace[1].Why)
	o.Booting, o.Unfilled, o.Withdrawable, o.GroupDesired = 1, 1, 1, 2
	d, _ = policy.Decide(policy.Policy{Max: 20}, policy.State{}, o, t0)
	require.Zero(t, d.Launch)
	require.Equal(t, policy.None, d.Direction)
}
