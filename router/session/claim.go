package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// claims is what was planned and what was asked for.
type claims struct {
	planned  []router.ClaimWant // not yet asked for
	underWay bool
	// arrived is what the claim under way has brought. The call writes it, and whoever has
	// its answer, or has waited for all calls, reads it.
	arrived []router.Claimed
	retry   retry
}

// plan asks the engine what to claim, and claims it beside the loop. While a claim is
// under way nothing is planned: what comes in meanwhile makes the next one larger, and
// two small claims cost the store and us far more than one.
func (d *Dispatcher) plan(now time.Time) time.Duration {
	if rest := d.claims.retry.rest(now); rest > 0 {
		return rest
	}
	if at, ok := d.engine.RipensAt(); ok && !now.Before(at) {
		d.counts.due = true // to know which jobs have waited for long enough by now
	}
	if !d.claims.underWay && len(d.claims.planned) == 0 {
		d.claims.planned = d.engine.Plan(now)
	}
	if !d.claims.underWay && len(d.claims.planned) > 0 {
		d.claim(d.claims.take(maxClaimJobs))
	}
	if at, ok := d.engine.NextDeadline(); ok {
		return min(at.Sub(now), sweepEvery)
	}
	return sweepEvery
}

// take returns planned wants of at most limit jobs in all.
func (c *claims) take(limit int) []router.ClaimWant {
	for i := range c.planned {
		want := &c.planned[i]
		if want.N <= limit {
			limit -= want.N
			continue
		}
		batch := append([]router.ClaimWant(nil), c.planned[:i]...)
		if limit > 0 {
			batch = append(batch, router.ClaimWant{Class: want.Class, Pool: want.Pool, N: limit})
			want.N -= limit
		}
		c.planned = c.planned[i:]
		return batch
	}
	batch := c.planned
	c.planned = nil
	return batch
}

func (d *Dispatcher) claim(wants []router.ClaimWant) {
	d.admittedOnly(wants)
	d.claims.underWay = true
	d.beside(func(ctx context.Context) func(time.Time) {
		began := time.Now()
		// Not ended with the dispatcher: what it claims must be known, to be returned.
		got, err := d.store.Claim(context.WithoutCancel(ctx), d.opt.Replica, wants, d.opt.ClaimTTL)
		took := time.Since(began)
		d.claims.arrived = got
		return func(now time.Time) { d.claimed(now, wants, got, err, took) }
	})
}

// claimed deals out what a claim brought. What it did not bring after an error may
// still have been claimed: those claims end by themselves.
func (d *Dispatcher) claimed(now time.Time, wants []router.ClaimWant, got []router.Claimed, err error, took time.Duration) {
	d.claims.underWay, d.claims.arrived = false, nil
	d.claims.retry.note(now, err)
	if err != nil {
		d.trouble("claim", err)
		d.counts.due = true // the engine takes what was not got for gone
	}
	got = d.cancels.withoutCanceled(got)
	assign, giveBack := d.engine.Claimed(now, wants, got)
	for i := range assign {
		d.assign(now, &assign[i])
	}
	for _, ref := range giveBack {
		d.outcomes.release(store.Release{Ref: ref, Detail: "no place was left"})
	}
	tell(d.opt.Events.Dispatched, Dispatched{
		Wanted: jobsWanted(wants), Claimed: len(got), Assigned: len(assign), GivenBack: len(giveBack), Took: took,
	})
}

func jobsWanted(wants []router.ClaimWant) (n int) {
	for _, w := range wants {
		n += w.N
	}
	return n
}

// assign sends a job to its machine. One whose stream has just gone keeps it until
// the accept timeout, like one that was lost on the way.
func (d *Dispatcher) assign(now time.Time, a *router.Assignment) {
	d.jobs[a.Ref.ID] = &heldJob{
		ref: a.Ref, submittedAt: a.Job.SubmittedAt, assignedAt: now,
		limit: d.opt.Timeouts.Of(spillway.Running, &a.Job, true), handedOver: handedOver(&a.Job),
	}
	d.dispatched(&a.Job)
	d.records.changed(a.Machine)
	s := d.streams[a.Machine]
	if s == nil {
		return
	}
	d.jobs[a.Ref.ID].limit += s.pool.StartWithin
	s.earn()
	s.send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{
		Job: jobToProto(&a.Job), Attempt: int32(a.Ref.Attempt), AloneFor: d.aloneFor(&a.Job),
	}}})
	tell(d.opt.Events.JobAssigned, JobAssigned{
		Ref: a.Ref, Machine: a.Machine, Pool: s.pool.Name, Wait: now.Sub(a.Job.SubmittedAt),
	})
}

// returnUnused gives back what a claim brought whose answer came too late for this
// dispatcher, so that its jobs don't wait for the claim to end, and count as lost then.
func (d *Dispatcher) returnUnused() {
	for i := range d.claims.arrived {
		d.outcomes.release(store.Release{Ref: d.claims.arrived[i].Ref, Detail: "its replica is going away"})
	}
}

// retry spaces the repetitions of a call that failed.
type retry struct {
	pause time.Duration
	until time.Time
}

func (r *retry) rest(now time.Time) time.Duration { return r.until.Sub(now) }

// note takes the outcome of the call: the pause doubles from error to error.
func (r *retry) note(now time.Time, err error) {
	if err == nil {
		*r = retry{}
		return
	}
	r.pause = min(max(2*r.pause, retryFirst), retryMost)
	r.until = now.Add(r.pause)
}
