package webhook

import (
	"sync"
	"time"
)

// Limits on what is remembered.
const (
	// MaxRemembered bounds the deliveries, and the jobs, that are remembered [entries each].
	MaxRemembered = 50_000
	// RememberFor is how long [time]. GitLab's "resend" can come at any time; after this
	// long the lists have long told the truth.
	RememberFor = time.Hour
)

// memory is what was heard: deliveries, and how far each job is.
type memory struct {
	mu struct {
		sync.Mutex
		deliveries ring[string, time.Time]
		jobs       ring[int64, fact]
	}
}

// fact is the furthest that is known of a job.
type fact struct {
	stage jobStage
	at    time.Time // the event's
	heard time.Time
}

func newMemory(limit int) *memory {
	m := &memory{}
	m.mu.deliveries = newRing[string, time.Time](limit)
	m.mu.jobs = newRing[int64, fact](limit)
	return m
}

// known reports whether a hook says nothing new: one of its keys was heard, or something
// that is later in the job's life.
func (m *memory) known(keys []string, e Event, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if at, ok := m.mu.deliveries.get(key); ok && now.Sub(at) < RememberFor {
			return true
		}
	}
	f, ok := m.mu.jobs.get(e.JobID)
	if !ok || now.Sub(f.heard) >= RememberFor {
		return false
	}
	s := stage(e.Status)
	return s < f.stage || (s == f.stage && e.At.Before(f.at))
}

// heard books a hook that was passed on.
func (m *memory) heard(keys []string, e Event, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.mu.deliveries.put(key, now)
	}
	next := fact{stage(e.Status), e.At, now}
	// Two hooks of one job may be passed on at the same time: the further one stays.
	if f, ok := m.mu.jobs.get(e.JobID); ok && now.Sub(f.heard) < RememberFor && next.stage < f.stage {
		return
	}
	m.mu.jobs.put(e.JobID, next)
}

// ring is a map of at most limit entries, of which the first put goes first.
type ring[K comparable, V any] struct {
	limit  int
	values map[K]V
	order  []K
	oldest int // index into order, once that is full
}

func newRing[K comparable, V any](limit int) ring[K, V] {
	return ring[K, V]{limit: limit, values: map[K]V{}}
}

func (r *ring[K, V]) get(k K) (V, bool) {
	v, ok := r.values[k]
	return v, ok
}

func (r *ring[K, V]) put(k K, v V) {
	if _, known := r.values[k]; !known {
		if len(r.order) < r.limit {
			r.order = append(r.order, k)
		} else {
			delete(r.values, r.order[r.oldest])
			r.order[r.oldest] = k
			r.oldest = (r.oldest + 1) % r.limit
		}
	}
	r.values[k] = v
}
