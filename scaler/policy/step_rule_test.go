package policy_test

import (
	"testing"
	"time"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestStepRuleB2(t *testing.T) {
	step := func(n int) func(*policy.Policy) {
		return func(p *policy.Policy) { p.Need, p.Step, p.Min, p.Max = policy.Step, n, 3, 10 }
	}
	longBelow := policy.State{BelowSince: t0.Add(-15 * time.Minute)}
	runCases(t, []decideCase{
		{
			name: "jobs = runners: out", rules: step(2), seen: policy.Observation{Running: 5, Usable: 5, InUse: 5},
			want: want{desired: 7, launch: 2, target: 7, reason: policy.ReasonDemand},
		},
		{
			name: "what boots counts: no second step", rules: step(2), seen: policy.Observation{Running: 5, Usable: 5, InUse: 5, Booting: 2},
			want: want{desired: 7, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization},
		},
		{
			name: "runners − 1: stay", rules: step(1), state: longBelow, seen: policy.Observation{Running: 4, Usable: 5, InUse: 4, Removable: 1},
			want: want{desired: 5, reason: policy.ReasonSteady},
		},
		{
			name: "runners − 2 for 15 min: in", rules: step(1), state: longBelow, seen: policy.Observation{Running: 3, Usable: 5, InUse: 3, Removable: 2},
			want: want{desired: 4, remove: 1, reason: policy.ReasonIdle},
		},
		{
			name: "runners − 2 for less: stay", rules: step(1), state: policy.State{BelowSince: t0.Add(-15*time.Minute + 1)},
			seen: policy.Observation{Running: 3, Usable: 5, InUse: 3, Removable: 2},
			want: want{desired: 5, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization},
		},
		{
			name: "no more than keeps a place free", rules: step(4), state: longBelow, seen: policy.Observation{Running: 3, Usable: 6, InUse: 3, Removable: 3},
			want: want{desired: 4, remove: 2, reason: policy.ReasonIdle},
		},
		{
			name: "each step waits anew", rules: step(1), state: policy.State{BelowSince: t0.Add(-time.Hour), LastInAt: t0.Add(-time.Minute)},
			seen: policy.Observation{Running: 3, Usable: 6, InUse: 3, Removable: 3},
			want: want{desired: 6, reason: policy.ReasonStabilization, limited: policy.ReasonStabilization},
		},
		{
			name: "nothing to do: all, in a row, to min", rules: step(1), state: policy.State{BelowSince: t0.Add(-time.Hour), LastInAt: t0.Add(-time.Minute)},
			seen: policy.Observation{Usable: 9, Removable: 9},
			want: want{desired: 3, remove: 6, reason: policy.ReasonIdle},
		},
		{
			name: "B4: the last instance before max is reachable with step 3", rules: step(3), seen: policy.Observation{Running: 9, Usable: 9, InUse: 9},
			want: want{desired: 10, launch: 1, target: 10, reason: policy.ReasonDemand, limited: policy.ReasonMax},
		},
		{
			name: "a partial view is no proof of being below", rules: step(1), state: longBelow,
			seen: policy.Observation{Running: 3, Usable: 5, InUse: 3, Removable: 2, DemandAge: policy.Partial},
			want: want{desired: 5, reason: policy.ReasonSteady},
		},
	})
}
