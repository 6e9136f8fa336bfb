package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Sort is the policy's; it may be called from any goroutine.
func (r *Reviewer) Sort(c router.ClassCount) router.ClassCount { return r.policy.Load().Sort(c) }

// Waiting tells what the queue holds, sorted. It never waits: a picture that finds the
// inbox full is followed by the next one.
func (r *Reviewer) Waiting(counts []router.ClassCount) {
	waiting, counted := make(map[spillway.JobClass]*router.ClassCount), make(map[spillway.JobClass]*router.ClassCount)
	for i := range counts {
		if counts[i].Unadmitted > 0 {
			c, still := counts[i], counts[i]
			counted[c.Class], waiting[c.Class] = &c, &still
		}
	}
	r.post(func(time.Time) { r.waiting, r.counted = waiting, counted })
}

// Pushed tells of jobs that have just been queued.
func (r *Reviewer) Pushed(c router.ClassCount) {
	if c.Unadmitted <= 0 {
		return
	}
	r.post(func(time.Time) {
		if known := r.waiting[c.Class]; known != nil {
			c.Unadmitted += known.Unadmitted
			c.Priority = min(c.Priority, known.Priority)
		}
		r.waiting[c.Class] = &c
	})
}

// Dispatched tells of a job that goes to a machine, for the dry_run controllers of jobs
// that nobody has to approve.
func (r *Reviewer) Dispatched(job *spillway.Job) {
	p := r.policy.Load()
	if len(p.Controllers()) == 0 || p.Needs(&job.Requirement) || len(p.Observers(&job.Requirement)) == 0 {
		return
	}
	s := Subject(*job)
	r.post(func(now time.Time) { r.observe(now, s) })
}

// post is do for who can't wait.
func (r *Reviewer) post(f func(time.Time)) {
	select {
	case r.inbox <- f:
	default:
	}
}

// Subject is a job of our own queue as controllers are shown it.
func Subject(job spillway.Job) admission.Subject {
	return admission.Subject{ID: string(job.ID), Job: job}
}

// observe shows a job to its dry_run controllers, here or at another replica.
func (r *Reviewer) observe(now time.Time, s admission.Subject) {
	for _, c := range r.engine.Policy().Observers(&s.Job.Requirement) {
		if r.engine.Observe(now, c.Name, trimmed(s, []admission.Controller{c})) {
			continue
		}
		if to := r.seen.elsewhere(r.opt.Replica, c.Name); r.engine.Here(c.Name) || to == "" || !r.observeAt(to, c.Name, s) {
			tell(r.opt.Events.JobUnobserved, JobUnobserved{Controller: c.Name})
		}
	}
}

// trimmed is s without what none of the controllers is shown.
func trimmed(s admission.Subject, controllers []admission.Controller) admission.Subject {
	script, env := false, map[string]string(nil)
	for i := range controllers {
		script = script || controllers[i].Send.Script
		for _, name := range controllers[i].Send.Env {
			if v, ok := s.Job.Env[name]; ok {
				if env == nil {
					env = make(map[string]string)
				}
				env[name] = v
			}
		}
	}
	if !script {
		s.Job.Script = ""
	}
	s.Job.Env = env
	return s
}

// claim takes jobs that can be shown to their next controller soon.
func (r *Reviewer) claim(now time.Time) {
	if r.claiming || r.claimed.rest(now) > 0 {
		return
	}
	wants := r.wants()
	if len(wants) == 0 {
		return
	}
	r.claiming = true
	r.beside(func(ctx context.Context) func(time.Time) {
		// Not ended with the reviewer: what it claims must be known, to be returned.
		got, err := r.store.ClaimForReview(context.WithoutCancel(ctx), wants, r.opt.ClaimTTL)
		if ctx.Err() != nil {
			r.returnUnused(ctx, got)
		}
		return func(now time.Time) { r.take(now, wants, got, err) }
	})
}

// wants lists what to claim, the most urgent classes first.
func (r *Reviewer) wants() []store.ReviewWant {
	classes := slices.SortedFunc(maps.Values(r.waiting), func(a, b *router.ClassCount) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Oldest.Compare(b.Oldest), cmp.Compare(a.Class, b.Class))
	})
	var wants []store.ReviewWant
	for _, c := range classes {
		n := min(c.Unadmitted, r.engine.Room(&c.Requirement))
		if n <= 0 || len(wants) == store.MaxWants {
			continue
		}
		want := store.ReviewWant{Class: c.Class, N: n}
		for _, a := range r.engine.Policy().Approvers(&c.Requirement) {
			want.Approvers = append(want.Approvers, store.Approver{Name: a.Name, Here: r.engine.Here(a.Name)})
		}
		wants = append(wants, want)
	}
	return wants
}

