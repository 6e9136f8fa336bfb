package providers

import (
	"math/rand/v2"
	"slices"
	"time"
)

// crashLoop is the number of deaths within [Timing.Settle] that make a crash loop.
const crashLoop = 5

// restarts decides when a dead process is started again: at once after the first
// death, since most are accidents and a pool waits; then after [Timing.Restart],
// doubled each time; in a crash loop once per [Timing.Settle], for ever: somebody may
// have repaired it. It is the supervisor's own.
type restarts struct {
	timing Timing
	deaths []time.Time // within Settle
	inARow int         // since the last stable process
	broken bool
}

// died notes the end, at now, of a process that lived for life (0: it did not
// even start) and says how long to wait, and whether the plugin is broken.
// hopeless is for a failure that repeats until somebody changes something.
func (r *restarts) died(now time.Time, life time.Duration, hopeless bool) (wait time.Duration, broken bool) {
	if life >= r.timing.Settle {
		*r = restarts{timing: r.timing}
	}
	r.deaths = slices.DeleteFunc(r.deaths, func(at time.Time) bool { return now.Sub(at) >= r.timing.Settle })
	r.deaths = append(r.deaths, now)
	r.inARow++
	r.broken = r.broken || hopeless || len(r.deaths) >= crashLoop
	switch {
	case r.broken:
		return r.timing.Settle, true
	case r.inARow == 1:
		return 0, false
	default:
		return r.timing.backoff(r.inARow - 2), false
	}
}

// backoff is Restart doubled n times, at most Settle.
func (t Timing) backoff(n int) time.Duration {
	wait := t.Restart
	for range n {
		if wait *= 2; wait >= t.Settle {
			break
		}
	}
	return min(wait, t.Settle)
}

// unevenly makes d up to a fifth shorter: what the death of a machine's cloud or disk
// has ended all at once doesn't start all at once.
func unevenly(d time.Duration) time.Duration {
	return d - rand.N(d/5+1)
}
