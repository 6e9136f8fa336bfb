package policy_test

import (
	"testing"
	"time"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func TestC12NoDataIsNotZero(t *testing.T) {
	busy := policy.Observation{Running: 8, Usable: 8, InUse: 8}
	idle := policy.Observation{Usable: 8, Removable: 8}
	with := func(o policy.Observation, demand, group policy.Freshness) policy.Observation {
		o.DemandAge, o.GroupAge = demand, group
		return o
	}
	runCases(t, []decideCase{
		{
			name: "absent demand holds", seen: with(policy.Observation{Usable: 8, Removable: 8}, policy.Absent, policy.Whole),
			want: want{desired: 8, reason: policy.ReasonHoldStale, limited: policy.ReasonHoldStale},
		},
		{
			name: "absent demand holds out too, even below min", rules: func(p *policy.Policy) { p.Min = 10 },
			seen: with(busy, policy.Absent, policy.Whole),
			want: want{desired: 8, reason: policy.ReasonHoldStale, limited: policy.ReasonHoldStale},
		},
		{
			name: "partial demand doesn't scale in", seen: with(idle, policy.Partial, policy.Whole),
			want: want{desired: 8, reason: policy.ReasonHoldPartial, limited: policy.ReasonHoldPartial},
		},
		{
			name: "partial demand scales out: there is at least so much",
			seen: with(policy.Observation{Attributed: 2, Usable: 1}, policy.Partial, policy.Whole),
			want: want{desired: 2, launch: 1, reason: policy.ReasonDemand},
		},
		{
			name: "an old look at the group holds in", seen: with(idle, policy.Whole, policy.Partial),
			want: want{desired: 8, reason: policy.ReasonHoldStale, limited: policy.ReasonHoldStale},
		},
		{
			name: "and out, but takes drains back",
			seen: with(policy.Observation{Attributed: 3, Draining: 1}, policy.Whole, policy.Absent),
			want: want{desired: 1, undrain: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldStale},
		},
		{
			name: "an unknown group's bounds are not zero", seen: policy.Observation{Running: 2, Usable: 3, InUse: 2, Removable: 1, GroupAge: policy.Absent, GroupMax: -1},
			want: want{desired: 3, reason: policy.ReasonHoldStale, limited: policy.ReasonHoldStale},
		},
		{
			name: "an honest zero goes in", seen: idle,
			want: want{desired: 0, remove: 8, reason: policy.ReasonIdle},
		},
		{
			name: "never more than is proven idle", seen: policy.Observation{Running: 3, Usable: 8, InUse: 3, Removable: 4},
			want: want{desired: 4, remove: 4, reason: policy.ReasonIdle, limited: policy.ReasonIdleTime},
		},
	})
}

func TestC18AndC28Refusals(t *testing.T) {
	jobs := func(change func(*policy.Observation)) policy.Observation {
		o := seen(policy.Observation{Attributed: 5, Draining: 1})
		change(&o)
		return o
	}
	runCases(t, []decideCase{
		{
			name: "the boot breaker is open",
			seen: jobs(func(o *policy.Observation) { o.NoLaunch, o.NoLaunchWhy = policy.ReasonHoldBreaker, "none registered" }),
			want: want{desired: 1, undrain: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldBreaker},
		},
		{
			name: "half open: one probe",
			seen: jobs(func(o *policy.Observation) { o.LaunchClamp = 1 }),
			want: want{desired: 2, undrain: 1, launch: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldBreaker},
		},
		{
			name: "cooled off: drains only",
			seen: jobs(func(o *policy.Observation) { o.CooledOff = t0.Add(time.Second) }),
			want: want{desired: 1, undrain: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldCooledOff},
		},
		{
			name: "X09: cooled off below min too", rules: func(p *policy.Policy) { p.Min = 3 },
			seen: policy.Observation{CooledOff: t0.Add(time.Second)},
			want: want{reason: policy.ReasonHoldCooledOff, limited: policy.ReasonHoldCooledOff},
		},
		{
			name: "the cool-off's end lets one through",
			seen: jobs(func(o *policy.Observation) { o.CooledOff, o.LaunchClamp = t0, 1 }),
			want: want{desired: 2, undrain: 1, launch: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldCooledOff},
		},
		{
			name: "C36: what was refused and isn't wanted any more is taken back within the cool-off",
			seen: policy.Observation{Running: 6, Usable: 6, InUse: 6, Booting: 4, Unfilled: 4, Withdrawable: 4, CooledOff: t0.Add(time.Hour)},
			want: want{desired: 6, withdraw: 4, reason: policy.ReasonIdle},
		},
		{
			name: "the plugin is down",
			seen: jobs(func(o *policy.Observation) { o.ProviderDown = "crash loop" }),
			want: want{desired: 1, undrain: 1, reason: policy.ReasonDemand, limited: policy.ReasonHoldProvider},
		},
		{
			name: "the plugin is down: nothing goes", seen: policy.Observation{Usable: 3, Removable: 3, ProviderDown: "crash loop"},
			want: want{desired: 3, reason: policy.ReasonHoldProvider, limited: policy.ReasonHoldProvider},
		},
		{
			name: "no scale-in for a reason", seen: policy.Observation{Usable: 3, Removable: 3, NoScaleIn: policy.ReasonCannotDrain, NoScaleInWhy: "no way to drain"},
			want: want{desired: 3, reason: policy.ReasonCannotDrain, limited: policy.ReasonCannotDrain},
		},
		{
			name: "paused: computed, not done", rules: func(p *policy.Policy) { p.Paused = true },
			seen: jobs(func(*policy.Observation) {}),
			want: want{reason: policy.ReasonHoldPaused, limited: policy.ReasonHoldPaused},
		},
		{
			name: "paused and nothing to do", rules: func(p *policy.Policy) { p.Paused = true },
			want: want{reason: policy.ReasonHoldPaused},
		},
		{
			name: "unfilled goes before instances", seen: policy.Observation{Usable: 4, Removable: 4, Booting: 3, Unfilled: 3, Withdrawable: 2, Running: 0, Attributed: 2},
			want: want{desired: 3, withdraw: 2, remove: 2, reason: policy.ReasonIdle, limited: policy.ReasonDemand},
		},
	})
}