// take puts what a claim brought before its controllers. Who got less than it wanted
// waits for the next count.
func (r *Reviewer) take(now time.Time, wants []store.ReviewWant, got []store.ForReview, err error) {
	r.claiming = false
	r.claimed.note(now, err)
	if err != nil {
		r.trouble("claim for review", err)
	}
	brought := make(map[spillway.JobClass]int)
	for i := range got {
		g := &got[i]
		brought[g.Ref.Class]++
		s := Subject(g.Job)
		if g.Ref.Attempt == 1 {
			r.observe(now, s)
		}
		r.settle(r.engine.Take(now, admission.Item{
			Ref: g.Ref, Subject: trimmed(s, r.engine.Policy().Approvers(&g.Job.Requirement)), Approved: g.Approved,
			AskedBy: g.Asked.Controller, AskedFor: g.Asked.For,
		}))
	}
	for _, w := range wants {
		c := r.waiting[w.Class]
		if c == nil {
			continue
		}
		if c.Unadmitted -= brought[w.Class]; brought[w.Class] < w.N || c.Unadmitted <= 0 {
			delete(r.waiting, w.Class)
		}
	}
}

// returnUnused gives back what a claim brought that came too late for this reviewer.
func (r *Reviewer) returnUnused(ctx context.Context, got []store.ForReview) {
	ends := make([]store.ReviewEnd, len(got))
	for i := range got {
		ends[i] = store.ReviewEnd{Ref: got[i].Ref, To: spillway.Pending, Approved: got[i].Approved, Asked: got[i].Asked, Reason: "its replica is going away"}
	}
	if len(ends) > 0 {
		_, _ = r.store.EndReviews(context.WithoutCancel(ctx), ends) // else the claims end by themselves
	}
}

// write has the store told what was decided. What it does not confirm is repeated.
func (r *Reviewer) write(now time.Time) time.Duration {
	if r.writing || len(r.decided) == 0 {
		return r.opt.SweepEvery
	}
	if rest := r.written.rest(now); rest > 0 {
		return rest
	}
	r.writing = true
	batch := r.takeDecided()
	r.beside(func(ctx context.Context) func(time.Time) {
		errs, err := r.store.EndReviews(context.WithoutCancel(ctx), endsOf(batch))
		again := r.confirm(batch, errs, err)
		return func(now time.Time) {
			r.writing = false
			r.written.note(now, err)
			r.decided = append(again, r.decided...)
			if err != nil {
				r.trouble("end reviews", err)
			}
		}
	})
	return r.opt.SweepEvery
}

func (r *Reviewer) takeDecided() []decided {
	n := min(len(r.decided), maxEndsAtOnce)
	batch := r.decided[:n:n]
	r.decided = r.decided[n:]
	return batch
}

func endsOf(batch []decided) []store.ReviewEnd {
	ends := make([]store.ReviewEnd, len(batch))
	for i := range batch {
		ends[i] = batch[i].end
	}
	return ends
}

// confirm tells of what is written, and returns what is to be written again.
func (r *Reviewer) confirm(batch []decided, errs []error, whole error) (again []decided) {
	for i, d := range batch {
		var err error
		if i < len(errs) {
			err = errs[i]
		}
		switch {
		case errors.Is(err, store.ErrStaleAttempt) || errors.Is(err, store.ErrUnknownJob):
			// It was canceled, or its claim has expired: this decision is nobody's.
		case err != nil || (whole != nil && i >= len(errs)):
			again = append(again, d)
		case d.tell != nil:
			tell(r.opt.Events.JobReviewed, *d.tell)
		}
	}
	return again
}

// renew keeps the claims of what is under review; what is no longer held is forgotten.
func (r *Reviewer) renew(now time.Time) {
	if r.renewing || now.Sub(r.renewed) < r.opt.ClaimTTL/4 {
		return
	}
	r.renewed = now
	refs := r.engine.Held()
	if len(refs) == 0 {
		return
	}
	r.renewing = true
	r.beside(func(ctx context.Context) func(time.Time) {
		stale, err := r.store.Renew(ctx, refs, r.opt.ClaimTTL)
		return func(now time.Time) {
			r.renewing = false
			if err != nil {
				r.trouble("renew", err)
				r.renewed = now.Add(retryMost - r.opt.ClaimTTL/4)
			}
			for _, ref := range stale {
				r.engine.Drop(ref)
			}
		}
	})
}
