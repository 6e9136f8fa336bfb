package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// outcomes is what happened to jobs and is not yet in the store: starts, results
// and attempts given back. It is written behind, one batch at a time, so that the
// order of one job's outcomes is kept; what the store did not confirm is repeated
// with the same data until it does. There are never more of them than places on
// the machines of this replica, because a place is given away again only after a
// claim has succeeded in that same store.
type outcomes struct {
	waiting   []outcome
	releases  []store.Release
	finishing map[spillway.JobID]finishing // results not yet stored
	acked     ackedStreams
	writing   bool
	retry     retry
}

// ackedStreams is where acknowledgements wait for company: most machines get their
// next job soon, and it takes them along.
type ackedStreams struct {
	waiting []ackedStream // the oldest first
}

// ackedStream is a stream with an acknowledgement that waits since a time. It is
// out of date when that has been sent with another message.
type ackedStream struct {
	stream *stream
	since  time.Time
}

// send queues an acknowledgement that may wait.
func (a *ackedStreams) send(now time.Time, s *stream, ack *runnerv1.StatusAck) {
	if s.ack(now, ack) {
		a.waiting = append(a.waiting, ackedStream{s, now})
	}
}

// flushAcks sends the acknowledgements that have waited for long enough.
func (d *Dispatcher) flushAcks(now time.Time) time.Duration {
	a := &d.outcomes.acked
	due := 0
	for ; due < len(a.waiting); due++ {
		w := &a.waiting[due]
		if rest := w.since.Add(d.opt.AckDelay).Sub(now); rest > 0 {
			break
		}
		if w.stream.asideSince.Equal(w.since) {
			w.stream.flush()
		}
	}
	clear(a.waiting[:due])
	a.waiting = a.waiting[due:]
	if len(a.waiting) == 0 {
		return sweepEvery
	}
	return a.waiting[0].since.Add(d.opt.AckDelay).Sub(now)
}

// outcome is one transition, and what is needed to tell of it.
type outcome struct {
	store.Transition

	submittedAt, assignedAt, endedAt time.Time
}

type finishing struct {
	machine spillway.MachineID
	ref     router.JobRef
}

func (o *outcomes) init() { o.finishing = make(map[spillway.JobID]finishing) }

// add has a job's new state written.
func (o *outcomes) add(job *heldJob, pool string, machine spillway.MachineID, to spillway.JobState, result spillway.JobResult) {
	out := outcome{
		Transition:  store.Transition{Ref: job.ref, To: to, Pool: pool, Machine: machine, Result: result},
		submittedAt: job.submittedAt, assignedAt: job.assignedAt,
	}
	if to.Terminal() {
		out.endedAt = time.Now()
		o.finishing[job.ref.ID] = finishing{machine, job.ref}
	}
	o.waiting = append(o.waiting, out)
}

// release has an attempt given back.
func (o *outcomes) release(r store.Release) { o.releases = append(o.releases, r) }

// finishes reports whether a machine's result of an attempt is about to be stored.
func (o *outcomes) finishes(machine spillway.MachineID, ref router.JobRef) bool {
	f, ok := o.finishing[ref.ID]
	return ok && f.machine == machine && f.ref.Attempt == ref.Attempt
}

// writeOutcomes has the store told what waits.
func (d *Dispatcher) writeOutcomes(now time.Time) time.Duration {
	o := &d.outcomes
	if o.writing || len(o.waiting)+len(o.releases) == 0 {
		return sweepEvery
	}
	if rest := o.retry.rest(now); rest > 0 {
		return rest
	}
	o.writing = true
	w := o.take()
	d.beside(func(ctx context.Context) func(time.Time) {
		w.write(ctx, d.store)
		return func(now time.Time) { d.written(now, w) }
	})
	return sweepEvery
}

// write is one batch on its way, and what the store said of each of its parts.
type write struct {
	outcomes []outcome
	releases []store.Release

	applied, released        []error
	applyError, releaseError error
}

// take returns the next batch, in order.
func (o *outcomes) take() *write {
	w := &write{}
	w.outcomes, o.waiting = cut(o.waiting)
	if o.waiting == nil {
		o.waiting = make([]outcome, 0, len(w.outcomes)) // as many as last time, more or less
	}
	w.releases, o.releases = cut(o.releases)
	return w
}

func cut[T any](list []T) (batch, rest []T) {
	if len(list) <= maxWriteJobs {
		return list, nil
	}
	return list[:maxWriteJobs:maxWriteJobs], list[maxWriteJobs:]
}

