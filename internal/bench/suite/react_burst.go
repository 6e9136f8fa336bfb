package suite

import (
	"context"
	"os"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of a burst.
const (
	maxBurstSeconds = 0.5
	// maxWritesPercent is how many writes there may be for each 100 pools in a burst.
	maxWritesPercent = 102
)

const (
	// reactBoot is how long an instance takes to be in service.
	reactBoot = 2 * time.Second
	// reactMax bounds the instances of a pool: each round asks for one more.
	reactMax = 50
	// burstTimeout bounds one burst: many ticks.
	burstTimeout = 2 * time.Minute
	// reactTick is the default tick, which is how often the cloud is asked.
	reactTick = 5 * time.Second
)

func reactBurst() Benchmark {
	return Benchmark{"react/burst", "a job for each of many pools at once → the last SetDesiredCapacity", runBurst}
}

// reactShape is pools without machines: each job needs an instance, and no instance
// ever takes one.
func reactShape(pools int) fleetShape {
	return fleetShape{
		pools:  pools,
		tick:   reactTick,
		cloud:  asgstub.Options{Faults: asgstub.Faults{Boot: asgstub.Boot{P50: reactBoot}, Pending: reactBoot, NeverRegister: asgstub.NeverRegister{All: true}}},
		group:  asgstub.GroupConfig{Max: reactMax, NewInstancesProtected: true},
		policy: map[string]any{"max": reactMax, "register_timeout": "24h"},
	}
}

func runBurst(ctx context.Context, b *bench) error {
	return withFleet(ctx, b, reactShape(b.pick(1_000, 100)), burst)
}

// withFleet runs a benchmark on a control plane of its own, and tells what that
// complained of.
func withFleet(ctx context.Context, b *bench, f fleetShape, run func(context.Context, *bench, *served, fleetShape) error) error {
	dir, err := os.MkdirTemp("", "spillway-bench-react-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := serveFleet(ctx, dir, f)
	if err != nil {
		return err
	}
	err = run(ctx, b, s, f)
	if stopErr := s.stop(); err == nil {
		err = stopErr
	}
	s.plane.log.complain(b)
	return err
}

func burst(ctx context.Context, b *bench, s *served, f fleetShape) error {
	all := allPools(f.pools)
	ack, last := measure.Series{Name: "first push → last acknowledged"}, measure.Series{Name: "first push → last SetDesiredCapacity"}
	for round := range b.Rounds {
		if err := settle(ctx); err != nil {
			return err
		}
		r, err := s.burstOnce(ctx, all, (round+1)*f.pools)
		if err != nil {
			return err
		}
		ack.Figures = append(ack.Figures, r.acked)
		last.Figures = append(last.Figures, r.last)
	}
	if err := settle(ctx); err != nil { // what comes late counts too
		return err
	}
	below, beyond := s.cloud.against(f.pools, b.Rounds)
	b.add(
		measure.ReferenceRow(ack, "s"),
		measure.RowOf(last, "s").Against(last, ack).Judged(measure.ValueAtMost(maxBurstSeconds)),
		measure.NoMoreThan("writes to the cloud, all rounds", "calls", writes(s.cloud.Calls()), b.Rounds*f.pools*maxWritesPercent/100),
		measure.Exactly("pools without an instance for each job", "pools", below, 0),
		measure.Exactly("instances asked for beyond one per job", "instances", beyond, 0),
	)
	b.note("%d pools with a class of jobs each, boot %s, all defaults (tick %s), no api_rate; control plane, plugin and Redis are processes; the cloud is a stand-in in this process",
		f.pools, reactBoot, reactTick)
	return nil
}

func allPools(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// settle waits until what was asked for has booted and was looked at.
func settle(ctx context.Context) error { return wait(ctx, reactTick+reactBoot) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// burstTook is what one burst showed [s].
type burstTook struct{ acked, last float64 }

// burstOnce pushes a job for each pool, and waits until so many calls were made in
// all since the control plane was started.
func (s *served) burstOnce(ctx context.Context, pools []int, sets int) (burstTook, error) {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	began, acked, err := s.push(pools)
	if err != nil {
		return burstTook{}, err
	}
	if err := s.cloud.waitForSets(ctx, sets); err != nil {
		return burstTook{}, err
	}
	last := lastOf(good(s.cloud.Calls(), opSetDesired))
	return burstTook{acked: acked.Seconds(), last: last.Sub(began).Seconds()}, nil
}
