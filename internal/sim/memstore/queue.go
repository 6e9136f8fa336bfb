package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
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

	lostAt   time.Time // when its last machine was lost
	admitted bool      // everybody has approved it: a place is all that it waits for
	approved []string  // the controllers that have approved it, as far as it has come
	askedBy  string    // the next one, if it was shown it, and when
	askedAt  time.Time
}

// class is the jobs of one requirement.
type class struct {
	requirement spillway.Requirement
	pending     []*entry // most urgent first, then oldest
	admitted    []*entry // the same, of jobs that everybody has approved
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
	list := c.listOf(e)
	at, _ := slices.BinarySearchFunc(*list, e, before)
	*list = slices.Insert(*list, at, e)
}

func (c *class) unqueue(e *entry) {
	list := c.listOf(e)
	if at, ok := slices.BinarySearchFunc(*list, e, before); ok {
		*list = slices.Delete(*list, at, at+1)
	}
}

// listOf is the queue that a job waits in, when it does.
func (c *class) listOf(e *entry) *[]*entry {
	if e.admitted {
		return &c.admitted
	}
	return &c.pending
}

// keptTransitions is how many of a job's transitions are kept [transitions].
const keptTransitions = 4

// tell notes and tells a job's new state. The way that it came by is kept of another cell's
// job only: of no other does anybody ask.
func (s *Store) tell(e *entry) {
	if e.record.Job.Requirement.Origin == spillway.CellOrigin {
		known := e.record.Transitions
		next := make([]spillway.JobTransition, 0, keptTransitions)
		next = append(next, known[max(0, len(known)-keptTransitions+1):]...)
		next = append(next, spillway.JobTransition{State: e.record.State, Attempt: e.record.Attempt, At: s.clock()})
		e.record.Transitions = next
	}
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

// Claim takes jobs out of the queue for holder, the most urgent and oldest of each
// class first, those that everybody has approved before the others. Each claim is a new
// attempt.
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
		before := len(got)
		got = s.take(got, c, &c.admitted, holder, w.Pool, w.N)
		if !w.AdmittedOnly {
			got = s.take(got, c, &c.pending, holder, w.Pool, w.N-(len(got)-before))
		}
	}
	return got, nil
}

// take claims the first n jobs of a queue.
func (s *Store) take(got []router.Claimed, c *class, queue *[]*entry, holder, pool string, n int) []router.Claimed {
	n = max(0, min(n, len(*queue)))
	for _, e := range (*queue)[:n] {
		s.claim(c, e, holder)
		e.record.Pool = pool
		got = append(got, router.Claimed{Job: e.record.Job, Ref: e.ref(), Pool: pool})
	}
	clear((*queue)[:n])
	*queue = (*queue)[n:] // nothing is moved: a long queue is claimed a job at a time
	return got
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
		e.lostAt = s.clock()
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
	if e.admitted {
		e.record.State = spillway.Admitted
	}
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

// Renew keeps claims, each for ttl from now at least. Those that are not the present
// attempts of their jobs are stale.
func (s *Store) Renew(refs []router.JobRef, ttl time.Duration) (stale []router.JobRef, err error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	for _, ref := range refs {
		e, err := s.attempt(ref)
		if err != nil {
			stale = append(stale, ref)
			continue
		}
		if until := s.clock().Add(ttl); until.After(e.until) {
			e.until = until
		}
	}
	return stale, nil
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
		// A review that nobody goes on with is no loss, and takes no approval back.
		s.giveBack(e, e.record.State != spillway.Routing, "its claim was not renewed")
	}
	return nil
}

// Pending lists the jobs that wait, approved or not, the oldest first.
func (s *Store) Pending() []spillway.JobRecord {
	var list []*entry
	for _, c := range s.classes {
		list = append(list, c.pending...)
		list = append(list, c.admitted...)
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.arrived, b.arrived) })
	out := make([]spillway.JobRecord, len(list))
	for i, e := range list {
		out[i] = e.record
	}
	return out
}
