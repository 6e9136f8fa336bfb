package jobrouter

import (
	"context"
	"time"
)

// wait lets w wait for its answer. limit bounds it further than LongPoll does; 0 = no.
func (d *Desk) wait(ctx context.Context, w *waiter, limit time.Duration) answer {
	now := d.opt.Now()
	hold := time.Duration(float64(d.opt.LongPoll) * (1 - longPollJitter*d.opt.Dice()))
	if limit > 0 {
		hold = min(hold, limit)
	}
	w.deadline = now.Add(hold)
	l := d.line(w.who.Token)
	w.line = l
	if kept := l.join(w, now); kept != nil {
		d.spawn(func() { l.place(context.WithoutCancel(ctx), kept, w) })
	}
	for {
		holder, changed := l.whoPolls()
		if holder != "" {
			if a, ok := d.waitElsewhere(ctx, l, w, holder); ok {
				return a
			}
		}
		select {
		case <-w.ready:
			return w.answer
		case <-ctx.Done():
			if a, ok := l.leave(w); ok {
				return a
			}
			return answer{verdict: nobody}
		case <-changed:
		}
	}
}

// waitElsewhere passes the question on to the replica that polls the token. ok: the
// answer is final. A question that was passed on to us isn't passed on again: whoever
// asked has to look again who polls.
func (d *Desk) waitElsewhere(ctx context.Context, l *line, w *waiter, holder string) (answer, bool) {
	if w.relayed {
		return l.withdraw(w, answer{verdict: moved})
	}
	address, ok := addressOf(holder)
	if !ok {
		d.events.degraded(l.hash, "the replica that polls this token has no address for others: runners that are connected here get no jobs")
		return answer{}, false
	}
	return d.relay(ctx, l, w, address)
}

// withdraw answers w if nobody else has or is about to.
func (l *line) withdraw(w *waiter, a answer) (answer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.stage != standing {
		return answer{}, false
	}
	l.removeLocked(w, a.verdict == noJob)
	l.answerLocked(w, a)
	return w.answer, true
}

// enter counts a call, or says that there are too many.
func (d *Desk) enter() (leave func(), ok bool) {
	if d.waiting.Add(1) > int64(d.opt.MaxWaiting) {
		d.waiting.Add(-1)
		return nil, false
	}
	return func() { d.waiting.Add(-1) }, true
}
