package store

import (
	"context"
	"sync"
	"time"
)

const (
	// roomMaxAge is how old the count behind a queuedEstimate may be.
	roomMaxAge = 10 * time.Second
	// roomReplicas is the number of equally busy replicas up to which MaxQueued is
	// kept: each uses at most this part of the room before it counts again.
	roomReplicas = 8
)

// queuedEstimate is how many jobs are pending or claimed, as far as this replica
// knows: counted once in a while, plus its own pushes since. The classes of the
// queue live in different slots, so that no script could count them all; far from
// the bound, a rough number is enough, and near it every push counts.
type queuedEstimate struct {
	sync.Mutex
	at   time.Time // of the count; zero = never
	jobs int       // then
	own  int       // accepted by this replica since
}

func (e *queuedEstimate) counted(jobs int, at time.Time) {
	e.Lock()
	defer e.Unlock()
	e.at, e.jobs, e.own = at, jobs, 0
}

func (e *queuedEstimate) accepted(jobs int) {
	e.Lock()
	defer e.Unlock()
	e.own += jobs
}

// room is how many more jobs fit, and whether that can be relied on for n jobs.
func (e *queuedEstimate) room(n, most int, now time.Time) (room int, sure bool) {
	e.Lock()
	defer e.Unlock()
	free := most - e.jobs
	sure = !e.at.IsZero() && now.Sub(e.at) < roomMaxAge && e.own+n <= free/roomReplicas
	return max(0, free-e.own), sure
}

// room returns how many of n jobs fit into the queue.
func (s *Store) room(ctx context.Context, n int) (int, error) {
	if _, sure := s.queued.room(n, s.opt.MaxQueued, s.now()); sure {
		return n, nil
	}
	if _, err := s.countClasses(ctx); err != nil {
		return 0, err
	}
	room, _ := s.queued.room(n, s.opt.MaxQueued, s.now())
	return min(room, n), nil
}
