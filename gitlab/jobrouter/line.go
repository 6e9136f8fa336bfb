package jobrouter

import (
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
)

// role is who polls a token, as far as this replica knows.
type role struct {
	lease  spillway.Lease // ours, if it has not ended
	holder string         // another replica, if it isn't empty
}

func (r role) ours(now time.Time) bool { return r.lease.Rest(now) > 0 }

// line is the calls that wait with one runner token, the jobs that GitLab gave out for
// it, and who polls it.
type line struct {
	desk *Desk
	hash string // of the token
	// pokeTend and pokePoll wake the two loops of the line: 1 slot each.
	pokeTend, pokePoll chan struct{}

	mu struct {
		sync.Mutex
		waiters []*waiter // standing
		kept    []*job    // without a machine, the oldest first
		placing int       // jobs for which a machine is being sought
		asking  bool      // GitLab is being asked

		role     role
		changed  chan struct{} // closed when role is another, or its holder may answer again
		suspect  bool          // the holder could not be reached
		tendAt   time.Time     // when the lease is looked at next
		idleAt   time.Time     // since when nobody needs it; zero = somebody does
		released bool          // it was given back because of that

		pace       pace
		lastUpdate string
		lastBody   []byte    // of the call that came last, for questions in nobody's name
		directTill time.Time // GitLab refuses the token: calls are sent there until then
		legacyTold bool
		usedAt     map[spillway.MachineID]time.Time

		crowd  crowd     // of the waiters that may be given a job
		hold   HoldInfo  // why GitLab isn't asked; its Pool is empty while it may be
		lookAt time.Time // when it is asked all the same, where nobody knows what waits
	}
}

func newLine(d *Desk, hash string) *line {
	l := &line{desk: d, hash: hash, pokeTend: make(chan struct{}, 1), pokePoll: make(chan struct{}, 1)}
	l.mu.changed = make(chan struct{})
	l.mu.usedAt = map[spillway.MachineID]time.Time{}
	l.mu.pace = pace{rate: float64(d.opt.RatePerToken), every: d.opt.PollEvery}
	return l
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join lets w stand in line, or answers it at once. A job that was kept for somebody
// like it is taken out for it; the caller has to place that.
func (l *line) join(w *waiter, now time.Time) (kept *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.lastBody = w.body
	switch {
	case l.desk.draining.Load(), now.Before(l.mu.directTill):
		l.answerLocked(w, answer{verdict: direct})
		return nil
	case l.desk.ended.Load():
		l.answerLocked(w, answer{verdict: going})
		return nil
	}
	w.usedAt = l.mu.usedAt[w.who.System]
	l.standLocked(w)
	poke(l.pokePoll)
	if l.mu.released {
		l.mu.released, l.mu.tendAt = false, now
		poke(l.pokeTend)
	}
	return l.matchLocked(w, now)
}

func (l *line) standLocked(w *waiter) {
	w.stage, w.index = standing, len(l.mu.waiters)
	l.mu.waiters = append(l.mu.waiters, w)
	if w.barredUntil.IsZero() {
		l.countLocked(w)
	}
}

// countLocked makes w one that others wait for. A machine that was found to be ordered
// to drain is none until it is found not to be.
func (l *line) countLocked(w *waiter) {
	if w.counted || w.visits || w.stage != standing {
		return
	}
	w.counted = true
	if l.mu.crowd.come(w.who.Pool.Name, w.who.System, l.desk.opt.Now()) {
		l.desk.crowdChanged()
	}
}

// discountLocked is the reverse; back: it asks again soon.
func (l *line) discountLocked(w *waiter, back bool) {
	if !w.counted {
		return
	}
	w.counted = false
	if l.mu.crowd.leave(w.who.Pool.Name, w.who.System, back, l.desk.opt.Now()) {
		l.desk.crowdChanged()
	}
}

// removeLocked takes w out of the line; the order of the others doesn't matter. back: it
// is told that there is no job, and asks again soon.
func (l *line) removeLocked(w *waiter, back bool) {
	l.discountLocked(w, back)
	last := len(l.mu.waiters) - 1
	moved := l.mu.waiters[last]
	l.mu.waiters[w.index], moved.index = moved, w.index
	l.mu.waiters[last] = nil
	l.mu.waiters = l.mu.waiters[:last]
}

// matchLocked takes the oldest kept job that suits w out of the line, and calls w for it.
func (l *line) matchLocked(w *waiter, now time.Time) *job {
	for i, j := range l.mu.kept {
		if now.Before(j.offerAt) || j.renewing || !w.suits(j.wish, now) {
			continue
		}
		l.mu.kept = slices.Delete(l.mu.kept, i, i+1)
		l.mu.placing++
		l.callLocked(w)
		return j
	}
	return nil
}

func (l *line) callLocked(w *waiter) {
	l.removeLocked(w, false)
	w.stage = called
}

// bestLocked is the machine that stands in line and goes first for a job. prefer is the
// one in whose name GitLab was asked: GitLab notes the job for it, so it goes before
// others of the same priority.
func (l *line) bestLocked(need wish, prefer *waiter, now time.Time) *waiter {
	var best *waiter
	for _, w := range l.mu.waiters {
		if w.suits(need, now) && (best == nil || rank(&w.candidate, &best.candidate) < 0) {
			best = w
		}
	}
	if prefer != nil && best != nil && prefer.stage == standing && prefer.suits(need, now) && prefer.priority == best.priority {
		return prefer
	}
	return best
}

// back lets w, which got no job after all, stand in line again, without being asked
// for before barredUntil.
func (l *line) back(w *waiter, barredUntil time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.stage != called {
		return // its call has ended
	}
	w.barredUntil = barredUntil
	switch {
	case l.desk.draining.Load():
		l.answerLocked(w, answer{verdict: direct})
	case l.desk.ended.Load():
		l.answerLocked(w, answer{verdict: going})
	default:
		l.standLocked(w)
		poke(l.pokePoll)
	}
}

// hand answers w with a job. It is false if its call has ended.
func (l *line) hand(w *waiter, a answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.stage != called {
		return false
	}
	l.answerLocked(w, a)
	return true
}

// answerLocked makes the answer of a call that doesn't stand in line final.
func (l *line) answerLocked(w *waiter, a answer) {
	if a.lastUpdate == "" {
		a.lastUpdate = l.mu.lastUpdate
	}
	w.stage, w.answer = answered, a
	close(w.ready)
	if w.wake != nil {
		w.wake()
	}
}

// dismissLocked answers everybody who stands in line and is chosen.
func (l *line) dismissLocked(a answer, chosen func(*waiter) bool) {
	for i := len(l.mu.waiters) - 1; i >= 0; i-- { // from the end: removing moves the last one
		if w := l.mu.waiters[i]; chosen(w) {
			l.removeLocked(w, a.verdict == noJob)
			l.answerLocked(w, a)
		}
	}
}

func everybody(*waiter) bool { return true }

// leave ends the wait of w, whose call has ended. If it was answered just now, that is
// returned: the job in it has to be settled.
func (l *line) leave(w *waiter) (answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.stage == answered {
		return w.answer, true
	}
	if w.stage == standing {
		l.removeLocked(w, false)
	}
	w.stage = gone
	return answer{}, false
}

// used notes that a machine has got a job.
func (l *line) used(id spillway.MachineID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.mu.usedAt[id]; !known && len(l.mu.usedAt) >= maxUsed {
		for other := range l.mu.usedAt { // any: it only costs an order of preference
			delete(l.mu.usedAt, other)
			break
		}
	}
	l.mu.usedAt[id] = now
}
