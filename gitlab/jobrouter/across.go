package jobrouter

import (
	"time"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// A job that GitLab has given out for a token can't be given back. If no machine of that
// token is there to take it, one of another token may, whose runner takes the same jobs:
// all that a machine says of a job it says with the job's own token, and GitLab doesn't look
// at which runner says it (API::Ci::Helpers::Runner, authenticate_job!). In GitLab the job
// is shown as one of the runner that it was given out for.

// callRival takes the best machine for a job of l out of the line of another token.
func (d *Desk) callRival(l *line, need wish, now time.Time) *waiter {
	for _, r := range d.openRivals(l, now) {
		if w := r.callBest(need, now); w != nil {
			return w
		}
	}
	return nil
}

// rivalsWaiting lists what is to be known of machines of other tokens that may have a job
// of l: the best one of each.
func (d *Desk) rivalsWaiting(l *line, now time.Time) (list []candidate) {
	for _, r := range d.openRivals(l, now) {
		r.mu.Lock()
		if w := r.bestLocked(wish{twoPhase: true}, nil, now); w != nil {
			list = append(list, w.candidate)
		}
		r.mu.Unlock()
	}
	return list
}

// openRivals lists the lines of other tokens here whose machines take the same jobs as
// l's and for which it is their turn, the first by priority first.
func (d *Desk) openRivals(l *line, now time.Time) (lines []*line) {
	for _, r := range d.opt.Tokens.Rivals(l.pool(nil)) {
		if r.Token == l.hash {
			continue
		}
		if other := d.served(r, now); other != nil {
			if t := d.turn(r.Token, r.Pool.Name, true, now); !t.held() {
				lines = append(lines, other)
			}
		}
	}
	return lines
}

// served is the line of a token that is polled here and of which a machine of the pool
// waits; nil if there is none.
func (d *Desk) served(r route.Rival, now time.Time) *line {
	if _, waits := d.waitsHere(r, now); !waits {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.lines[r.Token]
}
