package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/scaler"
)

// The targets of a reaction, from the submission of a job to the provider call.
const (
	maxReactP50Millis = 10
	maxReactP99Millis = 100
)

const (
	// reactPause is the longest pause between two jobs: they come at any phase of the
	// control plane's clocks.
	reactPause = 200 * time.Millisecond
	// reactTimeout is how long one reaction may take before the run is broken: several
	// ticks.
	reactTimeout = 30 * time.Second
)

func reactLatency() Benchmark {
	return Benchmark{"react/latency", "a job is submitted → the provider is asked for an instance", runReact}
}

// reaction is what one job showed.
type reaction struct {
	stored float64 // until its push was acknowledged [ms]
	called float64 // until the provider was called [ms]
}

func runReact(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("", "spillway-bench-react-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plugin, err := buildFakePlugin(ctx, dir)
	if err != nil {
		return err
	}
	p, err := startPlane(ctx, plugin)
	if err != nil {
		return err
	}
	jobs := b.pick(40, 15)
	ack, p50, p99 := measure.Series{Name: "push → acknowledged, p50"}, measure.Series{Name: "submitted → SetDesired sent, p50"}, measure.Series{Name: "submitted → SetDesired sent, p99"}
	for range b.Rounds {
		stored, called, err := p.react(ctx, jobs)
		if err != nil {
			return joinStop(err, p)
		}
		ack.Figures = append(ack.Figures, measure.Percentile(stored, 50))
		p50.Figures = append(p50.Figures, measure.Percentile(called, 50))
		p99.Figures = append(p99.Figures, measure.Percentile(called, 99))
	}
	b.add(
		measure.ReferenceRow(ack, "ms"),
		measure.RowOf(p50, "ms").Against(p50, ack).Judged(measure.ValueAtMost(maxReactP50Millis)),
		measure.RowOf(p99, "ms").Against(p99, ack).Judged(measure.ValueAtMost(maxReactP99Millis)),
		measure.Exactly("instances asked for beyond one per job", "instances", p.launched-p.pushed, 0),
		measure.Exactly("provider calls beyond one per job", "calls", p.calls-p.pushed, 0),
	)
	b.note("1 pool, %d jobs a round at random phase, all defaults: the scaler waits 5 ms for company (debounce) before it looks; Redis and the plugin are processes of their own", jobs)
	return p.stop()
}

func joinStop(err error, p *plane) error {
	if stopErr := p.stop(); stopErr != nil {
		return fmt.Errorf("%w (and stopping: %w)", err, stopErr)
	}
	return err
}

// react pushes jobs one at a time, at random phase, and waits for the reaction to
// each. No runner ever connects, so each needs an instance of its own.
func (p *plane) react(ctx context.Context, jobs int) (stored, called []float64, err error) {
	phase := rand.New(rand.NewPCG(3, uint64(p.pushed)))
	for range jobs {
		select {
		case <-time.After(time.Duration(phase.Int64N(int64(reactPause)))):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		r, err := p.reactOnce(ctx)
		if err != nil {
			return nil, nil, err
		}
		stored, called = append(stored, r.stored), append(called, r.called)
	}
	return stored, called, nil
}

func (p *plane) reactOnce(ctx context.Context) (reaction, error) {
	began := time.Now()
	if err := p.push(); err != nil {
		return reaction{}, err
	}
	stored := millis(time.Since(began))
	select {
	case c := <-p.called:
		return p.reactionOf(c, stored)
	case <-time.After(reactTimeout):
		return reaction{}, fmt.Errorf("no provider call within %s of the push of job %d", reactTimeout, p.pushed)
	case <-ctx.Done():
		return reaction{}, context.Cause(ctx)
	}
}

func (p *plane) reactionOf(c scaler.CallInfo, stored float64) (reaction, error) {
	p.calls++
	p.launched += c.Launched
	if c.Err != nil || c.Op != "set_desired" || c.OldestJob.IsZero() {
		return reaction{}, fmt.Errorf("not the call that job %d should cause: %s (for a job: %t)", p.pushed, c, !c.OldestJob.IsZero())
	}
	return reaction{stored: stored, called: millis(c.Sent.Sub(c.OldestJob))}, nil
}
