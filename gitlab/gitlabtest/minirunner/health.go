package minirunner

import (
	"sync"
	"time"
)

// strikes is how many unhealthy answers in a row turn a runner off
// (common.DefaultUnhealthyRequestsLimit).
const strikes = 3

// health turns a runner off that got only bad answers: commands/health_helper.go.
type health struct {
	off time.Duration
	mu  struct {
		sync.Mutex
		failures int
		since    time.Time // when it was last well
	}
}

func newHealth(off time.Duration) *health {
	h := &health{off: off}
	h.mu.since = time.Now()
	return h
}

// well reports whether to ask for a job. After the time off it is tried again.
func (h *health) well() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failures < strikes {
		return true
	}
	if time.Since(h.mu.since) <= h.off {
		return false
	}
	h.mu.failures, h.mu.since = 0, time.Now()
	return true
}

func (h *health) mark(healthy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if healthy {
		h.mu.failures, h.mu.since = 0, time.Now()
		return
	}
	h.mu.failures++
}

func (h *health) isOff() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failures >= strikes
}
