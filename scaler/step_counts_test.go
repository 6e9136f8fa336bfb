package scaler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// prompt is a group whose instances are up at once, with machines that obey at once, of
// which so many have a job as a count says.
type prompt struct {
	*world
	launched int
}

func (g *prompt) SetDesired(_ context.Context, target, _ int) (int, error) {
	for ; g.status.Desired < target; g.status.Desired++ {
		id := fmt.Sprintf("i-%03d", g.launched)
		g.launched++
		g.list = append(g.list, pluginsdk.Instance{ID: id, State: pluginsdk.StateRunning, LaunchedAt: g.now})
		g.machines = append(g.machines, router.Machine{
			ID: spillway.MachineID("m" + id), InstanceID: id, Pool: "linux", Capacity: 1, Connected: true, RegisteredAt: g.now, LastUsedAt: g.now,
		})
	}
	return target, nil
}

func (g *prompt) Remove(_ context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	var out []pluginsdk.RemoveResult
	for _, id := range ids {
		out = append(out, pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed})
	}
	g.status.Desired -= len(ids)
	g.list = slices.DeleteFunc(g.list, func(in pluginsdk.Instance) bool { return slices.Contains(ids, in.ID) })
	g.machines = slices.DeleteFunc(g.machines, func(m router.Machine) bool { return slices.Contains(ids, m.InstanceID) })
	return out, nil
}

func (g *prompt) OrderDrain(_ context.Context, _ string, orders []router.DrainOrder) error {
	for _, o := range orders {
		for i := range g.machines {
			if g.machines[i].ID == o.Machine {
				g.machines[i].Draining, g.machines[i].DrainAckedAt = o.On, g.now
			}
		}
	}
	return nil
}

// work gives the first machines that take jobs one each.
func (g *prompt) work(jobs int) {
	for i := range g.machines {
		m := &g.machines[i]
		m.HeardAt, m.HeartbeatAt, m.Busy = g.now, g.now, 0
		if jobs > 0 && !m.Draining {
			m.Busy = 1
			jobs--
		}
	}
}

// The step rule on a count alone, as the alarm-and-Lambda setup had it: step 3, min 3,
// max 10, 15 minutes, and a metric of the running jobs that says only how many.
func TestB2B3B4_TheStepRuleOnACount(t *testing.T) {
	g := &prompt{world: newWorld()}
	cfg := config(g.world)
	cfg.Policy = policy.Policy{Need: policy.Step, Step: 3, StepWait: 15 * time.Minute, Min: 3, Max: 10, CapacityPerInstance: 1}
	cfg.Rules.IdleTime = 0
	events := &Events{}
	fleet := NewFleet(g, g, 5*time.Second, spillway.SilentAfter, events)
	source := &said{drives: true}
	fleet.SetCounts(source)
	pool := NewPool(cfg, g, g, g, g, events)
	pool.now = g.clock
	play := func(d time.Duration, jobs int) int {
		source.jobs = float64(jobs)
		for range int(d / (5 * time.Second)) {
			g.now = g.now.Add(5 * time.Second)
			g.work(jobs)
			pool.Tick(t.Context(), g.now, fleet.Observe(t.Context(), g.now, []*Pool{pool}))
		}
		return g.status.Desired
	}
	require.Equal(t, 3, play(time.Minute, 0), "min")
	require.Equal(t, 3, play(20*time.Minute, 2), "runners − 1: stay")
	require.Equal(t, 6, play(5*time.Second, 3), "jobs = runners: a step")
	require.Equal(t, 9, play(5*time.Second, 6))
	require.Equal(t, 10, play(5*time.Second, 9), "B4: the last before max is reachable")
	require.Equal(t, 10, play(20*time.Minute, 10), "and not more than max")
	require.Equal(t, 10, play(20*time.Minute, 9), "runners − 1: stay")
	require.Equal(t, 10, play(15*time.Minute, 8), "not for long enough")
	require.Equal(t, 9, play(time.Minute, 8), "B3: in")
	require.Equal(t, 9, play(time.Hour, 8), "runners − 1 again")
	require.Equal(t, 9, play(15*time.Minute, 2))
	require.Equal(t, 6, play(time.Minute, 2), "a step")
	require.Equal(t, 6, play(14*time.Minute, 2), "each step waits anew")
	require.Equal(t, 3, play(2*time.Minute, 2))
	require.Equal(t, 10, play(time.Minute, 30))
	require.Equal(t, 10, play(15*time.Minute, 0))
	require.Equal(t, 3, play(time.Minute, 0), "to min when nothing runs")
	require.Equal(t, 3, play(2*time.Hour, 0))
}
