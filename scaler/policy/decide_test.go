package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler/policy"
)

var t0 = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// rules are the defaults of the semantics page.
func rules(change func(*policy.Policy)) policy.Policy {
	p := policy.Policy{Max: 10, CapacityPerInstance: 1, IdleTime: 10 * time.Minute, MaxRemovalsPerTick: 10, Step: 1, StepWait: 15 * time.Minute}
	if change != nil {
		change(&p)
	}
	return p
}

// seen completes an observation: a group that agrees with the instances and has
// room, and no clamp.
func seen(o policy.Observation) policy.Observation {
	if o.GroupDesired == 0 {
		o.GroupDesired = o.Usable + o.Booting + o.Draining + o.Leaving
	}
	if o.GroupMax == 0 {
		o.GroupMax = 100
	}
	if o.LaunchClamp == 0 {
		o.LaunchClamp = -1
	}
	return o
}

// want is the part of a decision that a case is about.
type want struct {
	desired                           int
	undrain, launch, withdraw, remove int
	target                            int // GroupTarget; 0 = not looked at
	reason, limited                   policy.Reason
}

func check(t *testing.T, w want, d policy.Decision) {
	t.Helper()
	got := want{d.Desired, d.Undrain, d.Launch, d.Withdraw, d.Remove, d.GroupTarget, d.Reason, d.LimitedBy}
	if w.target == 0 {
		got.target = 0
	}
	require.Equal(t, w, got, "%s", story(d))
}

type decideCase struct {
	name  string
	rules func(*policy.Policy)
	state policy.State
	seen  policy.Observation
	want  want
}

func runCases(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, _ := policy.Decide(rules(c.rules), c.state, seen(c.seen), t0)
			check(t, c.want, d)
		})
	}
}

func TestC01WakesUpFromZero(t *testing.T) {
	runCases(t, []decideCase{
		{
			name: "three jobs, no runner ever registered",
			seen: policy.Observation{Attributed: 3},
			want: want{desired: 3, launch: 3, target: 3, reason: policy.ReasonDemand},
		},
		{
			name:  "four jobs fit on one instance",
			rules: func(p *policy.Policy) { p.CapacityPerInstance = 4 },
			seen:  policy.Observation{Attributed: 3},
			want:  want{desired: 1, launch: 1, target: 1, reason: policy.ReasonDemand},
		},
		{
			name: "an honest zero stays at zero",
			want: want{reason: policy.ReasonSteady},
		},
		{
			name:  "the step rule wakes up too",
			rules: func(p *policy.Policy) { p.Need = policy.Step },
			seen:  policy.Observation{Attributed: 3},
			want:  want{desired: 1, launch: 1, target: 1, reason: policy.ReasonDemand},
		},
	})
}

func TestC02RunningJobsAreInTheSum(t *testing.T) {
	capacity := func(jobs int) func(*policy.Policy) {
		return func(p *policy.Policy) { p.CapacityPerInstance = jobs }
	}
	runCases(t, []decideCase{
		{
			name: "one running, one pending, one instance",
			seen: policy.Observation{Running: 1, Attributed: 1, Usable: 1, InUse: 1},
			want: want{desired: 2, launch: 1, target: 2, reason: policy.ReasonDemand},
		},
		{
			name:  "both fit on one",
			rules: capacity(2),
			seen:  policy.Observation{Running: 1, Attributed: 1, Usable: 1, InUse: 1},
			want:  want{desired: 1, reason: policy.ReasonSteady},
		},
		{
			name:  "eight jobs at four an instance",
			rules: capacity(4),
			seen:  policy.Observation{Running: 3, Attributed: 5, Usable: 1, InUse: 1},
			want:  want{desired: 2, launch: 1, target: 2, reason: policy.ReasonDemand},
		},
		{
			name:  "nine jobs at four an instance",
			rules: capacity(4),
			seen:  policy.Observation{Running: 3, Attributed: 6, Usable: 1, InUse: 1},
			want:  want{desired: 3, launch: 2, target: 3, reason: policy.ReasonDemand},
		},
		{
			name:  "an instance with a job is needed as it stands",
			rules: capacity(4),
			seen:  policy.Observation{Running: 3, Usable: 3, InUse: 3, Removable: 3},
			want:  want{desired: 3, reason: policy.ReasonSteady},
		},
	})
}

func TestC03WhatIsComingIsNotAskedForAgain(t *testing.T) {
	runCases(t, []decideCase{
		{
			name: "booting covers",
			seen: policy.Observation{Attributed: 5, Booting: 5},
			want: want{desired: 5, target: 5, reason: policy.ReasonSteady},
		},
		{
			name: "asked for, and nothing to be seen of it yet",
			seen: policy.Observation{Attributed: 5, GroupDesired: 5},
			want: want{desired: 5, target: 5, reason: policy.ReasonSteady},
		},
		{
			name: "asked for by somebody else: only the rest",
			seen: policy.Observation{Attributed: 5, Usable: 1, GroupDesired: 3},
			want: want{desired: 5, launch: 2, target: 5, reason: policy.ReasonDemand},
		},
		{
			name: "ending instances have left the group's number",
			seen: policy.Observation{Attributed: 2, Usable: 1, Ending: 3},
			want: want{desired: 2, launch: 1, target: 2, reason: policy.ReasonDemand},
		},
	})
}

