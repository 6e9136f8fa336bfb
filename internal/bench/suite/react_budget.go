package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of a burst that the account's call budget limits.
const (
	// maxOfIdeal is how much longer than the ideal it may take, besides one tick: the
	// looks at the groups come out of the same budget.
	maxOfIdeal          = 1.05
	maxThrottledPercent = 1
)

// The account's call budget.
const (
	budgetBurst     = 100
	budgetPerSecond = 20
)

func reactBudget() Benchmark {
	return Benchmark{"react/budget", "a job for each of many pools at once, the cloud throttles → the last SetDesiredCapacity that worked", runBudget}
}

func runBudget(ctx context.Context, b *bench) error {
	f := reactShape(b.pick(300, 130))
	f.rate = &asgstub.RateLimit{Burst: budgetBurst, PerSecond: budgetPerSecond}
	f.cloud.Rate = *f.rate
	return withFleet(ctx, b, f, budget)
}

func budget(ctx context.Context, b *bench, s *served, f fleetShape) error {
	all := allPools(f.pools)
	ideal := float64(f.pools-budgetBurst) / budgetPerSecond
	limit := measure.Series{Name: fmt.Sprintf("ideal: (%d − %d) ÷ %d per second", f.pools, budgetBurst, budgetPerSecond)}
	last, refused := measure.Series{Name: "first push → last SetDesiredCapacity"}, measure.Series{Name: "calls that the cloud throttled"}
	for round := range b.Rounds {
		if err := s.refill(ctx); err != nil {
			return err
		}
		before := len(s.cloud.Calls())
		r, err := s.burstOnce(ctx, all, (round+1)*f.pools)
		if err != nil {
			return err
		}
		calls := s.cloud.Calls()[before:]
		limit.Figures = append(limit.Figures, ideal)
		last.Figures = append(last.Figures, r.last)
		refused.Figures = append(refused.Figures, 100*float64(throttled(calls))/float64(len(calls)))
	}
	below, beyond := s.cloud.against(f.pools, b.Rounds)
	b.add(
		measure.ReferenceRow(limit, "s"),
		measure.RowOf(last, "s").Against(last, limit).Judged(measure.ValueAtMost(maxOfIdeal*ideal+reactTick.Seconds())),
		measure.RowOf(refused, "%").Judged(measure.ValueAtMost(maxThrottledPercent)),
		measure.Exactly("pools without an instance for each job", "pools", below, 0),
		measure.Exactly("instances asked for beyond one per job", "instances", beyond, 0),
	)
	b.note("%d pools, boot %s, tick %s; the plugin's api_rate is what the cloud grants: %d calls at once, %d a second; looks at the groups and at failed launches come out of it too: %s",
		f.pools, reactBoot, reactTick, budgetBurst, budgetPerSecond, tallyOfCalls(s.cloud.Counts()))
	return nil
}

// refill waits until the cloud's bucket is full again: the budget's own time, and
// what boots meanwhile must be in service.
func (s *served) refill(ctx context.Context) error {
	const full = budgetBurst * time.Second / budgetPerSecond
	return wait(ctx, full+2*reactTick)
}

// tallyOfCalls says how often each operation was called.
func tallyOfCalls(counts map[string]int) string { return fmt.Sprint(counts) }
