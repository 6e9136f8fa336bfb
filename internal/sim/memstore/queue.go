package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// entry is one job.
type entry struct {
	record  spillway.JobRecord
	class   spillway.JobClass
	arrived uint64
	holder  string    // replica that claimed it
	until   time.Time // when the claim ends
}

// class is the jobs of one requirement.
type class struct {
	requirement spillway.Requirement
	pending     []*entry // most urgent first, then oldest
	claimed     map[spillway.JobID]*entry
}

func before(a, b *entry) int {
	return cmp.Or(
		cmp.Compare(a.record.Job.Priority, b.record.Job.Priority),
		a.record.Job.SubmittedAt.Compare(b.record.Job.SubmittedAt),
		cmp.Compare(a.arrived, b.arrived),
	)
}

func (s *Store) class(job *spillway.Job) (*class, spillway.JobClass) {
	id := job.Requirement.Class()
	c := s.classes[id]
	if c == nil {
		c = &class{requirement: job.Requirement.Normalize(), claimed: make(map[spillway.JobID]*entry)}
		s.classes[id] = c
	}
	return c, id
}

func (c *class) queue(e *entry) {
	at, _ := slices.BinarySearchFunc(c.pending, e, before)
	c.pending = slices.Insert(c.pending, at, e)
}

func (c *class) unqueue(e *entry) {
	if at, ok := slices.BinarySearchFunc(c.pending, e, before); ok {
		c.pending = slices.Delete(c.pending, at, at+1)
	}
}

func (s *Store) tell(e *entry) {
	if s.Changed != nil {
		s.Changed(e.record)
	}
}

// Push queues a job. A job that is known is a duplicate, whatever its state.
func (s *Store) Push(job spillway.Job) (store.PushOutcome, error) {
	if err := s.canWrite(); err != nil {
		return 0, err
	}
	if e := s.jobs[job.ID]; e != nil {
		if e.class != job.Requirement.Class() {
			return store.Conflict, nil
		}
		return store.Duplicate, nil
	}
	c, id := s.class(&job)
	s.arrival++
	e := &entry{record: spillway.JobRecord{Job: job, State: spillway.Pending}, class: id, arrived: s.arrival}
	s.jobs[job.ID] = e
	c.queue(e)
	s.tell(e)
	return store.Accepted, nil
}

// Counts is what the queue holds, by class.
func (s *Store) Counts() ([]router.ClassCount, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	counts := make([]router.ClassCount, 0, len(s.classes))
	for id, c := range s.classes {
		if len(c.pending)+len(c.claimed) == 0 {
			continue
		}
		n := router.ClassCount{Class: id, Requirement: c.requirement, Pending: len(c.pending), Claimed: len(c.claimed)}
		if len(c.pending) > 0 {
			n.Priority = c.pending[0].record.Job.Priority
			n.Oldest = c.oldest()
			n.Waited = c.waited(s.Ages, s.clock())
		}
		counts = append(counts, n)
	}
	slices.SortFunc(counts, func(a, b router.ClassCount) int { return cmp.Compare(a.Class, b.Class) })
	return counts, nil
}

// waited is how many pending jobs have waited for each of the ages.
func (c *class) waited(ages []time.Duration, now time.Time) []demand.Waited {
	if len(ages) == 0 {
		return nil
	}
	list := make([]demand.Waited, len(ages))
	for i, age := range ages {
		list[i].For = age
		for _, e := range c.pending {
			if now.Sub(e.record.Job.SubmittedAt) >= age {
				list[i].Jobs++
			}
		}
	}
	return list
}

// oldest is the submission of the oldest pending job: the first one of some
// priority.
func (c *class) oldest() time.Time {
	oldest := c.pending[0].record.Job.SubmittedAt
	for priority := c.pending[0].record.Job.Priority + 1; priority <= spillway.MaxJobPriority; priority++ {
		at, _ := slices.BinarySearchFunc(c.pending, priority, func(e *entry, p int) int {
			return cmp.Or(cmp.Compare(e.record.Job.Priority, p), 1)
		})
		if at < len(c.pending) && c.pending[at].record.Job.SubmittedAt.Before(oldest) {
			oldest = c.pending[at].record.Job.SubmittedAt
		}
	}
	return oldest
}

// Claim takes jobs out of the queue for holder, the most urgent and oldest of each
// class first. Each claim is a new attempt.
func (s *Store) Claim(holder string, wants []router.ClaimWant) ([]router.Claimed, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	var got []router.Claimed
	for _, w := range wants {
		c := s.classes[w.Class]
		if c == nil {
			continue
		}
		n := min(w.N, len(c.pending))
		for _, e := range c.pending[:n] {
			s.claim(c, e, holder)
			e.record.Pool = w.Pool
			got = append(got, router.Claimed{Job: e.record.Job, Ref: e.ref(), Pool: w.Pool})
		}
		clear(c.pending[:n])
		c.pending = c.pending[n:] // nothing is moved: a long queue is claimed a job at a time
	}
	return got, nil
}

func (s *Store) claim(c *class, e *entry, holder string) {
	now := s.clock()
	e.holder, e.until = holder, now.Add(s.claimTTL)
	e.record.State = spillway.Assigned
	e.record.Attempt++
	e.record.ClaimedAt, e.record.StartedAt = now, time.Time{}
	c.claimed[e.record.Job.ID] = e
	s.tell(e)
}

func (e *entry) ref() router.JobRef {
	return router.JobRef{ID: e.record.Job.ID, Class: e.class, Attempt: e.record.Attempt}
}

