package asgstub

import (
	"time"
)

// The defaults of Options.
const (
	DefaultAccountID = "123456789012"
	DefaultRegion    = "us-east-1"
)

// Options is what the whole stand-in is made of.
type Options struct {
	// Now is the clock; nil is the wall clock. With a clock of the caller's nothing
	// ever waits: a long poll and a planned hang answer at once.
	Now       func() time.Time
	Seed      uint64
	AccountID string // [DefaultAccountID] if empty
	// Region is where the stand-in is. If it is set, a request signed for another
	// region is refused; if it is empty, every region is served as [DefaultRegion].
	Region string
	// Faults is for every group that has none of its own, and for calls that are
	// about no group or several.
	Faults Faults
	Rate   RateLimit // over all calls
}

// RateLimit is a token bucket. The zero value does not limit.
type RateLimit struct {
	Burst     int     `json:"burst"`      // tokens when full
	PerSecond float64 `json:"per_second"` // tokens that come back
}

// bucket is the state of a RateLimit.
type bucket struct {
	limit  RateLimit
	tokens float64
	at     time.Time
}

// take reports whether there was a token at now.
func (b *bucket) take(now time.Time) bool {
	if b.limit.Burst == 0 {
		return true
	}
	if b.at.IsZero() {
		b.tokens = float64(b.limit.Burst)
	} else if d := now.Sub(b.at); d > 0 {
		b.tokens = min(float64(b.limit.Burst), b.tokens+d.Seconds()*b.limit.PerSecond)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
