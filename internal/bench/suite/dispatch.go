package suite

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of dispatching.
const (
	minOfPush  = 0.7 // of the same conversation without queue, matching and store
	minOfAsynq = 3.0 // of the queue that is nearest in what it keeps in Redis
	minOfNATS  = 1.0 // of a queue that keeps jobs in its own memory and matches nothing
)

func routerThroughput() Benchmark {
	return Benchmark{"router/throughput", "waiting jobs to machines, each done and acknowledged once", runThroughput}
}

// routerGCPercent is the control plane's own setting: a router makes much garbage and
// keeps little, so that a few MiB more of it save a large part of its CPU time.
const routerGCPercent = 400

func runThroughput(ctx context.Context, b *bench) error {
	defer debug.SetGCPercent(debug.SetGCPercent(routerGCPercent))
	jobs := b.pick(50_000, 5_000)
	for _, machines := range []int{100, 1_000} {
		if err := throughputOf(ctx, b, machines, jobs); err != nil {
			return err
		}
	}
	b.note("%d jobs a round, %d classes, %d pools, payload %d B; machines and workers run in a process of their own", jobs, dispatchClasses, dispatchPools, payloadBytes)
	b.note("push+ack has no queue behind it; asynq and NATS do no matching, and NATS keeps jobs in its own memory; Spillway and asynq keep them in Redis")
	b.note("the process of the routers and of the NATS server collects garbage at %d %% growth, as the control plane does; the others at Go's 100 %%", routerGCPercent)
	b.note("each machine and each NATS worker has a connection of its own; asynq's workers share one process and its pool")
	return nil
}

// dispatch is one way to have jobs done by machines.
type dispatch interface {
	// load puts jobs where they wait; it is not timed.
	load(ctx context.Context, first, jobs int) error
	// run has them done and returns how long that took and what went wrong.
	run(ctx context.Context) (time.Duration, flaws, error)
	close()
}

// contender is a dispatch under its name, or why there is none.
type contender struct {
	name string
	dispatch
	flaws   flaws
	skipped error
}

// The order of the contenders.
const (
	pushAck = iota
	own
	asynqQueue
	natsQueue
)

func contenders(ctx context.Context, machines int) ([]*contender, error) {
	var out []*contender
	for _, c := range []struct {
		name string
		make func(context.Context, int) (dispatch, error)
	}{
		{"gRPC push+ack", newPushDispatch},
		{"Spillway", newOwnDispatch},
		{"asynq", newAsynqDispatch},
		{"NATS JetStream (memory)", newNATSDispatch},
	} {
		d, err := c.make(ctx, machines)
		if err != nil && len(out) < asynqQueue {
			closeAll(out)
			return nil, err
		}
		out = append(out, &contender{name: fmt.Sprintf("%s, %d machines", c.name, machines), dispatch: d, skipped: err})
	}
	return out, nil
}

func closeAll(all []*contender) {
	for _, c := range all {
		if c.skipped == nil {
			c.close()
		}
	}
}

func throughputOf(ctx context.Context, b *bench, machines, jobs int) error {
	all, err := contenders(ctx, machines)
	if err != nil {
		return err
	}
	defer closeAll(all)
	var subjects []measure.Work
	var at []int // of the subjects in all
	next := 1    // the id of the next job
	for i, c := range all {
		if c.skipped != nil {
			continue
		}
		at = append(at, i)
		subjects = append(subjects, measure.Work{Name: c.name, Run: func(ctx context.Context) ([]float64, error) {
			first := next
			next += jobs
			return c.turn(ctx, first, jobs)
		}})
	}
	series, err := measure.RoundsOf(ctx, b.Rounds, 2, subjects)
	if err != nil {
		return err
	}
	rates := make([]*measure.Series, len(all))
	for k, i := range at {
		rates[i] = &series[0][k]
	}
	addThroughputRows(b, all, rates)
	addCPURows(b, series[1])
	return nil
}

// turn returns the rate and the CPU time of each job, in all processes of ours.
func (c *contender) turn(ctx context.Context, first, jobs int) ([]float64, error) {
	if err := c.load(ctx, first, jobs); err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	before := measure.OwnCPU()
	took, wrong, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	c.flaws.add(wrong)
	return []float64{float64(jobs) / took.Seconds(), micros(measure.OwnCPU()-before) / float64(jobs)}, nil
}

// addCPURows adds what is hardly disturbed by others: CPU time, of router, store and
// machines together.
func addCPURows(b *bench, cpu []measure.Series) {
	for i, s := range cpu {
		row := measure.RowOf(s, "µs/job").Against(s, cpu[pushAck])
		row.Subject = "CPU: " + row.Subject
		if i == pushAck {
			row.Verdict, row.Ratio = measure.Reference, nil
		}
		b.add(row)
	}
}

func addThroughputRows(b *bench, all []*contender, rates []*measure.Series) {
	limit, mine := *rates[pushAck], *rates[own]
	b.add(measure.ReferenceRow(limit, "jobs/s"),
		measure.RowOf(mine, "jobs/s").Against(mine, limit).Judged(measure.RatioAtLeast(minOfPush)))
	for i, r := range rates {
		switch {
		case i <= own:
		case r == nil:
			b.add(measure.SkippedRow(all[i].name, all[i].skipped.Error()))
		default:
			b.add(measure.RowOf(*r, "jobs/s").Against(*r, limit))
		}
	}
	if r := rates[asynqQueue]; r != nil {
		row := measure.Row{Subject: all[own].name + " ÷ asynq"}.Against(mine, *r)
		b.add(row.Judged(measure.RatioAtLeast(minOfAsynq)))
	}
	if r := rates[natsQueue]; r != nil {
		row := measure.Row{Subject: all[own].name + " ÷ NATS"}.Against(mine, *r)
		b.add(row.Judged(measure.RatioAtLeast(minOfNATS)))
	}
	b.add(
		measure.Exactly("jobs done more than once, "+all[own].name, "jobs", all[own].flaws.repeated, 0),
		measure.Exactly("jobs lost, "+all[own].name, "jobs", all[own].flaws.lost, 0),
	)
}
