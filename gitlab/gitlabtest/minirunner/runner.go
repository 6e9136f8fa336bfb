package minirunner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCut says that jobs were cut short because the runner had to go.
var ErrCut = errors.New("jobs were cut short")

// Runner is one runner process. Make it with New and start it with Run, once.
type Runner struct {
	o       Options
	api     *api
	router  *router
	health  *health
	metrics *metrics
	counts  counts
	places  chan struct{} // one for each job that it may run
	quit    chan struct{}
	once    sync.Once
	jobs    sync.WaitGroup
	running atomic.Int64
	cut     atomic.Bool
}

type counts struct{ direct, getJobs, discoveries, finished atomic.Int64 }

// Stats are numbers of a runner, for tests.
type Stats struct {
	Direct      int // requests for a job that were made to GitLab
	GetJobs     int // to the router
	Discoveries int
	Running     int // jobs
	Finished    int // jobs
	Off         bool
	// Breaker is closed, open or half-open; Trips is how often it opened.
	Breaker string
	Trips   int
}

// New returns a runner.
func New(o Options) (*Runner, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	gitlab, err := newAPI(o)
	if err != nil {
		return nil, err
	}
	r := &Runner{
		o: o, api: gitlab, health: newHealth(o.Times.Unhealthy),
		places: make(chan struct{}, o.Concurrent), quit: make(chan struct{}),
	}
	r.router = &router{
		o: o, api: gitlab, breaker: newBreaker(o.Times.BreakerGrace, o.Times.BreakerOpen),
		conns: &conns{o: o, tls: gitlab.tls}, counts: &r.counts,
	}
	r.metrics = newMetrics(r)
	return r, nil
}

// SystemID is the machine id that the runner tells.
func (r *Runner) SystemID() string { return r.o.SystemID }

// Stats returns the runner's numbers.
func (r *Runner) Stats() Stats {
	state, trips := r.router.breaker.opened()
	return Stats{
		Direct: int(r.counts.direct.Load()), GetJobs: int(r.counts.getJobs.Load()), Discoveries: int(r.counts.discoveries.Load()),
		Running: int(r.running.Load()), Finished: int(r.counts.finished.Load()), Off: r.health.isOff(), Breaker: state, Trips: trips,
	}
}

// Quit is SIGQUIT: no new jobs, the open request is given up, and Run returns when
// the last job has ended.
func (r *Runner) Quit() { r.once.Do(func() { close(r.quit) }) }

// Run takes and runs jobs until Quit, or until ctx ends, which cuts jobs short:
// ErrCut if there was one.
func (r *Runner) Run(ctx context.Context) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var askers sync.WaitGroup
	for range r.o.RequestConcurrency {
		askers.Go(func() { r.ask(asking, ctx) })
	}
	select {
	case <-r.quit:
	case <-ctx.Done():
	}
	stop()
	askers.Wait()
	r.jobs.Wait()
	r.router.conns.close()
	r.api.client.CloseIdleConnections()
	if r.cut.Load() {
		return ErrCut
	}
	return nil
}

// ask requests jobs one at a time, at each tick and again at once after a job.
// Jobs live in jobCtx.
func (r *Runner) ask(ctx, jobCtx context.Context) {
	tick := time.NewTicker(r.o.Times.Check)
	defer tick.Stop()
	for {
		if r.takeOne(ctx, jobCtx) {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// quits reports whether Quit was called: Run may hear of it later than somebody asks.
func (r *Runner) quits() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// takeOne reports whether it has got a job. Without a free place it does not ask.
func (r *Runner) takeOne(ctx, jobCtx context.Context) bool {
	if ctx.Err() != nil || r.quits() || !r.health.well() {
		return false
	}
	select {
	case r.places <- struct{}{}:
	default:
		return false
	}
	job, healthy := r.requestJob(ctx)
	if ctx.Err() != nil && job == nil {
		<-r.places
		return false
	}
	r.health.mark(healthy)
	if job == nil {
		<-r.places
		return false
	}
	r.metrics.took(job)
	r.running.Add(1)
	r.jobs.Go(func() {
		defer func() {
			r.running.Add(-1)
			r.counts.finished.Add(1)
			<-r.places
		}()
		r.run(jobCtx, job)
	})
	return true
}

func (r *Runner) requestJob(ctx context.Context) (job *payload, healthy bool) {
	if r.o.Router {
		return r.router.requestJob(ctx)
	}
	return r.router.direct(ctx)
}
