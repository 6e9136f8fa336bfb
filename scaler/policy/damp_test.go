package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestC13DampingOfScaleIn(t *testing.T) {
	idle := policy.Observation{Usable: 10, Removable: 10}
	runCases(t, []decideCase{
		{
			name: "tolerance at its edge", rules: func(p *policy.Policy) { p.Tolerance = 0.2 },
			seen: policy.Observation{Running: 8, Usable: 10, InUse: 8, Removable: 2},
			want: want{desired: 10, reason: policy.ReasonTolerance, limited: policy.ReasonTolerance},
		},
		{
			name: "beyond tolerance", rules: func(p *policy.Policy) { p.Tolerance = 0.2 },
			seen: policy.Observation{Running: 7, Usable: 10, InUse: 7, Removable: 3},
			want: want{desired: 7, remove: 3, reason: policy.ReasonIdle},
		},
		{
			name: "tolerance never keeps from scaling out", rules: func(p *policy.Policy) { p.Tolerance = 1 },
			seen: policy.Observation{Attributed: 1, Running: 9, Usable: 9, InUse: 9},
			want: want{desired: 10, launch: 1, reason: policy.ReasonDemand},
		},
		{
			name: "cooldown of scale-in", rules: func(p *policy.Policy) { p.In.Cooldown = time.Minute },
			state: policy.State{LastInAt: t0.Add(-59 * time.Second)}, seen: idle,
			want: want{desired: 10, reason: policy.ReasonCooldown, limited: policy.ReasonCooldown},
		},
		{
			name: "cooldown of scale-in is over", rules: func(p *policy.Policy) { p.In.Cooldown = time.Minute },
			state: policy.State{LastInAt: t0.Add(-time.Minute)}, seen: idle,
			want: want{remove: 10, reason: policy.ReasonIdle},
		},
		{
			name: "scale-in doesn't wait for the cooldown of scale-out", rules: func(p *policy.Policy) { p.Out.Cooldown = time.Hour },
			state: policy.State{LastOutAt: t0.Add(-time.Second)}, seen: idle,
			want: want{remove: 10, reason: policy.ReasonIdle},
		},
		{
			name: "cooldown of scale-out holds launches and not drains", rules: func(p *policy.Policy) { p.Out.Cooldown = time.Hour },
			state: policy.State{LastOutAt: t0.Add(-time.Second)}, seen: policy.Observation{Attributed: 3, Draining: 1},
			want: want{desired: 1, undrain: 1, reason: policy.ReasonDemand, limited: policy.ReasonCooldown},
		},
		{
			name: "at most 10 removals per tick", rules: func(p *policy.Policy) { p.Max = 30 },
			seen: policy.Observation{Usable: 30, Removable: 30},
			want: want{desired: 20, remove: 10, reason: policy.ReasonIdle, limited: policy.ReasonStepLimit},
		},
		{
			name: "step limit in", rules: func(p *policy.Policy) { p.In.StepLimit = 3 }, seen: idle,
			want: want{desired: 7, remove: 3, reason: policy.ReasonIdle, limited: policy.ReasonStepLimit},
		},
		{
			name: "step limit out, drains on top", rules: func(p *policy.Policy) { p.Out.StepLimit = 3 },
			seen: policy.Observation{Attributed: 9, Draining: 2},
			want: want{desired: 5, undrain: 2, launch: 3, target: 5, reason: policy.ReasonDemand, limited: policy.ReasonStepLimit},
		},
		{
			name: "the step limit holds below the minimum too", rules: func(p *policy.Policy) { p.Out.StepLimit, p.Min = 3, 8 },
			want: want{desired: 3, launch: 3, target: 3, reason: policy.ReasonMin, limited: policy.ReasonStepLimit},
		},
		{
			name: "a ready instance isn't ended while one boots for its job",
			seen: policy.Observation{Attributed: 1, Usable: 1, Removable: 1, Booting: 1},
			want: want{desired: 2, reason: policy.ReasonDemand, limited: policy.ReasonDemand},
		},
	})
}

