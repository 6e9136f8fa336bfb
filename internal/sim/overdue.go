package sim

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// failOverdue ends jobs that have waited for too long.
func (s *session) failOverdue() {
	w := s.world
	for _, job := range w.overdue() {
		limit := spillway.PendingTimeout
		if !w.matched(&job.Job.Requirement) {
			limit = spillway.Unmatched
		}
		if _, err := w.store.Fail(job.Job.ID, spillway.JobResult{State: spillway.Failed, Reason: limit}); err != nil {
			return
		}
	}
}

// overdue lists the pending jobs that have reached their time limit.
func (w *world) overdue() []spillway.JobRecord {
	limits := router.Timeouts{Pending: w.config.Timeouts.Pending, Unmatched: w.config.Timeouts.Unmatched}
	counts, err := w.store.Counts()
	if err != nil {
		return nil
	}
	over := func(since time.Time, job *spillway.Job, r *spillway.Requirement) bool {
		return w.now.Sub(since) >= limits.Of(spillway.Pending, job, w.matched(r))
	}
	if !slices.ContainsFunc(counts, func(c router.ClassCount) bool {
		return c.Pending > 0 && over(c.Oldest, &spillway.Job{}, &c.Requirement)
	}) {
		return nil
	}
	return slices.DeleteFunc(w.store.Pending(), func(rec spillway.JobRecord) bool {
		return !over(rec.Job.SubmittedAt, &rec.Job, &rec.Job.Requirement)
	})
}

// matched reports whether any pool can take r.
func (w *world) matched(r *spillway.Requirement) bool {
	for _, p := range w.pools() {
		c := p.Capability.Normalize()
		if router.Match(&c, r).OK() {
			return true
		}
	}
	return false
}
