package jobrouter

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// Take gives a job that is kept here to a machine that asks GitLab itself, as one does
// that has not found its job router: GitLab would not give it that job. deliver writes
// the job to the machine. given is false if there is none for it; GitLab is to be asked
// then. It never waits for a job, and knows those of this replica only.
func (d *Desk) Take(ctx context.Context, who route.Caller, body []byte, deliver func(job []byte) error) (given bool) {
	d.mu.Lock()
	l := d.mu.lines[who.Token]
	d.mu.Unlock()
	if l == nil {
		return false
	}
	w := newWaiter(&who, body, "", d.features.of(who.Features))
	w.deadline, w.visits, w.line = d.opt.Now().Add(d.opt.LongPoll), true, l
	kept := l.keptFor(w, d.opt.Now())
	if kept == nil {
		return false
	}
	l.place(context.WithoutCancel(ctx), kept, w)
	a, ok := l.leave(w)
	if !ok || a.verdict != aJob {
		return false
	}
	if err := deliver(a.body); err != nil {
		a.settle(broken)
	} else {
		a.settle(arrived)
	}
	return true
}

// keptFor takes a kept job out of the line for a machine that doesn't stand in it.
func (l *line) keptFor(w *waiter, now time.Time) *job {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.desk.draining.Load() || l.desk.ended.Load() || !l.mu.role.ours(now) {
		return nil
	}
	w.usedAt = l.mu.usedAt[w.who.System]
	l.standLocked(w)
	kept := l.matchLocked(w, now)
	if kept == nil {
		l.removeLocked(w, false)
		w.stage = gone
	}
	return kept
}
