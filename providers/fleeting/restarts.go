package fleeting

import "time"

// When a plugin that died is started again. The first restart comes at once: most
// deaths are accidents.
const (
	minRestartWait = time.Second // before the second one; doubles
	maxRestartWait = time.Minute
	stableAfter    = time.Minute // a process that lived so long starts a new count
)

// restarts decides when to try again.
type restarts struct {
	inARow int
	next   time.Time
	why    string // of the last death
}

// died notes the end of a process that lived for life, or a start that failed.
func (r *restarts) died(now time.Time, life time.Duration, why string) {
	if life >= stableAfter {
		r.inARow = 0
	}
	wait := time.Duration(0)
	if r.inARow > 0 {
		wait = min(minRestartWait<<min(r.inARow-1, 10), maxRestartWait)
	}
	r.inARow++
	r.next, r.why = now.Add(wait), why
}

// wait is how long there must be no start.
func (r *restarts) wait(now time.Time) time.Duration { return max(0, r.next.Sub(now)) }
