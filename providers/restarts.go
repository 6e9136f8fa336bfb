package providers

import (
	"slices"
	"time"
)

// When a dead process is started again. The first restart comes at once: most
// deaths are accidents, and a pool waits.
const (
	minRestartWait = time.Second // before the second restart; doubles
	maxRestartWait = time.Minute
	crashLoop      = 5           // deaths
	crashLoopSpan  = time.Minute // within which they make a crash loop
	brokenRetry    = time.Minute // between attempts in a crash loop: somebody may have repaired it
	stableAfter    = time.Minute // a process that lived so long starts a new count
)

// restarts decides when to try again. It is the supervisor's own.
type restarts struct {
	deaths []time.Time // within crashLoopSpan
	inARow int         // since the last stable process
	broken bool
}

// died notes the end, at now, of a process that lived for life (0: it did not
// even start) and says how long to wait, and whether the plugin is broken.
// hopeless is for a failure that repeats until somebody changes something.
func (r *restarts) died(now time.Time, life time.Duration, hopeless bool) (wait time.Duration, broken bool) {
	if life >= stableAfter {
		*r = restarts{}
	}
	r.deaths = slices.DeleteFunc(r.deaths, func(at time.Time) bool { return now.Sub(at) >= crashLoopSpan })
	r.deaths = append(r.deaths, now)
	r.inARow++
	r.broken = r.broken || hopeless || len(r.deaths) >= crashLoop
	switch {
	case r.broken:
		return brokenRetry, true
	case r.inARow == 1:
		return 0, false
	default:
		return backoff(r.inARow - 2), false
	}
}

// backoff is minRestartWait doubled n times, at most maxRestartWait.
func backoff(n int) time.Duration {
	wait := minRestartWait
	for range n {
		if wait *= 2; wait >= maxRestartWait {
			return maxRestartWait
		}
	}
	return wait
}
