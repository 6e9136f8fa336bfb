package sidecar

import "time"

// State is what is known of the runner.
type State struct {
	Busy     int       // jobs that its metrics named last
	Capacity int       // jobs that it takes at once; 0 = not known
	SeenAt   time.Time // when Busy, or Gone, was seen to be true; zero = never
	Stopping bool      // it was told to stop, or its process is gone for that: it takes no more jobs
	Gone     bool      // it has no process
	// Unhealthy is why it serves nobody though nobody told it to stop, at most 256
	// bytes; empty: it does.
	Unhealthy string
	// Order is the number of the last order that is carried out.
	Order uint64
}

// trustedFor is how long what was seen holds. It is less than what the control plane
// takes for fresh, and more than a slow answer or two.
const trustedFor = 15 * time.Second

// BusyAt is how many jobs must be taken for running: what isn't known to be idle has a
// job at least.
func (s State) BusyAt(now time.Time) int {
	switch known := now.Sub(s.SeenAt) <= trustedFor; {
	case known && s.Gone:
		return 0
	case known && !s.Stopping:
		return s.Busy
	default:
		return max(s.Busy, 1)
	}
}

// Order has the runner stop, or serve again. Numbers grow.
type Order struct {
	Number uint64
	Stop   bool
}
