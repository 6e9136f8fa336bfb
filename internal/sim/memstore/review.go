package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// routing lists the jobs of a class that are under review, the most urgent first.
func (c *class) routing() []*entry {
	var list []*entry
	for _, e := range c.claimed {
		if e.record.State == spillway.Routing {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, before)
	return list
}

// next is the first controller that has not approved a job; ok is false when all have.
func (e *entry) next(approvers []store.Approver) (next store.Approver, ok bool) {
	for _, a := range approvers {
		if !slices.Contains(e.approved, a.Name) {
			return a, true
		}
	}
	return store.Approver{}, false
}

// ClaimForReview takes jobs out of the queue for admission: those whose next controller is
// here, and those that need nobody any more. The others stay where they are.
func (s *Store) ClaimForReview(holder string, wants []store.ReviewWant, ttl time.Duration) ([]store.ForReview, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	var got []store.ForReview
	for _, w := range wants {
		c := s.classes[w.Class]
		if c == nil {
			continue
		}
		left := w.N
		for _, e := range slices.Clone(c.pending) {
			if next, needs := e.next(w.Approvers); left <= 0 || needs && !next.Here {
				continue
			}
			left--
			c.unqueue(e)
			e.holder, e.until = holder, s.clock().Add(ttl)
			e.record.State = spillway.Routing
			e.record.Attempt++
			e.record.ClaimedAt, e.record.StartedAt = s.clock(), time.Time{}
			c.claimed[e.record.Job.ID] = e
			s.tell(e)
			f := store.ForReview{Job: e.record.Job, Ref: e.ref(), Approved: slices.Clone(e.approved)}
			if e.askedBy != "" {
				f.Asked = store.Asked{Controller: e.askedBy, For: s.clock().Sub(e.askedAt)}
			}
			got = append(got, f)
		}
	}
	return got, nil
}

// EndReviews records what reviews came to: one error for each, nil or that the attempt is
// nobody's any more.
func (s *Store) EndReviews(ends []store.ReviewEnd) ([]error, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	errs := make([]error, len(ends))
	for i, end := range ends {
		e, err := s.attempt(end.Ref)
		switch {
		case err != nil:
			errs[i] = err
		case e.record.State != spillway.Routing:
			errs[i] = store.ErrStaleAttempt
		case end.To.Terminal():
			s.end(e, end.Result)
		default:
			e.admitted, e.approved = end.To == spillway.Admitted, slices.Clone(end.Approved)
			e.askedBy, e.askedAt = end.Asked.Controller, s.clock().Add(-end.Asked.For)
			s.giveBack(e, false, end.Reason)
		}
	}
	return errs, nil
}

// FailAbsent fails jobs of a class that wait for a controller that is out, and have
// waited for so long: at most limit of them.
func (s *Store) FailAbsent(class spillway.JobClass, approvers []string, absent string, waited time.Duration, limit int, result spillway.JobResult) ([]spillway.JobRecord, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	c := s.classes[class]
	if c == nil {
		return nil, nil
	}
	chain := make([]store.Approver, len(approvers))
	for i, name := range approvers {
		chain[i].Name = name
	}
	var failed []spillway.JobRecord
	from := s.clock().Add(-waited)
	for _, e := range slices.Clone(c.pending) {
		next, needs := e.next(chain)
		if len(failed) < limit && needs && next.Name == absent && !e.record.Job.SubmittedAt.After(from) && !e.lostAt.After(from) {
			s.end(e, result)
			failed = append(failed, e.record)
		}
	}
	return failed, nil
}

// presence is what a replica said of the controllers that are connected to it.
type presence struct {
	at   time.Time
	here []store.ControllerAt
}

// AnnounceControllers says what is connected to a replica, and returns what every replica
// has said within ttl. Nothing to say takes back what was said.
func (s *Store) AnnounceControllers(replica string, here []store.ControllerAt, ttl time.Duration) ([]store.ControllerAt, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	now := s.clock()
	if delete(s.present, replica); len(here) > 0 {
		s.present[replica] = presence{at: now, here: slices.Clone(here)}
	}
	var all []store.ControllerAt
	for name, p := range s.present {
		if now.Sub(p.at) >= ttl {
			continue
		}
		for _, c := range p.here {
			c.Replica, c.At = name, p.at
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b store.ControllerAt) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Controller, b.Controller))
	})
	return all, nil
}