// write tells the store. The calls are finished even when the dispatcher is
// stopped meanwhile: they are what its runners have done.
func (w *write) write(ctx context.Context, s Store) {
	ctx = context.WithoutCancel(ctx)
	if len(w.outcomes) > 0 {
		transitions := make([]store.Transition, len(w.outcomes))
		for i := range w.outcomes {
			transitions[i] = w.outcomes[i].Transition
		}
		w.applied, w.applyError = s.Apply(ctx, transitions)
	}
	if len(w.releases) > 0 {
		w.released, w.releaseError = s.Release(ctx, w.releases)
	}
}

// written acknowledges what is stored and queues the rest again, before what has
// come meanwhile.
func (d *Dispatcher) written(now time.Time, w *write) {
	d.outcomes.writing = false
	var again []outcome
	for i := range w.outcomes {
		err := itemError(w.applied, i, w.applyError)
		if !settled(err) {
			again = append(again, w.outcomes[i])
			continue
		}
		d.settle(now, &w.outcomes[i], err)
	}
	var back []store.Release
	for i := range w.releases {
		switch err := itemError(w.released, i, w.releaseError); {
		case !settled(err):
			back = append(back, w.releases[i])
		case errors.Is(err, store.ErrQuarantined):
			tell(d.opt.Events.JobQuarantined, JobQuarantined{Ref: w.releases[i].Ref, Detail: w.releases[i].Detail})
		case err == nil && !d.engine.Requeued(w.releases[i].Ref):
			d.counts.due = true
		}
	}
	d.outcomes.waiting = prepend(again, d.outcomes.waiting)
	d.outcomes.releases = prepend(back, d.outcomes.releases)
	d.noteWrite(now, w)
}

// noteWrite tells of the first failure of a batch and spaces its repetition.
func (d *Dispatcher) noteWrite(now time.Time, w *write) {
	var failure error
	for _, errs := range [][]error{w.applied, w.released, {w.applyError, w.releaseError}} {
		for _, err := range errs {
			if failure == nil && !settled(err) {
				failure = err
			}
		}
	}
	d.outcomes.retry.note(now, failure)
	if failure != nil {
		d.trouble("write outcomes", failure)
	}
}

// settle ends the way of an outcome that the store has answered for: stored, or
// refused because the attempt is not the job's newest any more.
func (d *Dispatcher) settle(now time.Time, o *outcome, err error) {
	stale := err != nil
	if !o.To.Terminal() {
		if ref, on, ok := d.engine.Holder(o.Ref.ID); stale && ok && ref.Attempt == o.Ref.Attempt {
			d.giveUp(now, ref, on, "superseded")
		}
		return
	}
	delete(d.outcomes.finishing, o.Ref.ID)
	if s := d.streams[o.Machine]; s != nil && s.registered {
		d.outcomes.acked.send(now, s, statusAck(o.Ref, stale))
	}
	if !stale {
		tell(d.opt.Events.JobFinished, o.narrate())
	}
}

func (o *outcome) narrate() JobFinished {
	f := JobFinished{Record: spillway.JobRecord{
		Job:        spillway.Job{ID: o.Ref.ID, SubmittedAt: o.submittedAt},
		State:      o.To,
		Attempt:    o.Ref.Attempt,
		Pool:       o.Pool,
		Machine:    o.Machine,
		ClaimedAt:  o.assignedAt,
		FinishedAt: o.endedAt,
		Result:     o.Result,
	}}
	if !o.assignedAt.IsZero() {
		f.Wait, f.Duration = o.assignedAt.Sub(o.submittedAt), o.endedAt.Sub(o.assignedAt)
	}
	return f
}

// itemError is what a batch call said of its i-th part. When the whole call failed
// and no part says why, nothing is known of any part.
func itemError(items []error, i int, whole error) error {
	named := slices.ContainsFunc(items, func(err error) bool { return err != nil && !settled(err) })
	if whole != nil && !named || i >= len(items) {
		return whole
	}
	return items[i]
}

// settled reports whether an answer is final.
func settled(err error) bool {
	return err == nil || errors.Is(err, store.ErrStaleAttempt) || errors.Is(err, store.ErrUnknownJob) || errors.Is(err, store.ErrQuarantined)
}

func prepend[T any](first, rest []T) []T {
	if len(first) == 0 {
		return rest
	}
	return append(first, rest...)
}
