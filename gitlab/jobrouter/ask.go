package jobrouter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// headers of a question.
const (
	headerToken     = "Runner-Token"
	headerRequestID = "X-Request-Id"
	// headerReplica tells GitLab's log which of our replicas asks.
	headerReplica = "X-Spillway-Replica"
)

// ask asks GitLab for jobs as long as the token is ours to poll and somebody waits. Its
// goroutine is the only one that does, so that there is one question at a time.
func (l *line) ask(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := l.desk.opt.Now()
		at, ok := l.nextAsk(now)
		if ok && !at.After(now) {
			l.askOnce(ctx)
			continue
		}
		if ok {
			timer.Reset(at.Sub(now))
		}
		select {
		case <-ctx.Done():
		case <-l.pokePoll:
		case <-timer.C:
		}
	}
}

// nextAsk is when GitLab is to be asked next, if at all as things stand.
func (l *line) nextAsk(now time.Time) (at time.Time, ok bool) {
	if !l.mayAsk(now) {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ask, _ := l.needLocked(now).wanted(); !ask {
		return time.Time{}, false
	}
	return l.mu.pace.next(now), true
}

func (l *line) needLocked(now time.Time) need {
	n := need{rest: l.mu.role.lease.Rest(now), inHand: len(l.mu.kept) + l.mu.placing, hold: l.desk.opt.HoldPerToken}
	for _, w := range l.mu.waiters {
		if !now.Before(w.barredUntil) {
			n.waiting++
		}
	}
	return n
}

// question is one question to GitLab.
type question struct {
	asker  *waiter // in whose name; nil = nobody's
	body   []byte
	header http.Header
	wish   wish // that a job from it brings along
}

// askOnce asks GitLab once, if that is still wanted once it is known in whose name, and
// acts on the answer.
func (l *line) askOnce(ctx context.Context) {
	asker, ok := l.chooseAsker(ctx)
	if !ok {
		return
	}
	q, err := l.question(asker)
	began := l.desk.opt.Now()
	switch {
	case errors.Is(err, route.ErrUnknownToken):
		l.finishAsk(refused, began, 0)
		return
	case err != nil:
		l.desk.events.trouble("asking GitLab for a job", err)
		l.finishAsk(failed, began, 0)
		return
	case !l.mayAsk(began), !l.startAsk(asker, began):
		return
	}
	call, cancel := context.WithTimeout(ctx, askTimeout)
	a, err := l.desk.opt.GitLab.RequestJob(call, q.body, q.header)
	cancel()
	o := judge(a, err)
	now := l.desk.opt.Now()
	l.desk.events.polled(PolledInfo{
		Token: l.hash, Status: a.Status, Outcome: o.String(), Ill: o.ill(), Took: now.Sub(began), FromZero: asker == nil, Err: err,
	})
	l.learn(a, o)
	if o == found {
		o = l.take(ctx, a, q, now)
	}
	l.finishAsk(o, began, a.RetryAfter)
}

// chooseAsker is the machine in whose name GitLab is asked: the first that isn't
// ordered to drain. nil: nobody waits, and a job may be kept.
func (l *line) chooseAsker(ctx context.Context) (asker *waiter, ok bool) {
	for ctx.Err() == nil {
		now := l.desk.opt.Now()
		l.mu.Lock()
		ask, fromZero := l.needLocked(now).wanted()
		w := l.firstToAskLocked(now)
		l.mu.Unlock()
		if !ask || fromZero || w == nil {
			return nil, ask && fromZero
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		order, ordered, err := l.desk.opt.Book.Ordered(call, w.who.Pool.Name, w.who.System)
		cancel()
		if err != nil {
			// A job that came now could not be booked either.
			l.desk.events.trouble("reading whether a machine is to be drained", err)
			l.mu.Lock()
			l.mu.pace.notBefore = l.desk.opt.Now().Add(storeRetry)
			l.mu.Unlock()
			return nil, false
		}
		l.mu.Lock()
		if !ordered || !order.On {
			l.countLocked(w)
			l.mu.Unlock()
			return w, true
		}
		w.barredUntil = now.Add(barredFor)
		l.discountLocked(w, false)
		l.mu.Unlock()
	}
	return nil, false
}

func (l *line) firstToAskLocked(now time.Time) *waiter {
	var first *waiter
	for _, w := range l.mu.waiters {
		if !now.Before(w.barredUntil) && (first == nil || rankToAsk(&w.candidate, &first.candidate) < 0) {
			first = w
		}
	}
	return first
}

// question writes it in the words of the asker, or in nobody's. route.ErrUnknownToken:
// no pool has the token any more.
func (l *line) question(asker *waiter) (*question, error) {
	token, ok := l.desk.opt.Tokens.Reveal(l.hash)
	if !ok {
		return nil, route.ErrUnknownToken
	}
	l.mu.Lock()
	lastUpdate, last := l.mu.lastUpdate, l.mu.lastBody
	l.mu.Unlock()
	q := &question{asker: asker, header: http.Header{headerToken: {token}, headerReplica: {l.desk.opt.Replica}, "Content-Type": {"application/json"}}}
	var err error
	atOnce := l.desk.comesLater(l.hash, l.pool(asker))
	if asker == nil {
		q.wish = wish{twoPhase: true} // any machine has the features that were sent
		if atOnce {
			lastUpdate = ""
		}
		q.body, err = forNobody(last, token, lastUpdate)
		return q, err
	}
	q.wish = wish{twoPhase: asker.twoPhase, features: asker.features}
	q.header.Set(headerRequestID, asker.requestID)
	if atOnce {
		q.body, err = route.WithoutLastUpdate(asker.body)
		return q, err
	}
	q.body, err = withLastUpdate(asker.body, lastUpdate)
	return q, err
}

// startAsk takes the question out of the budget, if it is still to be asked: the lease
// must be ours, and a machine without two-phase commit must still wait, because GitLab
// takes a job for it as running at once.
func (l *line) startAsk(asker *waiter, now time.Time) bool {
	l.mu.Lock()
	tell := false
	ok := l.mu.role.lease.Rest(now) > leaseMargin && (asker == nil || asker.stage == standing)
	if ok {
		l.mu.pace.asked(now)
		l.mu.asking = true
		if asker != nil && !asker.twoPhase {
			tell, l.mu.legacyTold = !l.mu.legacyTold, true
		}
	}
	l.mu.Unlock()
	if tell {
		l.desk.events.degraded(l.hash, "a runner without two-phase commit asks with this token: a job that it doesn't get can't be kept; update it to GitLab Runner 18.5 or later")
	}
	return ok
}

// learn keeps what the answer says besides the job.
func (l *line) learn(a gitlab.JobAnswer, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.LastUpdate != "" && o == nothing { // with a job it would say that there are no more
		l.mu.lastUpdate = a.LastUpdate
	}
}

// finishAsk sets the pace for the next question. Where GitLab refuses the token, the
// runners are sent there: it tells them themselves, or it is us that it refuses.
func (l *line) finishAsk(o outcome, began time.Time, retryAfter time.Duration) {
	now, dice := l.desk.opt.Now(), l.desk.opt.Dice()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.asking = false
	l.mu.pace.answered(o, began, now, retryAfter, dice)
	if o != found {
		l.mu.lookAt = now.Add(LookEvery)
	}
	if o == refused {
		l.mu.directTill = l.mu.pace.notBefore
		l.dismissLocked(answer{verdict: direct}, everybody)
	}
}

// judge says what an answer means.
func judge(a gitlab.JobAnswer, err error) outcome {
	var tooMany *gitlab.Limited
	switch {
	case errors.As(err, &tooMany):
		return limited
	case err != nil:
		return failed
	}
	switch a.Status {
	case http.StatusCreated:
		return found
	case http.StatusNoContent:
		return nothing
	case http.StatusConflict:
		return contended
	case http.StatusTooManyRequests:
		return limited
	case http.StatusForbidden, http.StatusUnauthorized:
		return refused
	default:
		return failed
	}
}

// tooLarge is why a job fails of which GitLab's answer is cut.
var tooLarge = fmt.Sprintf("the job is larger than %d bytes: no runner takes more from a job router", gitlab.MaxPayloadBytes)

// take begins to place a job. What can't be read can't even be kept: it is left.
func (l *line) take(ctx context.Context, a gitlab.JobAnswer, q *question, now time.Time) outcome {
	parse := gitlab.ParsePayload
	if a.Cut {
		parse = gitlab.ParsePayloadHead
	}
	payload, err := parse(a.Body)
	if err != nil {
		l.desk.events.trouble("reading a job that GitLab gave out", err)
		return failed
	}
	pools, _ := l.desk.opt.Tokens.Pools(l.hash)
	j := newJob(a, payload, l.hash, pools, q.wish, now)
	l.desk.events.found(j.held())
	l.desk.rivals.took(l.pool(q.asker))
	beside := context.WithoutCancel(ctx)
	if a.Cut {
		l.desk.spawn(func() { l.reject(beside, j, tooLarge) })
		return found
	}
	l.mu.Lock()
	l.mu.placing++
	w := l.bestLocked(j.wish, q.asker, now)
	if w != nil {
		l.callLocked(w) // now, so that no further job is asked for it
	}
	l.mu.Unlock()
	l.desk.spawn(func() { l.place(beside, j, w) })
	return found
}
