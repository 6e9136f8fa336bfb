package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// Counts is what the queue holds, by class.
func (s *Store) Counts() ([]router.ClassCount, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	counts := make([]router.ClassCount, 0, len(s.classes))
	for id, c := range s.classes {
		if len(c.pending)+len(c.admitted)+len(c.claimed) == 0 {
			continue
		}
		routing := c.routing()
		n := router.ClassCount{
			Class: id, Requirement: c.requirement, Pending: len(c.pending) + len(c.admitted), Admitted: len(c.admitted),
			Unadmitted: len(routing), Claimed: len(c.claimed) - len(routing),
		}
		n.Priority, n.Oldest = c.front(routing)
		if n.Pending > 0 {
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
		for _, waiting := range [][]*entry{c.pending, c.admitted} {
			for _, e := range waiting {
				if now.Sub(e.record.Job.SubmittedAt) >= age {
					list[i].Jobs++
				}
			}
		}
	}
	return list
}

// oldest is the submission of the oldest job in a queue: the first one of some priority.
func oldest(queue []*entry) time.Time {
	oldest := queue[0].record.Job.SubmittedAt
	for priority := queue[0].record.Job.Priority + 1; priority <= spillway.MaxJobPriority; priority++ {
		at, _ := slices.BinarySearchFunc(queue, priority, func(e *entry, p int) int {
			return cmp.Or(cmp.Compare(e.record.Job.Priority, p), 1)
		})
		if at < len(queue) && queue[at].record.Job.SubmittedAt.Before(oldest) {
			oldest = queue[at].record.Job.SubmittedAt
		}
	}
	return oldest
}

// front is the priority of the most urgent and the submission of the oldest job that
// waits for a machine or for a review, or is under one.
func (c *class) front(routing []*entry) (priority int, since time.Time) {
	first := true
	for _, queue := range [][]*entry{c.pending, c.admitted, routing} {
		if len(queue) == 0 {
			continue
		}
		if p := queue[0].record.Job.Priority; first || p < priority {
			priority = p
		}
		if at := oldest(queue); first || at.Before(since) {
			since = at
		}
		first = false
	}
	return priority, since
}
