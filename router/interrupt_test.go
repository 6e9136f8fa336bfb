package router_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/router"
)

func TestInterruptedMachineGetsNothing(t *testing.T) {
	for _, kind := range []string{router.InterruptionSpot, router.InterruptionMaintenance, router.InterruptionTerminating} {
		d := newDesk(t, newPool("linux", 0, 2))
		d.connect("m1", "linux", 2)
		a := d.runOne()
		require.True(t, d.Interrupt(d.now, "m1", kind, time.Time{}))
		require.Empty(t, d.run(1), "at once")
		require.Equal(t, d.now, d.machine("m1").InterruptedAt)
		require.True(t, d.Finished(d.now, "m1", a.Ref), "it goes on with what it has")
		require.Empty(t, d.Plan(d.now))
	}
}

func TestRebalanceIsOnlyAWarning(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	require.True(t, d.Interrupt(d.now, "m1", router.InterruptionRebalance, time.Time{}))
	require.Len(t, d.run(1), 1)
	require.True(t, d.Interrupt(d.now, "m1", router.InterruptionSpot, time.Time{}))
	require.Empty(t, d.run(1))
}

func TestUnhealthyMachineGetsNothingUntilItIsWell(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	require.True(t, d.SetUnhealthy(d.now, "m1", "disk full"))
	require.False(t, d.SetUnhealthy(d.now, "m1", "disk full"), "no news")
	require.Empty(t, d.run(1))
	require.True(t, d.SetUnhealthy(d.now, "m1", ""))
	require.Len(t, d.Plan(d.now), 1)
	require.False(t, d.SetUnhealthy(d.now, "nobody", "disk full"))
}

func TestInterruptionOfAMachineThatComesWithIt(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	at := d.now.Add(2 * time.Minute)
	d.Connect(d.now, router.Machine{ID: "m1", Pool: "linux", Capacity: 1, InterruptionKind: router.InterruptionSpot, InterruptionDeadline: at}, nil)
	require.Empty(t, d.run(1))
	since := d.now
	d.wait(time.Second)
	d.Connect(d.now, router.Machine{ID: "m1", Pool: "linux", Capacity: 1}, nil)
	require.Equal(t, since, d.machine("m1").InterruptedAt, "a new stream does not take it back")
	require.Equal(t, at, d.machine("m1").InterruptionDeadline)
	require.Empty(t, d.Plan(d.now))
}

// Whatever a machine says, in whatever order: a notice only gets graver, and the
// news are few, so that nobody can keep the scaler busy with it.
func TestNoticesOnlyGetGraver(t *testing.T) {
	gravity := []string{"", router.InterruptionRebalance, router.InterruptionMaintenance, router.InterruptionTerminating, router.InterruptionSpot}
	rank := map[string]int{"nonsense": -1}
	for i, kind := range gravity {
		rank[kind] = i
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t, newPool("linux", 0, 1))
		d.connect("m1", "linux", 1)
		news, worst := 0, 0
		for range rapid.IntRange(1, 60).Draw(rt, "messages") {
			kind := rapid.SampledFrom(append([]string{"nonsense"}, gravity...)).Draw(rt, "kind")
			var deadline time.Time
			if rapid.Bool().Draw(rt, "known") {
				deadline = d.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(rt, "in")) * time.Second)
			}
			d.wait(time.Millisecond)
			d.Heartbeat(d.now, "m1", 0, false, nil)
			before := d.machine("m1")
			changed := d.Interrupt(d.now, "m1", kind, deadline)
			after := d.machine("m1")
			require.Equal(rt, changed, before.InterruptionKind != after.InterruptionKind || before.InterruptionDeadline != after.InterruptionDeadline)
			worst = max(worst, rank[kind])
			require.Equal(rt, gravity[worst], after.InterruptionKind)
			require.Equal(rt, worst > 0, !after.InterruptedAt.IsZero())
			assigned := d.run(1)
			require.Equal(rt, worst <= 1, len(assigned) == 1, "worst %d", worst)
			for _, a := range assigned {
				require.True(rt, d.Finished(d.now, "m1", a.Ref))
			}
			if changed {
				news++
			}
		}
		require.LessOrEqual(rt, news, 8)
	})
}

func TestBelievableDeadline(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		in   time.Duration
		want bool
	}{{2 * time.Minute, true}, {8 * day, true}, {8*day + 1, false}, {-time.Hour, true}, {-time.Hour - 1, false}} {
		got := router.BelievableDeadline(now, now.Add(c.in))
		require.Equal(t, c.want, !got.IsZero(), c.in)
		if c.want {
			require.Equal(t, now.Add(c.in).Truncate(time.Second), got)
		}
	}
	require.Zero(t, router.BelievableDeadline(now, time.Time{}))
}
