package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestC31Bounds(t *testing.T) {
	runCases(t, []decideCase{
		{
			name: "the group's max is below ours", rules: func(p *policy.Policy) { p.Max = 20 },
			seen: policy.Observation{Attributed: 12, GroupMax: 5},
			want: want{desired: 5, launch: 5, target: 5, reason: policy.ReasonDemand, limited: policy.ReasonProviderMax},
		},
		{
			name: "raised again", rules: func(p *policy.Policy) { p.Max = 20 },
			seen: policy.Observation{Running: 5, Attributed: 7, Usable: 5, InUse: 5, GroupMax: 20},
			want: want{desired: 12, launch: 7, target: 12, reason: policy.ReasonDemand},
		},
		{
			name: "lowered below what lives: idle ones go, busy ones stay",
			seen: policy.Observation{Running: 6, Usable: 8, InUse: 6, Removable: 2, GroupMax: 5},
			want: want{desired: 6, remove: 2, reason: policy.ReasonIdle, limited: policy.ReasonDemand},
		},
		{
			name: "and nothing new is launched", rules: func(p *policy.Policy) { p.Max = 5 },
			seen: policy.Observation{Running: 8, Attributed: 3, Usable: 8, InUse: 8},
			want: want{desired: 8, reason: policy.ReasonDemand, limited: policy.ReasonDemand},
		},
		{
			name: "below our min without jobs", rules: func(p *policy.Policy) { p.Min = 3 },
			want: want{desired: 3, launch: 3, target: 3, reason: policy.ReasonMin},
		},
		{
			name: "not below our min", rules: func(p *policy.Policy) { p.Min = 3 },
			seen: policy.Observation{Usable: 5, Removable: 5},
			want: want{desired: 3, remove: 2, reason: policy.ReasonIdle},
		},
		{
			name: "at min", rules: func(p *policy.Policy) { p.Min = 3 }, seen: policy.Observation{Usable: 3, Removable: 3},
			want: want{desired: 3, reason: policy.ReasonMin},
		},
		{
			name: "not below the group's min", seen: policy.Observation{Usable: 5, Removable: 5, GroupMin: 4},
			want: want{desired: 4, remove: 1, reason: policy.ReasonIdle},
		},
		{
			name: "the group's min is above our max", rules: func(p *policy.Policy) { p.Max = 2 },
			seen: policy.Observation{Usable: 5, Removable: 5, GroupMin: 5},
			want: want{desired: 5, reason: policy.ReasonConflict},
		},
		{
			name: "the group's min is above our max, and jobs want more", rules: func(p *policy.Policy) { p.Max = 2 },
			seen: policy.Observation{Running: 5, Attributed: 4, Usable: 5, InUse: 5, GroupMin: 5},
			want: want{desired: 5, reason: policy.ReasonConflict, limited: policy.ReasonConflict},
		},
		{
			name: "our min is above the group's max", rules: func(p *policy.Policy) { p.Min = 7 },
			seen: policy.Observation{Usable: 3, GroupMax: 3},
			want: want{desired: 3, reason: policy.ReasonProviderMax, limited: policy.ReasonProviderMax},
		},
	})
}

func TestC33SomebodyElseLowersTheGroup(t *testing.T) {
	p := rules(nil)
	busy := policy.Observation{Running: 8, Usable: 8, InUse: 8}
	_, s := policy.Decide(p, policy.State{}, seen(busy), t0)

	lowered := seen(busy)
	lowered.GroupDesired = 2
	d, s := policy.Decide(p, s, lowered, t0.Add(5*time.Second))
	check(t, want{desired: 8, target: 8, reason: policy.ReasonDrift}, d)

	cooled := lowered
	cooled.CooledOff = t0.Add(time.Hour)
	d, s = policy.Decide(p, s, cooled, t0.Add(10*time.Second))
	require.Equal(t, 2, d.GroupTarget, "no call within the cool-off")

	lowered.Running, lowered.InUse, lowered.Removable = 0, 0, 8
	d, s = policy.Decide(p, s, lowered, t0.Add(15*time.Second))
	check(t, want{desired: 8, target: 8, reason: policy.ReasonDrift, limited: policy.ReasonDrift}, d)

	// What left the group by our own removals is no drift.
	d, s = policy.Decide(p, s, seen(policy.Observation{Usable: 5, Ending: 3, InUse: 5, Running: 5}), t0.Add(20*time.Second))
	check(t, want{desired: 5, target: 5, reason: policy.ReasonSteady}, d)

	// A machine that the group doesn't know of must not raise it, tick by tick.
	foreign := seen(policy.Observation{Usable: 6, InUse: 6, Running: 6, GroupDesired: 5})
	d, _ = policy.Decide(p, s, foreign, t0.Add(25*time.Second))
	check(t, want{desired: 6, target: 5, reason: policy.ReasonSteady}, d)
}
