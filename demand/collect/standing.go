package collect

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// standing is what the book says now: the jobs that wait or run, by what is asked
// of it, kept up with each change so that a board costs the classes and not the jobs.
type standing struct {
	jobs     map[JobKey]*job                  // those that stand, or that a view names
	classes  map[spillway.JobClass]*class     // those that some job refers to
	interned map[*spillway.Requirement]*class // of the requirements seen lately
	untold   int                              // pending jobs of which nobody has said what they need
	running  map[int64]map[*job]struct{}
}

// status is where a job stands that waits or runs; zero for one that is over.
type status struct {
	class *class // nil = not known
	place *place // nil for one that waits
	since instant
	stage stage
}

func (s *status) equal(o *status) bool {
	if s.class != o.class || s.since != o.since || s.stage != o.stage {
		return false
	}
	return s.place == o.place || s.place != nil && o.place != nil && *s.place == *o.place
}

// class is the jobs that need the same.
type class struct {
	id      spillway.JobClass
	need    spillway.Requirement
	jobs    int    // that refer to it
	pending []*job // in no order: each knows its index
	changed bool   // since oldest was worked out
	oldest  []*job // at most MaxSample of the pending ones
}

func newStanding() standing {
	return standing{
		jobs:     map[JobKey]*job{},
		classes:  map[spillway.JobClass]*class{},
		interned: map[*spillway.Requirement]*class{},
		running:  map[int64]map[*job]struct{}{},
	}
}

// settle makes what the book says of a job be the fact, and reports whether that changed
// anything. A fact without a state is none: the job is over. need is who knows what the
// job needs, without a requirement where nobody does.
func (s *standing) settle(j *job, fact, need *Sighting) bool {
	var next status
	if fact.State != "" && !fact.State.Terminal() {
		next = s.follow(&j.now, fact, need)
	}
	changed := !j.now.equal(&next)
	if changed {
		s.leave(j)
		j.now = next
		s.enter(j)
	}
	if j.now.stage == stageNone && j.facts == nil {
		delete(s.jobs, j.key)
	}
	return changed
}

// follow is where a job stands by its newest fact, with what was known of it before and
// the fact doesn't say. It waits since the earliest time that anybody has told: sources
// count that back from how long it has waited, each time a little differently.
func (s *standing) follow(before *status, fact, need *Sighting) status {
	next := status{stage: stageOf(fact.State), place: placeOf(fact), since: instantOf(firstSet(fact.Since, fact.At))}
	if need.Requirement != nil {
		next.class = s.classOf(need.Requirement)
		next.since = min(next.since, instantOf(firstSet(need.Since, need.At)))
	}
	if before.stage == stageNone {
		return next
	}
	next.since = min(before.since, next.since)
	if next.class == nil {
		next.class = before.class
	}
	if next.place != nil && before.place != nil && next.place.runner == before.place.runner {
		next.place.system = cmp.Or(next.place.system, before.place.system)
	}
	return next
}

func firstSet(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func (s *standing) enter(j *job) {
	if j.now.stage == stageNone {
		return
	}
	s.jobs[j.key] = j
	c := j.now.class
	if c != nil {
		s.classes[c.id] = c
		c.jobs++
	}
	switch {
	case j.now.stage == stageRunning:
		runner := j.now.place.runner
		if s.running[runner] == nil {
			s.running[runner] = map[*job]struct{}{}
		}
		s.running[runner][j] = struct{}{}
	case c == nil:
		s.untold++
	default:
		j.index = len(c.pending)
		c.pending = append(c.pending, j)
		c.changed = true
	}
}

func (s *standing) leave(j *job) {
	if j.now.stage == stageNone {
		return
	}
	c := j.now.class
	switch {
	case j.now.stage == stageRunning:
		runner := j.now.place.runner
		delete(s.running[runner], j)
		if len(s.running[runner]) == 0 {
			delete(s.running, runner)
		}
	case c == nil:
		s.untold--
	default:
		c.drop(j)
	}
	if c != nil {
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
		c = &class{id: r.Class(), need: r.Normalize()}
		s.interned[r] = c
	}
	if referred, known := s.classes[c.id]; known {
		return referred
	}
	return c
}

// drop takes one of the pending jobs away: the last one gets its index.
func (c *class) drop(j *job) {
	end := len(c.pending) - 1
	last := c.pending[end]
	c.pending[j.index], last.index = last, j.index
	c.pending[end] = nil
	c.pending = c.pending[:end]
	if end == 0 {
		c.pending = nil // it may have been long
	}
	c.changed = true
}

// refresh works out which of its jobs are the oldest, if that may have changed.
func (c *class) refresh() {
	if c.changed {
		c.oldest, c.changed = oldestOf(c.pending, MaxSample), false
	}
}

// waiting is what a board says of the class, once refreshed.
func (c *class) waiting(now time.Time, ages []time.Duration) Waiting {
	w := Waiting{Requirement: c.need, Pending: len(c.pending), Oldest: c.oldest[0].now.since.time(), Sample: make([]spillway.JobID, len(c.oldest))}
	for i, j := range c.oldest {
		w.Sample[i] = j.key.ID
	}
	for _, age := range ages {
		w.Waited = append(w.Waited, demand.Waited{For: age, Jobs: c.waitedSince(instantOf(now.Add(-age)))})
	}
	return w
}

// waitedSince counts the pending jobs that have waited since then, or longer.
func (c *class) waitedSince(then instant) (jobs int) {
	if c.oldest[0].now.since > then {
		return 0
	}
	for _, j := range c.pending {
		if j.now.since <= then {
			jobs++
		}
	}
	return jobs
}

// oldestOf returns at most n of the jobs, the one that has waited longest first. It
// keeps the best so far: a class may hold all the jobs there are.
func oldestOf(jobs []*job, n int) []*job {
	best := make([]*job, 0, n+1)
	for _, j := range jobs {
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
func compareAge(a, b *job) int {
	return cmp.Or(
		cmp.Compare(a.now.since, b.now.since),
		cmp.Compare(len(a.key.ID), len(b.key.ID)),
		cmp.Compare(a.key.ID, b.key.ID),
		cmp.Compare(a.key.Origin, b.key.Origin),
	)
}
