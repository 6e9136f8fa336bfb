package minirunner

import (
	"sync"
	"time"
)

// trips is how many failures in a row open the breaker
// (routerBreakerFailureThreshold).
const trips = 3

// breaker keeps a runner off a router that fails: helpers/circuitbreaker. It opens
// after some failures in a row that lasted for a while, and then lets one call
// through, whose outcome decides.
type breaker struct {
	grace, open time.Duration
	mu          struct {
		sync.Mutex
		state       breakerState
		failures    int
		first       time.Time // of the failures
		openedAt    time.Time
		timesOpened int
	}
}

type breakerState string

const (
	shut    breakerState = "closed"
	tripped breakerState = "open"
	trial   breakerState = "half-open"
)

func newBreaker(grace, open time.Duration) *breaker {
	b := &breaker{grace: grace, open: open}
	b.mu.state = shut
	return b
}

// allow reports whether a call may be made; who was allowed must tell how it went.
func (b *breaker) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.mu.state {
	case tripped:
		if time.Since(b.mu.openedAt) < b.open {
			return false
		}
		b.mu.state = trial
		return true
	case trial:
		return false
	default:
		return true
	}
}

func (b *breaker) success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.state, b.mu.failures = shut, 0
}

// failure reports whether it has opened the breaker.
func (b *breaker) failure() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch b.mu.state {
	case tripped:
		return false
	case trial:
	default:
		if b.mu.failures == 0 {
			b.mu.first = now
		}
		b.mu.failures++
		if b.mu.failures < trips || now.Sub(b.mu.first) < b.grace {
			return false
		}
	}
	b.mu.state, b.mu.openedAt = tripped, now
	b.mu.timesOpened++
	return true
}

func (b *breaker) opened() (state string, times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.mu.state), b.mu.timesOpened
}
