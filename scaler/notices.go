package scaler

import (
	"sync"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// maxNotices bounds the interruption notices that wait for a pool's goroutine;
// more are dropped, and the provider's next list tells of them anyway.
const maxNotices = 256

// notices is the interruption notices that wait for a pool's goroutine. Nearly
// always there are none, and then they take no memory: slots for every pool of a
// large fleet would be the most of it.
type notices struct {
	mu struct {
		sync.Mutex
		waiting []pluginsdk.Interruption
	}
}

// add reports whether there was room.
func (q *notices) add(n pluginsdk.Interruption) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.waiting) >= maxNotices {
		return false
	}
	q.mu.waiting = append(q.mu.waiting, n)
	return true
}

// take returns what waits, the first that came first, and leaves nothing behind.
func (q *notices) take() []pluginsdk.Interruption {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.mu.waiting
	q.mu.waiting = nil
	return all
}
