package jobrouter

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway/store"
)

// tend keeps the lease of the line's token as long as somebody needs it, or knows who
// has it. Its goroutine alone acquires and releases it.
func (l *line) tend(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.giveBack(ctx)
			return
		case <-l.pokeTend:
		case <-timer.C:
		}
		now := l.desk.opt.Now()
		if l.dueToTend(now) {
			l.tendOnce(ctx, now)
		}
		timer.Reset(l.untilTend())
	}
}

// dueToTend reports whether the lease is to be looked at now.
func (l *line) dueToTend(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.suspect {
		l.mu.suspect = false
		l.mu.tendAt = minTime(l.mu.tendAt, now.Add(leaseRetry))
	}
	return now.Compare(l.mu.tendAt) >= 0
}

func (l *line) untilTend() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Millisecond, l.mu.tendAt.Sub(l.desk.opt.Now()))
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tendOnce acquires or renews the lease, or gives up one that nobody has needed for a
// while.
func (l *line) tendOnce(ctx context.Context, now time.Time) {
	if l.unneeded(now) {
		l.giveBack(ctx)
		l.mu.Lock()
		l.mu.released = len(l.mu.waiters) == 0
		if !l.mu.released {
			l.mu.tendAt = now // somebody came meanwhile
		}
		l.mu.Unlock()
		return
	}
	opt := &l.desk.opt
	call, cancel := context.WithTimeout(ctx, callTimeout)
	lease, err := opt.Leases.Acquire(call, leaseName(l.hash), opt.holder(), opt.LeaseTTL)
	cancel()
	var held *store.HeldError
	switch now = opt.Now(); {
	case err == nil:
		l.become(role{lease: lease}, now.Add(opt.RenewEvery))
	case errors.As(err, &held):
		// A little after its end, so that the holder's own renewal is ahead of us.
		after := held.Rest + time.Duration(opt.Dice()*float64(leaseRetry))
		l.become(role{holder: held.Holder}, now.Add(min(after, opt.RenewEvery)))
	case ctx.Err() == nil:
		l.desk.events.trouble("getting the lease of a runner token", err)
		l.become(l.lastRole(now), now.Add(leaseRetry))
	}
}

// unneeded reports whether nobody has needed the token for idleRelease. The next look
// is when somebody comes: join pokes.
func (l *line) unneeded(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := len(l.mu.waiters)+len(l.mu.kept)+l.mu.placing+l.desk.opt.HoldPerToken > 0 || l.mu.asking
	switch {
	case needed:
		l.mu.idleAt = time.Time{}
		return false
	case l.mu.idleAt.IsZero():
		l.mu.idleAt = now
		return false
	default:
		return now.Sub(l.mu.idleAt) >= idleRelease
	}
}

// lastRole is what we may still believe while the store doesn't answer: that the lease
// is ours until it ends, or that it has the holder it had.
func (l *line) lastRole(now time.Time) role {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.role.holder != "" || l.mu.role.ours(now) {
		return l.mu.role
	}
	return role{}
}

// become notes who polls the token, and wakes those for whom that changes something.
func (l *line) become(r role, next time.Time) {
	now := l.desk.opt.Now()
	l.mu.Lock()
	old := l.mu.role
	l.mu.role, l.mu.tendAt = r, next
	changed := old.holder != r.holder || old.ours(now) != r.ours(now)
	close(l.mu.changed) // each time: a holder that could not be reached is tried again
	l.mu.changed = make(chan struct{})
	if changed {
		for _, w := range l.mu.waiters {
			if w.wake != nil {
				w.wake() // it waits with somebody who has no say any more
			}
		}
	}
	l.mu.Unlock()
	if changed {
		l.desk.events.lease(LeaseInfo{Token: l.hash, Holder: r.holder, Ours: r.ours(now)})
	}
	poke(l.pokePoll)
}

// giveBack ends our lease, so that another replica need not wait for its end.
func (l *line) giveBack(ctx context.Context) {
	l.mu.Lock()
	lease := l.mu.role.lease
	l.mu.Unlock()
	if lease.Rest(l.desk.opt.Now()) > 0 {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if err := l.desk.opt.Leases.ReleaseLease(call, lease); err != nil {
			l.desk.events.trouble("giving the lease of a runner token back", err)
		}
	}
	l.become(role{}, l.desk.opt.Now().Add(idleRelease))
}

// whoPolls returns who polls the token, and what is closed when that may have changed.
func (l *line) whoPolls() (holder string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.role.holder, l.mu.changed
}

// suspectHolder asks for a look at the lease, because its holder did not answer.
func (l *line) suspectHolder() {
	l.mu.Lock()
	l.mu.suspect = true
	l.mu.Unlock()
	poke(l.pokeTend)
}
