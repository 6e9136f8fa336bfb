package jobrouter

import (
	"cmp"
	"time"
)

// candidate is what choosing a machine for a job needs to know of one that waits.
type candidate struct {
	priority    int       // of its pool, 0 first
	usedAt      time.Time // when it was last given a job; zero = never by us
	twoPhase    bool
	features    *features
	barredUntil time.Time // it was found to be ordered to drain: not asked again before
}

// wish is what a job needs of whoever gets it.
type wish struct {
	twoPhase bool
	features *features // that it was asked for with; nil = any
}

// suits reports whether the machine may have the job at now. A job that was asked for
// without two-phase commit is running already in GitLab's eyes, which a runner that
// wants to acknowledge it doesn't expect, and the other way round.
func (c *candidate) suits(w wish, now time.Time) bool {
	return c.twoPhase == w.twoPhase && now.Compare(c.barredUntil) >= 0 && (w.features == nil || c.features.covers(w.features))
}

// rank orders two machines that suit: negative if a goes first. The pool's priority
// decides, then the most recent use, so that the others can idle out.
func rank(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), b.usedAt.Compare(a.usedAt))
}

// rankToAsk is rank for choosing with whose words GitLab is asked: machines with
// two-phase commit go first, because a job for one of them can't be lost.
func rankToAsk(a, b *candidate) int {
	if a.twoPhase != b.twoPhase {
		if a.twoPhase {
			return -1
		}
		return 1
	}
	return rank(a, b)
}