func TestC14HeadroomIsKeptAndNotMore(t *testing.T) {
	runCases(t, []decideCase{
		{
			name: "idle_count", rules: func(p *policy.Policy) { p.IdleCount = 2 },
			seen: policy.Observation{Running: 3, Usable: 3, InUse: 3},
			want: want{desired: 5, launch: 2, target: 5, reason: policy.ReasonHeadroom},
		},
		{
			name: "the larger of the two counts", rules: func(p *policy.Policy) { p.IdleCount, p.IdleFactor, p.Max = 2, 0.1, 50 },
			seen: policy.Observation{Running: 30, Usable: 30, InUse: 30},
			want: want{desired: 33, launch: 3, target: 33, reason: policy.ReasonHeadroom},
		},
		{
			name: "no idle_count: a used-up instance is not replaced",
			seen: policy.Observation{Leaving: 1},
			want: want{target: 1, reason: policy.ReasonSteady},
		},
		{
			name:  "with the step rule it is on top of what is in use, not of what is there",
			rules: func(p *policy.Policy) { p.Need, p.IdleCount = policy.Step, 2 },
			seen:  policy.Observation{Running: 1, Usable: 3, InUse: 1, Removable: 2},
			want:  want{desired: 3, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization},
		},
	})
}

func TestStabilizationTakesTheHighestForInAndTheLowestForOut(t *testing.T) {
	p := rules(func(p *policy.Policy) { p.In.Stabilization, p.Out.Stabilization = 5*time.Minute, time.Minute })
	var s policy.State
	var d policy.Decision
	at := func(after time.Duration, o policy.Observation) {
		d, s = policy.Decide(p, s, seen(o), t0.Add(after))
	}
	at(0, policy.Observation{Running: 6, Usable: 8, InUse: 6})
	at(100*time.Second, policy.Observation{Running: 2, Usable: 8, InUse: 2, Removable: 6})
	check(t, want{desired: 6, remove: 2, reason: policy.ReasonIdle, limited: policy.ReasonStabilization}, d)
	at(290*time.Second, policy.Observation{Running: 2, Usable: 6, InUse: 2, Removable: 4})
	check(t, want{desired: 6, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization}, d)
	at(6*time.Minute, policy.Observation{Running: 2, Usable: 6, InUse: 2, Removable: 4})
	check(t, want{desired: 2, remove: 4, reason: policy.ReasonIdle}, d)

	at(6*time.Minute+10*time.Second, policy.Observation{Running: 2, Attributed: 3, Usable: 2, InUse: 2})
	check(t, want{desired: 2, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization}, d)
	at(7*time.Minute+5*time.Second, policy.Observation{Running: 2, Attributed: 5, Usable: 2, InUse: 2})
	check(t, want{desired: 5, launch: 3, reason: policy.ReasonDemand, limited: policy.ReasonStabilization}, d)
}

func TestUnknownNeverShortensTheStabilizationWindow(t *testing.T) {
	p := rules(func(p *policy.Policy) { p.In.Stabilization = 5 * time.Minute })
	idle := seen(policy.Observation{Usable: 4, Removable: 4})
	dark := idle
	dark.DemandAge = policy.Absent
	_, s := policy.Decide(p, policy.State{}, dark, t0)
	d, s := policy.Decide(p, s, idle, t0.Add(time.Minute))
	require.Equal(t, policy.ReasonStabilization, d.Reason, "%s", story(d))
	d, _ = policy.Decide(p, s, idle, t0.Add(5*time.Minute))
	require.Equal(t, 4, d.Remove, "%s", story(d))
}

func TestPercentBudgetIsOfTheWindowsPeak(t *testing.T) {
	p := rules(func(p *policy.Policy) { p.InPercentBudget, p.Max = 25, 100 })
	var s policy.State
	left, removed := 20, []int(nil)
	for tick := range 15 { // a tick each 10 s: more than two windows of a minute
		var d policy.Decision
		d, s = policy.Decide(p, s, seen(policy.Observation{Usable: left, Removable: left}), t0.Add(time.Duration(tick)*10*time.Second))
		left -= d.Remove
		removed = append(removed, d.Remove)
	}
	require.Equal(t, []int{5, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 3, 0, 0}, removed)

	d, _ := policy.Decide(p, policy.State{}, seen(policy.Observation{Usable: 1, Removable: 1}), t0)
	require.Equal(t, 1, d.Remove, "a quarter of one instance is one, or the last would never go")
}