func TestC04DrainingIsNotCapacityAndIsTakenBackFirst(t *testing.T) {
	runCases(t, []decideCase{
		{
			name:  "a leaving instance covers nothing and stays in the group's number",
			rules: func(p *policy.Policy) { p.CapacityPerInstance = 4 },
			seen:  policy.Observation{Attributed: 3, Leaving: 1},
			want:  want{desired: 1, launch: 1, target: 2, reason: policy.ReasonDemand},
		},
		{
			name:  "not blocked by the cooldown of scale-in",
			rules: func(p *policy.Policy) { p.In.Cooldown = time.Hour },
			state: policy.State{LastInAt: t0.Add(-time.Second)},
			seen:  policy.Observation{Running: 2, Attributed: 2, Usable: 2, InUse: 2, Leaving: 3},
			want:  want{desired: 4, launch: 2, target: 7, reason: policy.ReasonDemand},
		},
		{
			name:  "own drains are taken back, nothing is launched",
			rules: func(p *policy.Policy) { p.Max = 2 },
			seen:  policy.Observation{Attributed: 2, Draining: 2},
			want:  want{desired: 2, undrain: 2, target: 2, reason: policy.ReasonDemand},
		},
		{
			name: "drains first, then the rest is launched",
			seen: policy.Observation{Attributed: 5, Draining: 2, Usable: 1},
			want: want{desired: 5, undrain: 2, launch: 2, target: 5, reason: policy.ReasonDemand},
		},
		{
			name:  "leaving instances bill: max is not exceeded",
			rules: func(p *policy.Policy) { p.Max = 4 },
			seen:  policy.Observation{Attributed: 4, Leaving: 1, Ending: 1, Usable: 1},
			want:  want{desired: 2, launch: 1, target: 3, reason: policy.ReasonDemand, limited: policy.ReasonMax},
		},
	})
}

func TestC06ReachedMaxAndTheRestIsNotForgotten(t *testing.T) {
	runCases(t, []decideCase{
		{
			name:  "25 jobs, max 15",
			rules: func(p *policy.Policy) { p.Max = 15 },
			seen:  policy.Observation{Attributed: 25},
			want:  want{desired: 15, launch: 15, target: 15, reason: policy.ReasonDemand, limited: policy.ReasonMax},
		},
		{
			name:  "at max",
			rules: func(p *policy.Policy) { p.Max = 15 },
			seen:  policy.Observation{Running: 15, Attributed: 10, Usable: 15, InUse: 15},
			want:  want{desired: 15, reason: policy.ReasonMax, limited: policy.ReasonMax},
		},
		{
			name:  "attribution has no room for the rest: they ask for nothing and explain",
			rules: func(p *policy.Policy) { p.Max = 15 },
			seen:  policy.Observation{Attributed: 15, Overflow: 10},
			want:  want{desired: 15, launch: 15, target: 15, reason: policy.ReasonDemand, limited: policy.ReasonMax},
		},
		{
			name: "the group's max is why",
			seen: policy.Observation{Running: 5, Usable: 5, InUse: 5, Overflow: 7, GroupMax: 5},
			want: want{desired: 5, reason: policy.ReasonProviderMax, limited: policy.ReasonProviderMax},
		},
		{
			name: "the cool-off is why",
			seen: policy.Observation{Running: 5, Usable: 5, InUse: 5, Overflow: 7, CooledOff: t0.Add(time.Second)},
			want: want{desired: 5, reason: policy.ReasonHoldCooledOff, limited: policy.ReasonHoldCooledOff},
		},
		{
			name: "there is room: the next look gives them to somebody",
			seen: policy.Observation{Running: 5, Usable: 5, InUse: 5, Overflow: 7},
			want: want{desired: 5, reason: policy.ReasonSteady},
		},
		{
			name:  "ten left on fifteen that just became free",
			rules: func(p *policy.Policy) { p.Max = 15 },
			seen:  policy.Observation{Attributed: 10, Usable: 15},
			want:  want{desired: 15, reason: policy.ReasonIdleTime, limited: policy.ReasonIdleTime},
		},
	})
}

func TestNumbersThatCannotBeTrueTogetherDoNoHarm(t *testing.T) {
	d, _ := policy.Decide(rules(nil), policy.State{}, seen(policy.Observation{
		Usable: 2, InUse: 5, Removable: 9, Unfilled: 9, Withdrawable: 9, Running: -4, Booting: -1, GroupDesired: 2,
	}), t0)
	check(t, want{desired: 2, reason: policy.ReasonSteady}, d)
}
