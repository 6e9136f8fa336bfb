package spillway_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
)

func TestPoolLimitsAtTheirEdges(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*spillway.Pool)
		problem string
	}{
		{"least", func(*spillway.Pool) {}, ""},
		{"longest name", func(p *spillway.Pool) { p.Name = strings.Repeat("p", spillway.MaxPoolNameBytes) }, ""},
		{"name too long", func(p *spillway.Pool) { p.Name = strings.Repeat("p", spillway.MaxPoolNameBytes+1) }, "pool name"},
		{"no name", func(p *spillway.Pool) { p.Name = "" }, "pool name"},
		{"smallest capacity", func(p *spillway.Pool) { p.CapacityPerInstance = 0 }, "capacity_per_instance 0"},
		{"largest capacity", func(p *spillway.Pool) { p.CapacityPerInstance = spillway.MaxCapacityPerInst }, ""},
		{"capacity too large", func(p *spillway.Pool) { p.CapacityPerInstance = spillway.MaxCapacityPerInst + 1 }, "capacity_per_instance 1001"},
		{"last priority", func(p *spillway.Pool) { p.Priority = spillway.MaxPoolPriority }, ""},
		{"priority too large", func(p *spillway.Pool) { p.Priority = spillway.MaxPoolPriority + 1 }, "priority 1001"},
		{"negative priority", func(p *spillway.Pool) { p.Priority = -1 }, "priority -1"},
		{"no cost", func(p *spillway.Pool) { p.CostPerJob = 0 }, ""},
		{"negative cost", func(p *spillway.Pool) { p.CostPerJob = -0.01 }, "cost_per_job"},
		{"cost is no number", func(p *spillway.Pool) { p.CostPerJob = math.NaN() }, "cost_per_job"},
		{"cost without end", func(p *spillway.Pool) { p.CostPerJob = math.Inf(1) }, "cost_per_job"},
		{"capability that takes nothing", func(p *spillway.Pool) { p.Capability = spillway.Capability{} }, "no job at all"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := spillway.Pool{Name: "linux", Capability: spillway.Capability{RunUntagged: true}, CapacityPerInstance: 1}
			tt.change(&p)
			requireProblem(t, p.Validate(), tt.problem)
		})
	}
}

func TestPoolName(t *testing.T) {
	for _, good := range []string{"a", "0", "linux-amd64", "a_b", "9-"} {
		require.True(t, spillway.PoolName(good), good)
	}
	for _, bad := range []string{"", "-a", "_a", "A", "a.b", "a b", "a/b", "a{b}", "é", "a\x00"} {
		require.False(t, spillway.PoolName(bad), "%q", bad)
	}
}

func TestC01_SignalWithoutRunnersIsZeroAndKeepsTheJobs(t *testing.T) {
	at := time.Unix(1, 0)
	tests := []struct {
		jobs, runners int
		ratio         float64
	}{
		{3, 0, 0},
		{0, 0, 0},
		{0, 4, 0},
		{3, 2, 1.5},
		{3, -1, 0},
	}
	for _, tt := range tests {
		s := spillway.NewSignal(spillway.Fingerprint{1}, tt.jobs, tt.runners, at)
		require.Equal(t, spillway.Signal{
			Fingerprint: spillway.Fingerprint{1}, TotalJobs: tt.jobs, TotalRunners: tt.runners, DemandPerRunner: tt.ratio, At: at,
		}, s)
	}
}

func TestC01_SignalRatioIsAlwaysANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := spillway.NewSignal(spillway.Fingerprint{}, rapid.IntMin(0).Draw(t, "jobs"), rapid.Int().Draw(t, "runners"), time.Time{})
		require.False(t, math.IsNaN(s.DemandPerRunner) || math.IsInf(s.DemandPerRunner, 0))
		require.GreaterOrEqual(t, s.DemandPerRunner, 0.0)
	})
}
