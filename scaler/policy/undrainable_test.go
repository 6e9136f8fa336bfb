package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestWhatCannotDrainStaysAndWhatIsNotThereYetIsTakenBack(t *testing.T) {
	cannot := func(o policy.Observation) policy.Observation {
		o.NoScaleIn, o.NoScaleInWhy = policy.ReasonCannotDrain, "nothing makes a runner take no more jobs"
		return o
	}
	runCases(t, []decideCase{
		{
			name: "idle as they are", seen: cannot(policy.Observation{Usable: 8, Removable: 8}),
			want: want{desired: 8, reason: policy.ReasonCannotDrain, limited: policy.ReasonCannotDrain},
		},
		{
			name: "out as any other", seen: cannot(policy.Observation{Usable: 8, InUse: 8, Running: 8, Attributed: 2}),
			want: want{desired: 10, launch: 2, target: 10, reason: policy.ReasonDemand},
		},
		{
			name: "what nobody has got yet", seen: cannot(policy.Observation{Usable: 2, Removable: 2, Booting: 3, Unfilled: 3, Withdrawable: 3, GroupDesired: 5}),
			want: want{desired: 2, withdraw: 3, reason: policy.ReasonIdle, limited: policy.ReasonCannotDrain},
		},
		{
			name: "no more than is too much", seen: cannot(policy.Observation{Usable: 2, InUse: 2, Running: 3, Booting: 3, Unfilled: 3, Withdrawable: 3, GroupDesired: 5}),
			want: want{desired: 3, withdraw: 2, reason: policy.ReasonIdle},
		},
	})
	rapid.Check(t, func(t *rapid.T) {
		x := drawSituation(t)
		x.o.NoScaleIn, x.o.NoScaleInWhy = policy.ReasonCannotDrain, "it says so"
		require.Zero(t, x.decide().Remove)
	})
}

// B2 to B4 by the numbers of the setup that they are from: step 3, at least 3 and at most
// 10 instances, and a count of the running jobs that says only how many there are.
func TestStepRuleFromACountB2B3B4(t *testing.T) {
	rules := func(p *policy.Policy) { p.Need, p.Step, p.Min, p.Max = policy.Step, 3, 3, 10 }
	counted := func(jobs, usable, inUse int) policy.Observation {
		return policy.Observation{Counted: true, Attributed: jobs - inUse, Running: inUse, Usable: usable, InUse: inUse, Removable: usable - inUse}
	}
	long := policy.State{BelowSince: t0.Add(-15 * time.Minute)}
	runCases(t, []decideCase{
		{name: "jobs = runners: a step", rules: rules, seen: counted(3, 3, 3), want: want{desired: 6, launch: 3, target: 6, reason: policy.ReasonDemand}},
		{name: "more jobs than runners: a step", rules: rules, seen: counted(30, 3, 3), want: want{desired: 6, launch: 3, target: 6, reason: policy.ReasonDemand}},
		{name: "the next", rules: rules, seen: counted(6, 6, 6), want: want{desired: 9, launch: 3, target: 9, reason: policy.ReasonDemand}},
		{name: "B4: the last before max", rules: rules, seen: counted(9, 9, 9), want: want{desired: 10, launch: 1, target: 10, reason: policy.ReasonDemand, limited: policy.ReasonMax}},
		{name: "max", rules: rules, seen: counted(10, 10, 10), want: want{desired: 10, reason: policy.ReasonMax, limited: policy.ReasonMax}},
		{name: "runners − 1: stay", rules: rules, state: long, seen: counted(9, 10, 9), want: want{desired: 10, reason: policy.ReasonSteady}},
		{name: "runners − 2: in", rules: rules, state: long, seen: counted(8, 10, 8), want: want{desired: 9, remove: 1, reason: policy.ReasonIdle}},
		{name: "runners − 5: by a step", rules: rules, state: long, seen: counted(5, 10, 5), want: want{desired: 7, remove: 3, reason: policy.ReasonIdle}},
		{name: "nothing runs: to min", rules: rules, state: long, seen: counted(0, 10, 0), want: want{desired: 3, remove: 7, reason: policy.ReasonIdle}},
		{name: "nothing runs, and not for long", rules: rules, seen: counted(0, 10, 0), want: want{desired: 10, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization}},
	})
	d, _ := policy.Decide(policy.Policy{Need: policy.Step, Step: 3, Min: 3, Max: 10}, policy.State{}, seen(counted(3, 3, 3)), t0)
	require.Equal(t, "3 jobs (by a count) fill all 3 places: a step of 3", d.Trace[0].Why)
	d, _ = policy.Decide(policy.Policy{Max: 10}, policy.State{}, seen(counted(4, 3, 3)), t0)
	require.Equal(t, "a count says 4 jobs, 1 per instance, 3 instances in use", d.Trace[0].Why)
}
