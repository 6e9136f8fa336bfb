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
	w := &watcher{
		ids:     slices.Compact(ids),
		changes: make(chan change, watchBuffer),
		slow:    func() { stopper.stop(errSlowWatcher) },
	}
	if err := j.changes.join(w); err != nil {
		return err
	}
	defer j.changes.leave(w)
	v := &view{jobs: j, rpc: rpc, ids: w.ids, told: make(map[spillway.JobID]int, len(w.ids)), untilTerminal: req.GetUntilTerminal()}
	return stopper.ended(v.run(rpc.Context(), w.changes))
}

// view is what one watcher has been told.
type view struct {
	jobs          *Jobs
	rpc           jobsv1.JobService_WatchServer
	ids           []spillway.JobID
	untilTerminal bool
	told          map[spillway.JobID]int // progress of each job of ids
	terminal      int                    // jobs of ids that have ended
}

func (v *view) run(ctx context.Context, changes <-chan change) error {
	if err := v.look(ctx); err != nil {
		return err
	}
	for !v.untilTerminal || v.terminal < len(v.ids) {
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
	case ch.record != nil:
		return v.tell(ch.record)
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
			if v.told[v.ids[i]] == terminalProgress {
				continue // it ended, and has been forgotten since
			}
			return unknownJob(v.ids[i])
		}
		if err := v.tell(r); err != nil {
			return err
		}
	}
	return nil
}

// tell sends a record unless a newer one of that job has been sent.
func (v *view) tell(r *spillway.JobRecord) error {
	if len(v.ids) > 0 {
		p := progress(r)
		if p <= v.told[r.Job.ID] {
			return nil
		}
		v.told[r.Job.ID] = p
		if p == terminalProgress {
			v.terminal++
		}
	}
	return v.rpc.Send(&jobsv1.WatchResponse{Record: v.jobs.record(r)})
}

const (
	terminalProgress  = int(^uint(0) >> 1)
	statesPerAttempt  = 8
	waitsAgainAfterIt = 6
)

// progress orders the records of one job by time: attempts grow, and a job that
// waits again after an attempt has that attempt's number.
func progress(r *spillway.JobRecord) int {
	if r.State.Terminal() {
		return terminalProgress
	}
	step := map[spillway.JobState]int{spillway.Pending: 1, spillway.Routing: 2, spillway.Admitted: 3, spillway.Assigned: 4, spillway.Running: 5}[r.State]
	if r.State == spillway.Pending && r.Attempt > 0 {
		step = waitsAgainAfterIt
	}
	return r.Attempt*statesPerAttempt + step
}

func (j *Jobs) record(r *spillway.JobRecord) *typesv1.JobRecord {
	return RecordToProto(r, j.dispatcher.Fingerprint(r.Pool))
}
