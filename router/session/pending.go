package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// maxRejected bounds the jobs of one class that are rejected at a time [jobs].
const maxRejected = 512

// counts is the queue as it was last counted.
type counts struct {
	due      bool
	counting bool
	asked    time.Time // when it was last asked for
	retry    retry
	latest   []router.ClassCount

	rejecting bool
}

// countQueue counts the queue when that is due: after a poke, and every CountsEvery.
func (d *Dispatcher) countQueue(now time.Time) time.Duration {
	c := &d.counts
	wait := d.opt.CountsEvery
	if c.due {
		wait = minCountsGap
	}
	rest := max(c.asked.Add(wait).Sub(now), c.retry.rest(now))
	if c.counting || rest > 0 {
		return max(rest, minCountsGap)
	}
	c.due, c.counting, c.asked = false, true, now
	d.beside(func(ctx context.Context) func(time.Time) {
		latest, err := d.store.Counts(ctx)
		return func(now time.Time) { d.counted(now, latest, err) }
	})
	return sweepEvery
}

// counted takes a new picture in. Without one the old picture stays: unknown is
// not empty.
func (d *Dispatcher) counted(now time.Time, latest []router.ClassCount, err error) {
	d.counts.counting = false
	d.counts.retry.note(now, err)
	if err != nil {
		d.trouble("count", err)
		return
	}
	d.sortCounts(latest)
	d.counts.latest = latest
	d.engine.SetCounts(latest)
}

// expirePending ends jobs that have waited for longer than they may: for a place,
// or for a pool that could take them at all.
func (d *Dispatcher) expirePending(now time.Time) {
	if d.counts.rejecting {
		return
	}
	var calls []rejection
	for i := range d.counts.latest {
		c := &d.counts.latest[i]
		if c.Pending+c.Unadmitted == 0 {
			continue
		}
		if r, due := d.rejectionOf(now, c); due {
			calls = append(calls, r)
		}
	}
	if len(calls) == 0 {
		return
	}
	d.counts.rejecting = true
	d.beside(func(ctx context.Context) func(time.Time) {
		for i := range calls {
			calls[i].carryOut(ctx, d.store)
		}
		return func(time.Time) { d.rejected(calls) }
	})
}

// rejection is a class of which some jobs have waited too long, and what became of
// it.
type rejection struct {
	class  spillway.JobClass
	waited time.Duration
	result spillway.JobResult

	jobs int
	err  error
}

func (r *rejection) carryOut(ctx context.Context, s Store) {
	ended, err := s.Reject(ctx, r.class, r.waited, maxRejected, r.result)
	r.jobs, r.err = len(ended), err
}

func (d *Dispatcher) rejected(calls []rejection) {
	d.counts.rejecting = false
	d.counts.due = true
	for i := range calls {
		r := &calls[i]
		if r.err != nil {
			d.trouble("reject", r.err)
		}
		if r.jobs > 0 {
			tell(d.opt.Events.JobRejected, JobRejected{Class: r.class, Jobs: r.jobs, Reason: r.result.Reason, Detail: r.result.Detail})
		}
	}
}

// rejectionOf says how long is too long for jobs of a class, if any may have waited so
// long. The store judges each by its own clock; ours only says that it is time to ask.
func (d *Dispatcher) rejectionOf(now time.Time, c *router.ClassCount) (rejection, bool) {
	nearest, matched := d.nearestPool(&c.Requirement)
	limit := d.opt.Timeouts.Of(spillway.Pending, nil, matched)
	if now.Sub(c.Oldest) <= limit {
		return rejection{}, false
	}
	r := rejection{class: c.Class, waited: limit}
	if matched {
		r.result = spillway.JobResult{
			State: spillway.Failed, Reason: spillway.PendingTimeout,
			Detail: "no place became free within " + limit.String(),
		}
	} else {
		r.result = spillway.JobResult{State: spillway.Rejected, Reason: spillway.Unmatched, Detail: nearest}
	}
	return r, true
}

// nearestPool reports whether some pool can take a requirement; if none can, it
// says what the pool that came nearest lacks.
func (d *Dispatcher) nearestPool(r *spillway.Requirement) (why string, matched bool) {
	if d.faces.take(r) {
		return "", true
	}
	why = "no pool is configured"
	depth := -1
	for _, name := range d.poolNames {
		face := d.pools[name]
		v := router.Match(&face.capability, r)
		if at := predicateDepth[v.Predicate]; at > depth {
			depth = at
			why = "no pool can take it; the nearest is " + name + ": " + router.Explain(&face.capability, r).Detail
		}
	}
	return why, false
}

// predicateDepth is how far a match came before it failed.
var predicateDepth = map[router.Predicate]int{
	router.PredicateOrigin:    0,
	router.PredicateProtected: 1,
	router.PredicateUntagged:  2,
	router.PredicateTags:      3,
	router.PredicateScope:     4,
	router.PredicateResources: 5,
}