func TestAClockSetBackBlocksNoLongerThanTheRule(t *testing.T) {
	p := rules(func(p *policy.Policy) { p.Out.Cooldown = time.Minute })
	s := policy.State{LastOutAt: t0.Add(24 * time.Hour)}
	jobs := seen(policy.Observation{Attributed: 1})
	d, s := policy.Decide(p, s, jobs, t0)
	require.Equal(t, policy.ReasonCooldown, d.Reason)
	d, _ = policy.Decide(p, s, jobs, t0.Add(time.Minute))
	require.Equal(t, 1, d.Launch)
}

// What was seen just now is not forgotten because a clock goes behind that one, as that
// of the next owner may.
func TestWhatWasSeenByAClockAheadStillCounts(t *testing.T) {
	const behind = -10 * time.Second
	p := rules(func(p *policy.Policy) { p.In.Stabilization, p.Out.Stabilization = 5*time.Minute, time.Minute })
	busy := seen(policy.Observation{Running: 4, Usable: 4, InUse: 4})
	idle := seen(policy.Observation{Usable: 4, Removable: 4})
	_, s := policy.Decide(p, policy.State{}, busy, t0)
	d, s := policy.Decide(p, s, idle, t0.Add(behind))
	require.Equal(t, policy.ReasonStabilization, d.Reason, "%s", story(d))
	d, _ = policy.Decide(p, s, idle, t0.Add(behind+5*time.Minute))
	require.Equal(t, 4, d.Remove, "no longer than the rule: %s", story(d))

	_, s = policy.Decide(p, policy.State{}, seen(policy.Observation{}), t0)
	jobs := seen(policy.Observation{Attributed: 2})
	d, s = policy.Decide(p, s, jobs, t0.Add(behind))
	require.Equal(t, policy.ReasonStabilization, d.Reason, "%s", story(d))
	d, _ = policy.Decide(p, s, jobs, t0.Add(behind+time.Minute))
	require.Equal(t, 2, d.Launch, "%s", story(d))

	p = rules(func(p *policy.Policy) { p.InPercentBudget, p.Max = 25, 100 })
	many := seen(policy.Observation{Usable: 20, Removable: 20})
	d, s = policy.Decide(p, policy.State{}, many, t0)
	require.Equal(t, 5, d.Remove)
	d, _ = policy.Decide(p, s, many, t0.Add(behind))
	require.Zero(t, d.Remove, "the budget is spent: %s", story(d))
}

// A day of patience with scale-in makes scale-out no later.
func TestALongWindowOfOneDirectionDelaysTheOtherNoLonger(t *testing.T) {
	for _, c := range []struct{ in, out time.Duration }{{24 * time.Hour, 30 * time.Second}, {30 * time.Second, 24 * time.Hour}} {
		p := rules(func(p *policy.Policy) { p.In.Stabilization, p.Out.Stabilization = c.in, c.out })
		before, after := policy.Observation{}, policy.Observation{Attributed: 2}
		if c.in < c.out {
			before, after = policy.Observation{Running: 2, Usable: 2, InUse: 2}, policy.Observation{Usable: 2, Removable: 2}
		}
		_, s := policy.Decide(p, policy.State{}, seen(before), t0)
		for second := 1; second <= 30; second++ {
			var d policy.Decision
			d, s = policy.Decide(p, s, seen(after), t0.Add(time.Duration(second)*time.Second))
			require.Equal(t, second == 30, d.Launch+d.Remove == 2, "after %d s: %s", second, story(d))
		}
	}
}

// The state stays small when a reload makes a window longer.
func TestALongerWindowIsAsSmall(t *testing.T) {
	var s policy.State
	for tick := range 900 {
		p := rules(func(p *policy.Policy) { p.In.Stabilization, p.Out.Stabilization = time.Minute, time.Minute })
		if tick > 120 {
			p.In.Stabilization, p.Out.Stabilization = 10*time.Minute, 10*time.Minute
		}
		_, s = policy.Decide(p, s, seen(policy.Observation{Running: 2, Usable: 2, InUse: 2}), t0.Add(time.Duration(tick)*time.Second))
		require.LessOrEqual(t, len(s.Window), 60)
		require.LessOrEqual(t, len(s.OutWindow), 60)
	}
}
