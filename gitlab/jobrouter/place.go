package jobrouter

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

// reasonSystem is GitLab's failure reason for a job that failed without its doing.
const reasonSystem = "runner_system_failure"

// place finds a machine for a job, or has it kept. w was called for it; nil: nobody yet.
func (l *line) place(ctx context.Context, j *job, w *waiter) {
	defer l.placed()
	defer l.desk.recovered(func() { l.keep(ctx, j, storeRetry) })
	for {
		if !l.clear(ctx, j) {
			l.returnUnused(w)
			return
		}
		if w == nil {
			if w = l.call(j); w == nil {
				l.keep(ctx, j, 0)
				return
			}
		}
		if l.offer(ctx, j, w) {
			return
		}
		w = nil
	}
}

func (l *line) placed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.placing--
}

func (l *line) returnUnused(w *waiter) {
	if w != nil {
		w.line.back(w, time.Time{})
	}
}

// recovered tells of a panic and cleans up after it: a hook that panics must cost
// neither a job nor the process.
func (d *Desk) recovered(clean func()) {
	if v := recover(); v != nil {
		d.events.panicked(v, debug.Stack())
		clean()
	}
}

// call takes the best machine for j out of the line, or out of another one if j has been
// in our hands for too long.
func (l *line) call(j *job) *waiter {
	now := l.desk.opt.Now()
	if w := l.callBest(j.wish, now); w != nil || !j.forAnybody(now) {
		return w
	}
	return l.desk.callRival(l, j.wish, now)
}

func (l *line) callBest(need wish, now time.Time) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.bestLocked(need, nil, now)
	if w != nil {
		l.callLocked(w)
	}
	return w
}

// clear makes sure that j may be offered: that no machine has it, by GitLab's word, and
// that it is in no machine's book. Otherwise it is kept for later or given up.
func (l *line) clear(ctx context.Context, j *job) bool {
	if j.doubtful {
		at, err := l.tellPending(ctx, j)
		switch {
		case err == nil:
			j.doubtful = false
			j.acknowledged(at)
		case lost(err):
			l.giveUp(ctx, j, "GitLab says that it isn't ours to give any more: "+err.Error())
			return false
		default:
			l.desk.events.trouble("asking GitLab whether a job was taken", err)
			l.keep(ctx, j, storeRetry)
			return false
		}
	}
	if j.booked {
		if err := l.strike(ctx, j); err != nil {
			l.desk.events.trouble("striking a job from a machine's book", err)
			l.keep(ctx, j, storeRetry)
			return false
		}
	}
	return true
}

// offer tries to give j to w, and reports whether j is settled, one way or another.
func (l *line) offer(ctx context.Context, j *job, w *waiter) bool {
	defer func() {
		if v := recover(); v != nil {
			w.line.back(w, time.Time{})
			panic(v) // place tells of it
		}
	}()
	if ok, reason := l.admit(ctx, j, w); !ok {
		w.line.back(w, time.Time{})
		l.reject(ctx, j, reason)
		return true
	}
	now := l.desk.opt.Now()
	j.booked = true // from the attempt on: a failed one may have been carried out
	call, cancel := context.WithTimeout(ctx, callTimeout)
	begun, err := l.desk.opt.Book.BeginRouted(call, l.booking(j, w, now))
	cancel()
	switch {
	case err != nil:
		l.desk.events.trouble("booking a job on a machine", err)
		w.line.back(w, now.Add(storeRetry))
		return l.elsewhere(ctx, j)
	case !begun:
		j.booked = false
		w.line.back(w, now.Add(barredFor))
		return false
	}
	a := answer{verdict: aJob, body: j.body, requestID: j.requestID, settle: func(d delivery) { l.settle(ctx, j, w, d) }}
	return w.line.hand(w, a)
}

// booking is j on the machine of w. Where the machine's acknowledgement doesn't pass us,
// and where GitLab waits for none, the job is open until it is surely over.
func (l *line) booking(j *job, w *waiter, now time.Time) store.RoutedJob {
	b := store.RoutedJob{ID: j.id, Pool: w.who.Pool.Name, Machine: w.who.System, Begun: now, Until: j.until(now)}
	if l.desk.opt.Fronted && j.wish.twoPhase && w.twoPhase {
		b.ConfirmWithin = route.ConfirmWithin
	}
	return b
}

