package jobrouter

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// offerPatience is how long Offer waits to learn who has a token's jobs [time].
const offerPatience = 2 * time.Second

// Offer takes over a job that GitLab gave to a machine which may not or could not have
// it: it goes to another machine of the token, to one that waits or by Take. GitLab was
// told just now that it is kept, and it is in nobody's book. taken is false where
// another replica has the token's jobs: GitLab queues it again then, after two minutes.
func (d *Desk) Offer(ctx context.Context, body []byte, who route.Caller) (taken bool) {
	payload, err := gitlab.ParsePayload(body)
	if err != nil || !who.TwoPhase || d.draining.Load() || d.ended.Load() {
		return false
	}
	l := d.line(who.Token)
	l.expect(d.opt.Now())
	if !l.awaitLease(ctx) {
		l.placed()
		return false
	}
	pools, _ := d.opt.Tokens.Pools(l.hash)
	j := newJob(gitlab.JobAnswer{Body: body}, payload, l.hash, pools, wish{twoPhase: true, features: d.features.of(who.Features)}, d.opt.Now())
	d.spawn(func() { l.place(context.WithoutCancel(ctx), j, nil) })
	return true
}

// expect announces a job to be placed, for which the lease is needed.
func (l *line) expect(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.placing++
	if l.mu.released {
		l.mu.released, l.mu.tendAt = false, now
		poke(l.pokeTend)
	}
}

// awaitLease waits until it is known who polls the token, and reports whether we do.
func (l *line) awaitLease(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, offerPatience)
	defer cancel()
	for {
		l.mu.Lock()
		role, changed := l.mu.role, l.mu.changed
		l.mu.Unlock()
		switch {
		case role.holder != "":
			return false
		case role.ours(l.desk.opt.Now()):
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
