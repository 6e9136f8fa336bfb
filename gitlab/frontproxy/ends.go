package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// maxEnds bounds the ends that wait for the store [jobs]. A job whose end is lost
	// keeps its machine until it is past its time.
	maxEnds = 10_000
	// repeatEvery is how often they are tried.
	repeatEvery = 2 * time.Second
)

// errEndsFull: so many ends wait for the store that one was dropped.
var errEndsFull = fmt.Errorf("more than %d ends of jobs wait for the store: one is dropped", maxEnds)

// ends are jobs that are over and still booked, because the store did not answer.
// Repeating that is safe for an end that GitLab has accepted: the job's id is never
// given out again.
type ends struct {
	mu struct {
		sync.Mutex
		jobs map[spillway.JobID]struct{}
	}
}

func newEnds() *ends {
	e := &ends{}
	e.mu.jobs = map[spillway.JobID]struct{}{}
	return e
}

// put reports whether there was room.
func (e *ends) put(job spillway.JobID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.mu.jobs[job]; !known && len(e.mu.jobs) >= maxEnds {
		return false
	}
	e.mu.jobs[job] = struct{}{}
	return true
}

func (e *ends) done(job spillway.JobID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.jobs, job)
}

func (e *ends) waiting() []spillway.JobID {
	e.mu.Lock()
	defer e.mu.Unlock()
	jobs := make([]spillway.JobID, 0, len(e.mu.jobs))
	for job := range e.mu.jobs {
		jobs = append(jobs, job)
	}
	return jobs
}

// end strikes a job that is over, now or as soon as the store answers.
func (p *Proxy) end(ctx context.Context, job spillway.JobID) {
	p.seats.drop(job)
	p.words.drop(job)
	ctx, cancel := detached(ctx, storeTimeout)
	defer cancel()
	if err := p.strike(ctx, job); err != nil {
		if !p.ends.put(job) {
			err = errors.Join(err, errEndsFull)
		}
		p.storeFailed("end", err)
	}
}

func (p *Proxy) strike(ctx context.Context, job spillway.JobID) error {
	if _, err := p.opt.Book.EndRouted(ctx, job); err != nil {
		return err
	}
	if p.opt.Events.Ended != nil {
		p.opt.Events.Ended(job)
	}
	return nil
}

// Run repeats the ends that the store has missed and the words of jobs that run, and
// reads the book for jobs that were given elsewhere, until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	ticks := time.NewTicker(repeatEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
			p.repeatEnds(ctx)
			p.repeatWords(ctx)
		case <-p.seats.poke:
			if err := p.readSeats(ctx); err != nil && ctx.Err() == nil {
				p.storeFailed("routed", err)
			}
		}
	}
}

// repeatEnds tries each end that waits, until the store fails again.
func (p *Proxy) repeatEnds(ctx context.Context) {
	for _, job := range p.ends.waiting() {
		limited, cancel := context.WithTimeout(ctx, storeTimeout)
		err := p.strike(limited, job)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				p.storeFailed("end", err)
			}
			return
		}
		p.ends.done(job)
	}
}
