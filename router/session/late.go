package session

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// maxLateResults bounds the results that wait to be looked up [results]; each may
// hold 64 KiB.
const maxLateResults = 256

var errStoreAway = status.Error(codes.Unavailable, "the store can't be reached now: send the results again")

// lateResults are results of attempts that are not on our book: of jobs that a
// machine got from another replica, or before a restart; or of jobs that were
// never its own. The store's records tell them apart.
type lateResults struct {
	waiting  []lateResult
	underWay bool
}

type lateResult struct {
	stream *stream
	ref    router.JobRef // without class
	result spillway.JobResult
}

func (l *lateResults) add(s *stream, ref router.JobRef, result spillway.JobResult) {
	if len(l.waiting) >= maxLateResults {
		s.stop(status.Error(codes.ResourceExhausted, "too many results of unknown jobs: send them again later"))
		return
	}
	l.waiting = append(l.waiting, lateResult{s, ref, result})
}

// lookUpLate asks the store about all that wait, in one call at a time.
func (d *Dispatcher) lookUpLate() {
	if d.late.underWay || len(d.late.waiting) == 0 {
		return
	}
	batch := d.late.waiting
	d.late.waiting, d.late.underWay = nil, true
	ids := make([]spillway.JobID, len(batch))
	for i := range batch {
		ids[i] = batch[i].ref.ID
	}
	d.beside(func(ctx context.Context) func(time.Time) {
		records, err := d.store.GetMany(ctx, ids)
		return func(time.Time) {
			d.late.underWay = false
			if err != nil {
				d.trouble("look up results", err)
			}
			d.judgeLate(batch, records, err)
		}
	})
}

// judgeLate has those results written that are their machine's by the record, and
// refuses the others as stale. Without an answer the stream is ended: what was not
// acknowledged comes again with the next one.
func (d *Dispatcher) judgeLate(batch []lateResult, records []*spillway.JobRecord, err error) {
	for i, l := range batch {
		if err != nil {
			l.stream.stop(errStoreAway)
			continue
		}
		switch r := records[i]; {
		case r == nil || !runsOn(r, l.stream) || r.Attempt != l.ref.Attempt:
			l.stream.putAside(statusAck(l.ref, true))
			l.stream.flush()
		case !d.outcomes.finishes(l.stream.machine, l.ref):
			d.outcomes.add(d.heldJobOf(r), l.stream.pool.Name, l.stream.machine, l.result.State, l.result)
		}
	}
}
