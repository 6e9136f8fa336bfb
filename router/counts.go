package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// class is what the engine knows of one job class in the queue.
type class struct {
	id          spillway.JobClass
	requirement spillway.Requirement // normalized
	priority    int
	pending     int // jobs in the queue, as far as we know
	wanted      int // of these: asked for by claims that are under way
	oldest      time.Time
	waited      []demand.Waited // as ClassCount.Waited, less what claims took since
	claimed     int             // jobs that are assigned or running at any replica, as far as we know
	unadmitted  int             // jobs that wait for admission
	takers      []int           // the pools that can take it, by index, in ascending order
	kind        *kind           // what it shares with the other classes of the same takers
	project     *project
}

// available is the jobs that a new claim may want.
func (c *class) available() int { return max(0, c.pending-c.wanted) }

// compare is the order of urgency: priority, then age.
func (c *class) compare(o *class) int {
	return cmp.Or(cmp.Compare(c.priority, o.priority), c.oldest.Compare(o.oldest), cmp.Compare(c.id, o.id))
}

// takenBy reports whether a pool can take it.
func (c *class) takenBy(p *pool) bool {
	_, found := slices.BinarySearch(c.takers, p.index)
	return found
}

// match finds the takers of c among the pools that there are now.
func (e *Engine) match(c *class) {
	c.takers = c.takers[:0]
	for _, i := range e.index.Candidates(&c.requirement) {
		if Match(&e.pools[i].Capability, &c.requirement).OK() {
			c.takers = append(c.takers, i)
		}
	}
	c.kind = e.kindOf(c.takers)
	c.kind.classes++
}

// SetCounts replaces the picture of the queue. Counts that were read while a
// claim was under way may be too low by what it took; the next picture puts that
// right, and what is wanted too much is merely not got.
func (e *Engine) SetCounts(counts []ClassCount) {
	for _, c := range e.classes {
		c.pending, c.claimed, c.unadmitted, c.oldest, c.waited = 0, 0, 0, time.Time{}, nil
	}
	for i := range counts {
		c := e.class(&counts[i])
		c.pending = 0 // a class named twice counts once, as its last entry says
		c.claimed, c.unadmitted = counts[i].Claimed, counts[i].Unadmitted
		c.waited = slices.Clone(counts[i].Waited) // claims change it
		e.AddPending(counts[i])
	}
	for id, c := range e.classes {
		if c.pending == 0 && c.wanted == 0 && c.claimed == 0 && c.unadmitted == 0 {
			e.leave(c)
			delete(e.classes, id)
		}
	}
}

// AddPending adds jobs that have just been queued here, without waiting for the
// next picture.
func (e *Engine) AddPending(add ClassCount) {
	c := e.class(&add)
	if add.Pending <= 0 {
		return
	}
	if c.available() == 0 {
		c.priority, c.oldest = add.Priority, add.Oldest
	} else {
		c.priority = min(c.priority, add.Priority)
		if add.Oldest.Before(c.oldest) {
			c.oldest = add.Oldest
		}
	}
	c.pending += add.Pending
	e.dirty = true
}

// Requeued notes that a released attempt is back in the queue. It reports whether
// the class is known; if not, the job is found with the next picture.
func (e *Engine) Requeued(ref JobRef) bool {
	c := e.classes[ref.Class]
	if c == nil {
		return false
	}
	if c.oldest.IsZero() { // none waited when the queue was counted: how long this one has, the next picture tells
		c.oldest = e.now
	}
	c.pending++
	e.dirty = true
	return true
}

// class returns the entry of a class, made if it is new.
func (e *Engine) class(count *ClassCount) *class {
	c := e.classes[count.Class]
	if c == nil {
		c = &class{id: count.Class, requirement: count.Requirement.Normalize()}
		e.match(c)
		e.joinProject(c)
		e.classes[count.Class] = c
	}
	return c
}
