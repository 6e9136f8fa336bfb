package frontproxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

const (
	// maxSeats bounds the jobs of which the machine is remembered [jobs]. What is beyond
	// is heard only when it asks for jobs.
	maxSeats = 100_000
	// lookEvery is how often the book is read for jobs that were given elsewhere: by
	// another replica, or over the job router.
	lookEvery = 10 * time.Second
)

// seats remembers which machine has which job, so that the job's updates, which don't
// say from where they come, count as contacts of the machine. It is a copy of a part of
// the book, and only that: nothing is proven by it.
type seats struct {
	poke chan struct{} // 1 slot: a job was not known

	mu struct {
		sync.Mutex
		byJob  map[spillway.JobID]route.Caller
		readAt time.Time
	}
}

func newSeats() *seats {
	s := &seats{poke: make(chan struct{}, 1)}
	s.mu.byJob = map[spillway.JobID]route.Caller{}
	return s
}

// put remembers a machine without what only a job request needs.
func (s *seats) put(job spillway.JobID, who route.Caller) {
	who.Features, who.Labels = nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.mu.byJob[job]; known || len(s.mu.byJob) < maxSeats {
		s.mu.byJob[job] = who
	}
}

func (s *seats) drop(job spillway.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.byJob, job)
}

// of returns the machine that has a job. One that isn't known is looked for, for the
// next time.
func (s *seats) of(job spillway.JobID, now time.Time) (route.Caller, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who, known := s.mu.byJob[job]
	if !known && now.Sub(s.mu.readAt) >= lookEvery {
		s.mu.readAt = now
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
	return who, known
}

// replace forgets what the book doesn't have any more. Jobs that were put since the
// book was read stay.
func (s *seats) replace(before, read map[spillway.JobID]route.Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for job := range before {
		if _, open := read[job]; !open {
			delete(s.mu.byJob, job)
		}
	}
	for job, who := range read {
		_, had := before[job]
		_, has := s.mu.byJob[job]
		switch {
		case had && !has: // it has ended since
		case !has && len(s.mu.byJob) >= maxSeats:
		case s.mu.byJob[job].System != who.System || !has:
			s.mu.byJob[job] = who
		}
	}
}

// snapshot is a copy of what is known.
func (s *seats) snapshot() map[spillway.JobID]route.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[spillway.JobID]route.Caller, len(s.mu.byJob))
	for job, who := range s.mu.byJob {
		all[job] = who
	}
	return all
}

// readSeats reads the book.
func (p *Proxy) readSeats(ctx context.Context) error {
	before := p.seats.snapshot()
	read := map[spillway.JobID]route.Caller{}
	for _, pool := range p.pools() {
		limited, cancel := context.WithTimeout(ctx, storeTimeout)
		book, err := p.opt.Book.Routed(limited, pool.Name, true)
		cancel()
		if err != nil {
			return fmt.Errorf("read the book of pool %s: %w", pool.Name, err)
		}
		for machine, its := range book.Machines {
			for _, job := range its.Open {
				read[job.ID] = route.Caller{System: machine, Pool: pool}
			}
		}
	}
	p.seats.replace(before, read)
	return nil
}

// pools returns every pool that a runner token serves, once.
func (p *Proxy) pools() map[string]spillway.Pool {
	all := map[string]spillway.Pool{}
	for _, hash := range p.opt.Tokens.Hashes() {
		served, _ := p.opt.Tokens.Pools(hash)
		for _, pool := range served {
			all[pool.Name] = pool
		}
	}
	return all
}
