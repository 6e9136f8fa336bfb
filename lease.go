package spillway

import "time"

// Lease is time-bounded ownership of a name.
type Lease struct {
	Name   string
	Holder string
	Epoch  uint64 // unix_ms<<10 | counter, below 2^53: it grows over a loss of the store too
	// Until is when the lease ends at the latest, by the local monotonic clock,
	// counted from before the call was sent.
	Until time.Time
}

// Rest is what is left of the lease at now.
func (l Lease) Rest(now time.Time) time.Duration { return l.Until.Sub(now) }