// elsewhere decides what becomes of j after its booking has failed: another machine may
// have it if the booking can be struck, else the store is away and it rests.
func (l *line) elsewhere(ctx context.Context, j *job) (settled bool) {
	if err := l.strike(ctx, j); err != nil {
		l.keep(ctx, j, storeRetry)
		return true
	}
	return false
}

// admit asks once for each pool.
func (l *line) admit(ctx context.Context, j *job, w *waiter) (ok bool, reason string) {
	if l.desk.opt.Admit == nil || j.admitted == w.who.Pool.Name {
		return true, ""
	}
	if j.payload.MoreServices {
		return false, gitlab.TooManyServices
	}
	call, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	ok, reason = l.desk.opt.Admit(call, j.payload, *w.who)
	if ok {
		j.admitted = w.who.Pool.Name
	}
	return ok, reason
}

// reject fails j in GitLab with the reason in its log.
func (l *line) reject(ctx context.Context, j *job, reason string) {
	if j.booked {
		if err := l.strike(ctx, j); err != nil {
			l.desk.events.trouble("striking a job from a machine's book", err)
		}
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := l.desk.opt.GitLab.FailJob(call, j.payload.ID, j.payload.Token, reasonSystem, reason)
	if err != nil {
		l.desk.events.trouble("failing a job that was refused", err)
		l.desk.events.left(j.held(), "it was refused ("+reason+"), and GitLab could not be told")
		return
	}
	l.desk.events.rejected(j.held(), reason)
}

// settle ends the way of a job to a machine. It is called by the call that carried it.
func (l *line) settle(ctx context.Context, j *job, w *waiter, d delivery) {
	now := l.desk.opt.Now()
	switch d {
	case arrived:
		w.line.used(w.who.System, now)
		l.desk.events.given(j.held(), GivenInfo{Pool: w.who.Pool.Name, Machine: w.who.System, Waited: now.Sub(j.foundAt), Relayed: w.relayed})
	case unknown:
		// The machine may run it: it stays booked until it is confirmed or can't be any more,
		// and GitLab decides.
		l.desk.events.left(j.held(), "the replica that was to pass it on to the machine did not say whether it could")
	case unwritten, broken:
		j.doubtful = d == broken && j.wish.twoPhase // about another one GitLab can't be asked
		l.mu.Lock()
		l.mu.placing++
		l.mu.Unlock()
		l.place(ctx, j, nil)
	}
}

// keep lays j into the line until a machine takes it; not before rest has passed.
func (l *line) keep(ctx context.Context, j *job, rest time.Duration) {
	j.offerAt = l.desk.opt.Now().Add(rest)
	held := j.held() // before it can be taken by somebody else
	l.mu.Lock()
	room := len(l.mu.kept) < MaxKept
	if room {
		l.mu.kept = append(l.mu.kept, j)
	}
	l.mu.Unlock()
	if !room {
		l.giveUp(ctx, j, fmt.Sprintf("%d jobs are kept for this token already", MaxKept))
		return
	}
	l.desk.events.kept(held)
}

// giveUp leaves j to GitLab. It must be in no book then, unless a machine may run it: there
// it stays booked until it is confirmed or can't be any more.
func (l *line) giveUp(ctx context.Context, j *job, why string) {
	if !j.wish.twoPhase {
		l.reject(ctx, j, why)
		return
	}
	if j.booked && !j.doubtful {
		if err := l.strike(ctx, j); err != nil {
			l.desk.events.trouble("striking a job from a machine's book", err)
		}
	}
	l.desk.events.left(j.held(), why)
}

func (l *line) strike(ctx context.Context, j *job) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.desk.opt.Book.EndRouted(call, j.id); err != nil {
		return err
	}
	j.booked = false
	return nil
}

// tellPending tells GitLab that j is still ours, and returns when it was told that at
// the earliest.
func (l *line) tellPending(ctx context.Context, j *job) (time.Time, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := l.desk.opt.Now()
	return began, l.desk.opt.GitLab.KeepPending(call, j.payload.ID, j.payload.Token)
}

// lost reports whether GitLab has said that a job isn't ours any more.
func lost(err error) bool {
	for _, gone := range []error{gitlab.ErrConflict, gitlab.ErrForbidden, gitlab.ErrNotFound, gitlab.ErrUnauthorized} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