// Apply moves an attempt to Running or to a terminal state.
func (s *Store) Apply(t store.Transition) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	e, err := s.attempt(t.Ref)
	if err != nil {
		return err
	}
	now := s.clock()
	e.record.State, e.record.Machine = t.To, t.Machine
	if t.Pool != "" {
		e.record.Pool = t.Pool
	}
	if t.To == spillway.Running {
		e.record.StartedAt = now
		s.tell(e)
		return nil
	}
	s.end(e, t.Result)
	return nil
}

// attempt finds the entry that ref is the present attempt of.
func (s *Store) attempt(ref router.JobRef) (*entry, error) {
	e := s.jobs[ref.ID]
	switch {
	case e == nil:
		return nil, store.ErrUnknownJob
	case e.record.State.Terminal() || e.record.Attempt != ref.Attempt || e.holder == "":
		return nil, store.ErrStaleAttempt
	default:
		return e, nil
	}
}

func (s *Store) end(e *entry, result spillway.JobResult) {
	c := s.classes[e.class]
	c.unqueue(e)
	delete(c.claimed, e.record.Job.ID)
	e.holder = ""
	e.record.State, e.record.Result, e.record.FinishedAt = result.State, result, s.clock()
	s.tell(e)
}

// Release gives an attempt back. It reports whether the job is in the queue again;
// a job that was lost too often has failed instead.
func (s *Store) Release(r store.Release) (requeued bool, err error) {
	if err := s.canWrite(); err != nil {
		return false, err
	}
	e, err := s.attempt(r.Ref)
	if err != nil {
		return false, err
	}
	return s.giveBack(e, r.Lost, r.Detail), nil
}

func (s *Store) giveBack(e *entry, lost bool, detail string) (requeued bool) {
	if lost {
		e.record.Lost++
		if e.record.Lost >= e.record.Job.EffectiveMaxAttempts() {
			s.end(e, spillway.JobResult{State: spillway.Failed, Reason: spillway.RunnerSystemFailure, Detail: detail})
			return false
		}
	}
	c := s.classes[e.class]
	delete(c.claimed, e.record.Job.ID)
	e.holder = ""
	e.record.State, e.record.Machine, e.record.Pool = spillway.Pending, "", ""
	c.queue(e)
	s.tell(e)
	return true
}

// Cancel ends a job. The record that it returns says where it was.
func (s *Store) Cancel(id spillway.JobID) (was spillway.JobRecord, err error) {
	return s.Fail(id, spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled})
}

// Fail ends a job that has not ended yet, wherever it is.
func (s *Store) Fail(id spillway.JobID, result spillway.JobResult) (was spillway.JobRecord, err error) {
	if err := s.canWrite(); err != nil {
		return was, err
	}
	e := s.jobs[id]
	switch {
	case e == nil:
		return was, store.ErrUnknownJob
	case e.record.State.Terminal():
		return was, store.ErrStaleAttempt
	}
	was = e.record
	s.end(e, result)
	return was, nil
}

// Job is what is known of one job.
func (s *Store) Job(id spillway.JobID) (spillway.JobRecord, error) {
	if err := s.canRead(); err != nil {
		return spillway.JobRecord{}, err
	}
	e := s.jobs[id]
	if e == nil {
		return spillway.JobRecord{}, store.ErrUnknownJob
	}
	return e.record, nil
}

// Adopt makes holder the one that holds an attempt which a machine runs: one that
// was claimed through another replica, or that a wipe has taken away. An older
// attempt is refused.
func (s *Store) Adopt(holder string, job spillway.Job, ref router.JobRef, pool string, machine spillway.MachineID) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	e := s.jobs[ref.ID]
	if e == nil {
		c, id := s.class(&job)
		s.arrival++
		e = &entry{class: id, arrived: s.arrival}
		e.record = spillway.JobRecord{Job: job, State: spillway.Running, Attempt: ref.Attempt, StartedAt: s.clock()}
		s.jobs[ref.ID] = e
		c.claimed[ref.ID] = e
	} else if _, err := s.attempt(ref); err != nil {
		return err
	}
	e.holder, e.until = holder, s.clock().Add(s.claimTTL)
	e.record.Pool, e.record.Machine = pool, machine
	return nil
}

// Renew keeps claims. Attempts that are not the present ones are left alone.
func (s *Store) Renew(refs []router.JobRef) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	for _, ref := range refs {
		if e, err := s.attempt(ref); err == nil {
			e.until = s.clock().Add(s.claimTTL)
		}
	}
	return nil
}

// Reap gives back the claims that nobody has renewed. Their machines are lost as
// far as anybody knows.
func (s *Store) Reap() error {
	if err := s.canWrite(); err != nil {
		return err
	}
	var expired []*entry
	for _, c := range s.classes {
		for _, e := range c.claimed {
			if !s.clock().Before(e.until) {
				expired = append(expired, e)
			}
		}
	}
	slices.SortFunc(expired, func(a, b *entry) int { return cmp.Compare(a.arrived, b.arrived) })
	for _, e := range expired {
		s.giveBack(e, true, "its claim was not renewed")
	}
	return nil
}

// Pending lists the jobs that wait, the oldest first.
func (s *Store) Pending() []spillway.JobRecord {
	var list []*entry
	for _, c := range s.classes {
		list = append(list, c.pending...)
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.arrived, b.arrived) })
	out := make([]spillway.JobRecord, len(list))
	for i, e := range list {
		out[i] = e.record
	}
	return out
}
