package suite

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of a job's way to a waiting runner.
const (
	maxOfNATS        = 2.5 // p50
	maxLatencyMillis = 5   // p99
)

const (
	// latencyRate is how many jobs come in a second, whatever has become of those before
	// them: more than four times what the largest public fleet is known to run.
	latencyRate = 1_000
	// latencyRest is how long runners wait before the first job comes.
	latencyRest = time.Second
	// latencyTimeout bounds one round, and latencyLate how long its last job may take.
	latencyTimeout = 3 * time.Minute
	latencyLate    = 30 * time.Second
	// latencyPushers push at the same time where a push carries one job only.
	latencyPushers = 64
)

func routerLatency() Benchmark {
	return Benchmark{"router/latency", "a job is pushed → one of many waiting runners has it, 1,000 jobs/s", runLatency}
}

// courier takes single jobs to runners that wait.
type courier interface {
	// begin has the runners wait for these jobs.
	begin(ctx context.Context, first, jobs int) error
	// push sends one job off; it may return before that is acknowledged. sent is when the
	// push began, and goes along with the job.
	push(ctx context.Context, id int, sent time.Time) error
	// end waits until all jobs have arrived, and returns what the runners have seen.
	end(ctx context.Context) (arrived, error)
	close()
}

// arrived is what one round showed.
type arrived struct {
	p50, p99, most float64 // from the push to the runner [ms]
	flaws
}

// latencySubject is a courier under its name, or why there is none.
type latencySubject struct {
	name string
	courier
	flaws   flaws
	most    float64 // of all rounds [ms]
	skipped error
}

// The order of the subjects.
const (
	natsCourierAt = iota
	ownCourierAt
	asynqCourierAt
)

func runLatency(ctx context.Context, b *bench) error {
	defer debug.SetGCPercent(debug.SetGCPercent(routerGCPercent))
	runners, jobs := b.pick(2_000, 200), b.pick(5*latencyRate, latencyRate)
	all, err := latencySubjects(ctx, runners)
	if err != nil {
		return err
	}
	defer closeSubjects(all)
	ackedOf, _ := all[ownCourierAt].courier.(*ownCourier)
	var works []measure.Work
	var at []*latencySubject
	next := 1
	for _, s := range all {
		if s.skipped == nil {
			at = append(at, s)
			works = append(works, measure.Work{Name: s.name, Run: func(ctx context.Context) ([]float64, error) {
				first := next
				next += jobs
				return s.round(ctx, first, jobs)
			}})
		}
	}
	series, err := measure.RoundsOf(ctx, b.Rounds, 2, works)
	if err != nil {
		return err
	}
	addLatencyRows(b, all, at, series, ackedOf.ackSeries(b.Rounds))
	b.note("%d runners, each with a connection of its own, without a job; %d jobs a round, one each millisecond; the time begins with the call that pushes, and ends when the runner has the job's payload (%d B)", runners, jobs, payloadBytes)
	b.note("Spillway stores the job in Redis, matches it with %d pools and claims it there; NATS keeps jobs in its own memory and matches nothing; asynq's workers share one process, and look once a second by default", dispatchPools)
	b.note("routers, the NATS server and what pushes are this process; the runners of each are another one; without TLS")
	for _, s := range at {
		b.note("the slowest job, %s: %.1f ms", s.name, s.most)
	}
	return nil
}

func latencySubjects(ctx context.Context, runners int) (all []*latencySubject, err error) {
	for _, c := range []struct {
		name string
		make func(context.Context, int) (courier, error)
	}{
		{"NATS JetStream (memory)", newNATSCourier},
		{"Spillway", newOwnCourier},
		{"asynq", newAsynqCourier},
	} {
		made, err := c.make(ctx, runners)
		if err != nil && len(all) == ownCourierAt {
			closeSubjects(all)
			return nil, err
		}
		all = append(all, &latencySubject{name: c.name, courier: made, skipped: err})
	}
	return all, nil
}

func closeSubjects(all []*latencySubject) {
	for _, s := range all {
		if s.skipped == nil {
			s.close()
		}
	}
}

// round pushes jobs at the rate and returns the percentiles of their ways.
func (s *latencySubject) round(ctx context.Context, first, jobs int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, latencyTimeout)
	defer cancel()
	if err := s.begin(ctx, first, jobs); err != nil {
		return nil, err
	}
	if err := wait(ctx, latencyRest); err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range jobs {
		if early := time.Until(began.Add(time.Duration(i) * time.Second / latencyRate)); early > 0 {
			time.Sleep(early)
		}
		if err := s.push(ctx, first+i, time.Now()); err != nil {
			return nil, fmt.Errorf("pushing job %d: %w", first+i, err)
		}
	}
	got, err := s.end(ctx)
	if err != nil {
		return nil, err
	}
	s.flaws.add(got.flaws)
	s.most = max(s.most, got.most)
	return []float64{got.p50, got.p99}, nil
}

func addLatencyRows(b *bench, all, measured []*latencySubject, series [][]measure.Series, acked measure.Series) {
	of := func(figure int, s *latencySubject) (measure.Series, bool) {
		i := slices.Index(measured, s)
		if i < 0 {
			return measure.Series{}, false
		}
		return series[figure][i], true
	}
	for figure, name := range []string{"p50", "p99"} {
		peer, hasPeer := of(figure, all[natsCourierAt])
		for i, s := range all {
			one, ok := of(figure, s)
			if !ok {
				b.add(measure.SkippedRow(s.name+", "+name, s.skipped.Error()))
				continue
			}
			row := measure.RowOf(one, "ms")
			row.Subject += ", " + name
			switch {
			case i == natsCourierAt:
				row.Verdict = measure.Reference
			case hasPeer:
				row = row.Against(one, peer)
			}
			switch {
			case i != ownCourierAt:
			case name == "p99":
				row = row.Judged(measure.ValueAtMost(maxLatencyMillis))
			case hasPeer:
				row = row.Judged(measure.RatioAtMost(maxOfNATS))
			}
			b.add(row)
		}
	}
	mine := all[ownCourierAt]
	b.add(
		measure.RowOf(acked, "ms"),
		measure.Exactly("jobs that came more than once, "+mine.name, "jobs", mine.flaws.repeated, 0),
		measure.Exactly("jobs lost, "+mine.name, "jobs", mine.flaws.lost, 0),
	)
}
