package jobrouter

import (
	"context"
	"slices"
	"time"
)

// relaySlack is how much longer a call waits whose question is with another replica:
// that one has to answer first, so that a job of its isn't given to nobody.
const relaySlack = 3 * time.Second

// sweep does what time asks for: it ends waits, renews what is kept, gives up what was
// kept for too long, and offers what had to rest.
func (l *line) sweep(ctx context.Context, now time.Time) {
	others := l.others(now)
	l.mu.Lock()
	held := l.expireLocked(now)
	renewals, over, why := l.upkeepLocked(now)
	offers := l.offersLocked(now, others)
	if len(l.mu.waiters) > 0 {
		poke(l.pokePoll) // one that was barred may be asked for again
	}
	l.mu.crowd.sweep(now)
	l.mu.Unlock()
	for _, h := range held {
		l.desk.events.held(h)
	}
	for _, j := range renewals {
		l.desk.spawn(func() { l.renew(ctx, j) })
	}
	for i, j := range over {
		l.desk.spawn(func() { l.giveUp(ctx, j, why[i]) })
	}
	for _, j := range offers {
		l.desk.spawn(func() { l.place(ctx, j, nil) })
	}
}

// expireLocked ends the waits whose time is over: there is no job now. It returns for
// which of them GitLab wasn't asked, because others go first.
func (l *line) expireLocked(now time.Time) (held []HoldInfo) {
	l.dismissLocked(answer{verdict: noJob}, func(w *waiter) bool {
		end := w.deadline
		if w.wake != nil {
			end = end.Add(relaySlack)
		}
		over := now.Compare(end) >= 0
		if over && l.mu.hold.Pool != "" {
			held = append(held, HoldInfo{Pool: w.who.Pool.Name, Behind: l.mu.hold.Behind, Why: l.mu.hold.Why})
		}
		return over
	})
	return held
}

// upkeepLocked takes out of the line what is given up, and marks what is renewed.
func (l *line) upkeepLocked(now time.Time) (renewals, over []*job, why []string) {
	l.mu.kept = slices.DeleteFunc(l.mu.kept, func(j *job) bool {
		do, reason := j.upkeepAt(now, l.desk.opt.KeepFor)
		switch {
		case do == renew:
			j.renewing = true
			renewals = append(renewals, j)
		case do == leave && !j.renewing:
			over, why = append(over, j), append(why, reason)
			return true
		}
		return false
	})
	return renewals, over, why
}

// others are the machines of other tokens that could have a job that is kept here.
func (l *line) others(now time.Time) []candidate {
	l.mu.Lock()
	old := slices.ContainsFunc(l.mu.kept, func(j *job) bool { return j.forAnybody(now) })
	l.mu.Unlock()
	if !old {
		return nil
	}
	return l.desk.rivalsWaiting(l, now)
}

// offersLocked takes out of the line the jobs that some machine in it could have, or one
// of the others.
func (l *line) offersLocked(now time.Time, others []candidate) (offers []*job) {
	l.mu.kept = slices.DeleteFunc(l.mu.kept, func(j *job) bool {
		suits := func(c candidate) bool { return j.forAnybody(now) && c.suits(j.wish, now) }
		here := l.bestLocked(j.wish, nil, now) != nil || slices.ContainsFunc(others, suits)
		if j.renewing || now.Before(j.offerAt) || len(offers) >= len(l.mu.waiters)+len(others) || !here {
			return false
		}
		l.mu.placing++
		offers = append(offers, j)
		return true
	})
	return offers
}

// renew tells GitLab that a kept job is still wanted.
func (l *line) renew(ctx context.Context, j *job) {
	at, err := l.tellPending(ctx, j)
	gone := err != nil && lost(err)
	l.mu.Lock()
	j.renewing = false
	switch {
	case err == nil:
		j.acknowledged(at)
	case gone:
		l.mu.kept = slices.DeleteFunc(l.mu.kept, func(other *job) bool { return other == j })
	default:
		j.renewAt = l.desk.opt.Now().Add(renewRetry)
	}
	held := j.held()
	l.mu.Unlock()
	switch {
	case gone:
		l.giveUp(ctx, j, "GitLab says that it isn't ours any more: "+err.Error())
	case err != nil:
		l.desk.events.trouble("telling GitLab that a job is kept", err)
	default:
		l.desk.events.kept(held)
	}
}

// leaveAll gives up every kept job.
func (d *Desk) leaveAll(why string) {
	for _, l := range d.lines() {
		l.mu.Lock()
		kept := l.mu.kept
		l.mu.kept = nil
		l.mu.Unlock()
		for _, j := range kept {
			l.giveUp(context.Background(), j, why)
		}
	}
}
