package jobrouter

import "time"

// pool is the pool in whose name GitLab is asked for a machine, or for none yet: the
// first of the token's.
func (l *line) pool(asker *waiter) string {
	if asker != nil {
		return asker.who.Pool.Name
	}
	pools, ok := l.desk.opt.Tokens.Pools(l.hash)
	if !ok {
		return "" // it was taken out of the configuration: it has no rivals either
	}
	return pools[0].Name
}

// mayAsk reports whether no pool of another token goes before ours now, and notes which
// one does.
func (l *line) mayAsk(now time.Time) bool {
	l.mu.Lock()
	ours, first := l.mu.role.ours(now), (*waiter)(nil)
	if ours {
		first = l.firstToAskLocked(now)
	}
	l.mu.Unlock()
	if !ours {
		l.holdBack(turn{jobs: anyNumber}, "", now)
		return false
	}
	pool := l.pool(first)
	return l.holdBack(l.desk.turn(l.hash, pool, first != nil, now), pool, now)
}

// holdBack notes what comes of a turn, and reports whether GitLab may be asked: also, now
// and then, where nobody knows which jobs wait. What that finds others don't get.
func (l *line) holdBack(t turn, pool string, now time.Time) bool {
	next := HoldInfo{}
	if t.held() {
		next = HoldInfo{Pool: pool, Behind: t.behind, Why: t.why}
	}
	l.mu.Lock()
	before := l.mu.hold
	l.mu.hold = next
	if before.Pool == "" {
		l.mu.lookAt = later(l.mu.lookAt, now.Add(LookEvery))
	}
	look := t.blind && !now.Before(l.mu.lookAt)
	l.mu.Unlock()
	if before.Pool != "" && before.Pool != next.Pool {
		l.desk.events.hold(HoldInfo{Pool: before.Pool})
	}
	if next.Pool != "" && before != next {
		l.desk.events.hold(next)
	}
	return next.Pool == "" || look
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
