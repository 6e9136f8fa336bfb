package session

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

var errSlowWatcher = status.Errorf(codes.ResourceExhausted, "the watcher did not read %d changes: watch again", watchBuffer)

// Watch sends the present state of jobs and then each change. It listens before it
// looks, so that nothing falls in between; what it then hears of twice, or too
// late, it tells once.
func (j *Jobs) Watch(req *jobsv1.WatchRequest, rpc jobsv1.JobService_WatchServer) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicStatus(j.dispatcher.opt.Events, panicked)
		}
	}()
	ids, err := jobIDs(req.GetJobIds())
	if err != nil {
		return err
	}
	if len(ids) == 0 && req.GetUntilTerminal() {
		return status.Error(codes.InvalidArgument, "until_terminal needs job_ids: all jobs never end")
	}
	stopper, err := newStopper(rpc.Context())
	if err != nil {
		return err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	after, err := positions(req.GetAfter())
	if err != nil {
		return err
	}
	for id := range after {
		if _, watched := slices.BinarySearch(ids, id); !watched {
			return status.Errorf(codes.InvalidArgument, "after names job %s, which is not in job_ids", id)
		}
	}
	w := &watcher{changes: make(chan change, watchBuffer), slow: func() { stopper.stop(errSlowWatcher) }}
	if err := j.changes.join(w); err != nil {
		return err
	}
	defer j.changes.leave(w, ids)
	if len(ids) == 0 {
		j.changes.hearAll(w)
	} else {
		j.changes.hear(w, ids)
	}
	v := &view{jobs: j, rpc: rpc, ids: ids, told: after, untilTerminal: req.GetUntilTerminal(), ended: make(map[spillway.JobID]bool)}
	return stopper.ended(v.run(rpc.Context(), w.changes))
}

// watcher is one caller of Watch.
type watcher struct {
	changes chan change
	slow    func() // ends a caller that is too slow
}

func (w *watcher) offer(ch change) bool {
	select {
	case w.changes <- ch:
		return true
	default:
		w.slow()
		return false
	}
}

// view is what one watcher has been told.
type view struct {
	jobs          *Jobs
	rpc           jobsv1.JobService_WatchServer
	ids           []spillway.JobID
	untilTerminal bool
	told          map[spillway.JobID]int64 // of ids: the last transition that is known there
	ended         map[spillway.JobID]bool  // of ids
}

func (v *view) run(ctx context.Context, changes <-chan change) error {
	if err := v.look(ctx); err != nil {
		return err
	}
	for !v.untilTerminal || len(v.ended) < len(v.ids) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ch := <-changes:
			if err := v.take(ctx, ch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *view) take(ctx context.Context, ch change) error {
	switch {
	case ch.record != nil && len(v.ids) == 0:
		return v.send(ch.record, ch.record.Sequence()-1)
	case ch.record != nil:
		return v.tell(ch.record, false)
	case len(v.ids) == 0:
		return status.Error(codes.Unavailable, "changes may have been missed: list the jobs and watch again")
	default:
		return v.look(ctx)
	}
}

// look tells the present state of every job that is watched by its id.
func (v *view) look(ctx context.Context) error {
	if len(v.ids) == 0 {
		return nil
	}
	records, err := v.jobs.store.GetMany(ctx, v.ids)
	if err != nil {
		return storeStatus(err)
	}
	for i, r := range records {
		if r == nil {
			if v.ended[v.ids[i]] {
				continue // it has been forgotten since
			}
			return unknownJob(v.ids[i])
		}
		if err := v.tell(r, true); err != nil {
			return err
		}
	}
	return nil
}

// tell sends a record unless that job's last transition is known there. present: it was
// read from the store now, and is not a change that may be told late.
func (v *view) tell(r *spillway.JobRecord, present bool) error {
	id, now := r.Job.ID, r.Sequence()
	was, known := v.told[id]
	if now < was && !present {
		return nil
	}
	if delete(v.ended, id); r.State.Terminal() {
		v.ended[id] = true
	}
	if v.told[id] = now; now == was {
		return nil
	}
	if !known {
		was = r.Transitions[0].Sequence - 1 // nothing was asked for
	}
	return v.send(r, was)
}

// send tells a record, with its transitions after one.
func (v *view) send(r *spillway.JobRecord, after int64) error {
	news, gap := since(r, after)
	p := v.jobs.record(r)
	p.Transitions = transitionsToProto(news)
	return v.rpc.Send(&jobsv1.WatchResponse{Record: p, Gap: gap})
}

// since returns the transitions of a job after one. When those that follow it are not
// known any more, or it is one that the job never had, that is a gap, and the answer is
// only the present one.
func since(r *spillway.JobRecord, after int64) (news []spillway.JobTransition, gap bool) {
	first, last := r.Transitions[0].Sequence, r.Sequence()
	if after < first-1 || after > last {
		return r.Transitions[len(r.Transitions)-1:], true
	}
	return r.Transitions[after+1-first:], false
}

func (j *Jobs) record(r *spillway.JobRecord) *typesv1.JobRecord {
	return RecordToProto(r, j.dispatcher.Fingerprint(r.Pool))
}
