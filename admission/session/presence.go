package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/store"
)

// sightings is what is known of the controllers at all replicas. It is read by callers
// of Ask too.
type sightings struct {
	sync.Mutex
	at     time.Time // when the store last told
	all    []store.ControllerAt
	goodAt map[string]time.Time // by controller: when it was last known to do its work
}

// elsewhere names a replica other than this one at which a controller is connected,
// empty if there is none.
func (s *sightings) elsewhere(replica, controller string) string {
	s.Lock()
	defer s.Unlock()
	for i := range s.all {
		if c := &s.all[i]; c.Controller == controller && c.Instances > 0 && c.Replica != replica {
			return c.Replica
		}
	}
	return ""
}

// note takes in what replicas have said.
func (s *sightings) note(now time.Time, all []store.ControllerAt) {
	s.Lock()
	defer s.Unlock()
	s.at, s.all = now, all
	if s.goodAt == nil {
		s.goodAt = make(map[string]time.Time)
	}
	for i := range all {
		if at := all[i].At.Add(-all[i].Silent); at.After(s.goodAt[all[i].Controller]) {
			s.goodAt[all[i].Controller] = at
		}
	}
}

// good returns when each controller was last known to do its work; ok is false if that
// is too old to be relied on.
func (s *sightings) good(now time.Time, within time.Duration) (goodAt map[string]time.Time, ok bool) {
	s.Lock()
	defer s.Unlock()
	if s.at.IsZero() || now.Sub(s.at) > within {
		return nil, false
	}
	goodAt = make(map[string]time.Time, len(s.goodAt))
	for name, at := range s.goodAt {
		goodAt[name] = at
	}
	return goodAt, true
}

func (s *sightings) list() ([]store.ControllerAt, time.Time) {
	s.Lock()
	defer s.Unlock()
	return slices.Clone(s.all), s.at
}

// announce says what is connected here, and learns what is elsewhere.
func (r *Reviewer) announce(now time.Time) {
	if r.saying || len(r.engine.Policy().Controllers()) == 0 {
		return
	}
	if !r.changed && now.Sub(r.announced) < r.opt.AnnounceEvery {
		return
	}
	r.saying, r.changed, r.announced = true, false, now
	var here []store.ControllerAt
	for _, p := range r.engine.Presences(now) {
		here = append(here, store.ControllerAt{
			Controller: p.Controller, Instances: p.Instances, Waiting: p.Waiting, Asked: p.Asked, Silent: max(0, now.Sub(p.GoodAt)),
		})
	}
	r.beside(func(ctx context.Context) func(time.Time) {
		all, err := r.store.AnnounceControllers(ctx, r.opt.Replica, here, r.opt.AnnounceTTL)
		return func(now time.Time) {
			r.saying = false
			if err != nil {
				r.trouble("announce controllers", err)
				r.announced = now.Add(retryMost - r.opt.AnnounceEvery)
				return
			}
			r.seen.note(now, all)
		}
	})
}

// failAbsent ends jobs whose controller is connected nowhere, or silent everywhere.
// While it is not known what the other replicas have, nothing is absent.
func (r *Reviewer) failAbsent(now time.Time) {
	if r.failing || now.Sub(r.failed) < absentEvery {
		return
	}
	goodAt, ok := r.seen.good(now, 2*r.opt.AnnounceEvery)
	if !ok {
		return
	}
	for _, p := range r.engine.Presences(now) {
		if p.GoodAt.After(goodAt[p.Controller]) {
			goodAt[p.Controller] = p.GoodAt
		}
	}
	var calls []absence
	for class, c := range r.counted {
		for _, a := range r.engine.Policy().Absent(now, r.engine.Since(), &c.Requirement, goodAt) {
			calls = append(calls, absence{class: class, Absence: a})
		}
	}
	if len(calls) == 0 {
		return
	}
	r.failing, r.failed = true, now
	r.beside(func(ctx context.Context) func(time.Time) {
		for i := range calls {
			r.failOne(ctx, &calls[i])
		}
		return func(time.Time) { r.failing = false }
	})
}

// absence is one class's jobs before a controller that is out.
type absence struct {
	admission.Absence

	class spillway.JobClass
}

func (r *Reviewer) failOne(ctx context.Context, a *absence) {
	result := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: a.Detail()}
	failed, err := r.store.FailAbsent(ctx, a.class, a.Approvers, a.Controller.Name, a.Controller.Deadline, maxFailedAtOnce, result)
	if err != nil {
		r.trouble("fail jobs of an absent controller", err)
	}
	for i := range failed {
		tell(r.opt.Events.JobReviewed, JobReviewed{
			Job: failed[i].Job.ID, Outcome: admission.TimedOut, Controller: a.Controller.Name, Reason: result.Detail,
			Took: time.Since(failed[i].Job.SubmittedAt),
		})
	}
}
