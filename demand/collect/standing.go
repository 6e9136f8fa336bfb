package collect

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// standing is what the book says now: the jobs that wait or run, by what is asked
// of it, kept up with each change so that a board costs the classes and not the jobs.
type standing struct {
	jobs     map[JobKey]*standingJob
	classes  map[spillway.JobClass]*class     // those that some job refers to
	interned map[*spillway.Requirement]*class // of the requirements seen lately
	untold   int                              // pending jobs of which nobody has said what they need
	running  map[int64]map[*standingJob]struct{}
}

// standingJob is one job that waits or runs.
type standingJob struct {
	key    JobKey
	state  spillway.JobState
	class  *class // nil = not known
	since  time.Time
	runner int64
	system string
}

// class is the jobs that need the same.
type class struct {
	id      spillway.JobClass
	need    spillway.Requirement
	jobs    int // that refer to it
	pending map[*standingJob]struct{}
	changed bool           // since oldest was worked out
	oldest  []*standingJob // at most MaxSample of the pending ones
}

func newStanding() standing {
	return standing{
		jobs:     map[JobKey]*standingJob{},
		classes:  map[spillway.JobClass]*class{},
		interned: map[*spillway.Requirement]*class{},
		running:  map[int64]map[*standingJob]struct{}{},
	}
}

// settle makes what the book says of a job be the fact, nil for a job that is over,
// and reports whether that changed anything. need is who knows what the job needs.
func (s *standing) settle(key JobKey, fact, need *Sighting) bool {
	before := s.jobs[key]
	if fact == nil || fact.State.Terminal() {
		if before == nil {
			return false
		}
		s.leave(before)
		delete(s.jobs, key)
		return true
	}
	next := s.follow(before, fact, need)
	next.key = key
	switch {
	case before == nil:
		before = new(standingJob)
		s.jobs[key] = before
	case *before == next:
		return false
	default:
		s.leave(before)
	}
	*before = next
	s.enter(before)
	return true
}

// follow is a job by its newest fact, with what was known of it before and the fact
// doesn't say. It waits since the earliest time that anybody has told: sources count
// that back from how long it has waited, each time a little differently.
func (s *standing) follow(before *standingJob, fact, need *Sighting) standingJob {
	next := standingJob{state: fact.State, since: firstSet(fact.Since, fact.At)}
	if next.state == spillway.Running {
		next.runner, next.system = fact.Runner, fact.System
	}
	if need != nil {
		next.class = s.classOf(need.Requirement)
		next.since = earlier(next.since, firstSet(need.Since, need.At))
	}
	if before == nil {
		return next
	}
	next.since = earlier(before.since, next.since)
	if next.class == nil {
		next.class = before.class
	}
	if next.state == spillway.Running && before.state == spillway.Running && next.runner == before.runner {
		next.system = cmp.Or(next.system, before.system)
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func firstSet(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func (s *standing) enter(j *standingJob) {
	if c := j.class; c != nil {
		s.classes[c.id] = c
		c.jobs++
	}
	switch {
	case j.state == spillway.Running:
		if s.running[j.runner] == nil {
			s.running[j.runner] = map[*standingJob]struct{}{}
		}
		s.running[j.runner][j] = struct{}{}
	case j.class == nil:
		s.untold++
	default:
		j.class.pending[j] = struct{}{}
		j.class.changed = true
	}
}

func (s *standing) leave(j *standingJob) {
	switch {
	case j.state == spillway.Running:
		delete(s.running[j.runner], j)
		if len(s.running[j.runner]) == 0 {
			delete(s.running, j.runner)
		}
	case j.class == nil:
		s.untold--
	default:
		delete(j.class.pending, j)
		j.class.changed = true
	}
	if c := j.class; c != nil {
		if c.jobs--; c.jobs == 0 {
			delete(s.classes, c.id)
		}
	}
}

// maxInterned bounds the requirements that are known by their address [requirements].
const maxInterned = 4_096

// classOf returns the class of what a job needs. Sources give many jobs the same
// requirement, so most are known by their address and need no hash.
func (s *standing) classOf(r *spillway.Requirement) *class {
	c, known := s.interned[r]
	if !known {
		if len(s.interned) >= maxInterned {
			clear(s.interned)
		}
		c = &class{id: r.Class(), need: r.Normalize(), pending: map[*standingJob]struct{}{}}
		s.interned[r] = c
	}
	if referred, known := s.classes[c.id]; known {
		return referred
	}
	return c
}

// refresh works out which of its jobs are the oldest, if that may have changed.
func (c *class) refresh() {
	if c.changed {
		c.oldest, c.changed = oldestOf(c.pending, MaxSample), false
	}
}

// waiting is what a board says of the class, once refreshed.
func (c *class) waiting() Waiting {
	w := Waiting{Requirement: c.need, Pending: len(c.pending), Oldest: c.oldest[0].since, Sample: make([]spillway.JobID, len(c.oldest))}
	for i, j := range c.oldest {
		w.Sample[i] = j.key.ID
	}
	return w
}

// oldestOf returns at most n of the jobs, the one that has waited longest first. It
// keeps the best so far: a class may hold all the jobs there are.
func oldestOf(jobs map[*standingJob]struct{}, n int) []*standingJob {
	best := make([]*standingJob, 0, n+1)
	for j := range jobs {
		if len(best) == n && compareAge(j, best[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, j, compareAge)
		best = slices.Insert(best, at, j)
		if len(best) > n {
			best = best[:n]
		}
	}
	return best
}

// compareAge orders by the time waited, then by id, shorter numbers first.
func compareAge(a, b *standingJob) int {
	return cmp.Or(
		a.since.Compare(b.since),
		cmp.Compare(len(a.key.ID), len(b.key.ID)),
		cmp.Compare(a.key.ID, b.key.ID),
		cmp.Compare(a.key.Origin, b.key.Origin),
	)
}
