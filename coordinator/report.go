package coordinator

import (
	"bytes"
	"context"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/store"
)

// TimeLimitExitCode is what a worker reports of a job that has reached its time limit,
// as timeout(1) does.
const TimeLimitExitCode = 124

// stderrMark is between the two outputs of a job.
const stderrMark = "\n--- stderr ---\n"

// ReportJobResult ends a job. The answer comes when the result is stored.
func (s *Server) ReportJobResult(ctx context.Context, req *pb.ReportJobResultRequest) (resp *pb.ReportJobResultResponse, err error) {
	defer func() { tell(s.opt.Events.Reported, reportOutcome(err)) }()
	c, err := callerOf(ctx, req.GetRunnerId(), "")
	if err != nil {
		return nil, err
	}
	if err := checkReport(req); err != nil {
		return nil, err
	}
	w, err := s.enter(c)
	if err != nil {
		return nil, err
	}
	if err := w.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer w.endTurn()
	if w.gone.Load() {
		return nil, status.Error(codes.Unavailable, "this worker has just been taken for silent: report again")
	}
	err = s.report(ctx, w, c, req)
	if w.conversation() == nil {
		s.leave(w) // whoever reports what it never had, or had long ago, stays nobody
	}
	if err != nil {
		return nil, err
	}
	return &pb.ReportJobResultResponse{Acknowledged: true}, nil
}

func reportOutcome(err error) ReportOutcome {
	switch status.Code(err) {
	case codes.OK:
		return ReportStored
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return ReportUnavailable
	default:
		return ReportRefused
	}
}

func checkReport(req *pb.ReportJobResultRequest) error {
	switch id := req.GetJobId(); {
	case id == "" || !shortText(id, spillway.MaxJobIDBytes):
		return status.Errorf(codes.InvalidArgument, "a job_id must be 1 to %d bytes of printable ASCII without blanks", spillway.MaxJobIDBytes)
	case req.GetAttempt() < 0:
		return status.Errorf(codes.InvalidArgument, "attempt %d: the first is 1", req.GetAttempt())
	case req.GetSuccess() && req.GetExitCode() != 0:
		return status.Errorf(codes.InvalidArgument, "success with exit_code %d: a job succeeds with 0", req.GetExitCode())
	}
	return nil
}

// report has the result of a job stored that is the worker's; the caller holds the turn.
func (s *Server) report(ctx context.Context, w *worker, c caller, req *pb.ReportJobResultRequest) error {
	result := resultOf(req)
	g, err := s.holding(ctx, w, c, req, result)
	if err != nil || g == nil {
		return err // nil: it is stored already
	}
	if n := req.GetAttempt(); n != 0 && n != g.attempt {
		return errStale(req.GetJobId(), n, g.attempt)
	}
	l := w.reports(g)
	defer w.reports(nil)
	if !w.say(l, resultMessage(g, result)) {
		return errGoingAway
	}
	stale, err := awaitAck(ctx, l, g)
	if err != nil {
		return err
	}
	s.finish(ctx, w, g)
	if stale {
		return s.refused(ctx, w, req, result)
	}
	return nil
}

// refused reports why the router did not take a result: unless it is what it took before,
// of a report whose answer got lost.
func (s *Server) refused(ctx context.Context, w *worker, req *pb.ReportJobResultRequest, result *typesv1.JobResult) error {
	records, err := s.store.GetMany(ctx, []spillway.JobID{spillway.JobID(req.GetJobId())})
	switch {
	case err != nil:
		return storeStatus(err)
	case records[0] != nil && records[0].State.Terminal():
		return judge(w, req, records[0], &store.Work{}, result)
	default:
		return status.Errorf(codes.FailedPrecondition, "job %s is not runner %s's any more: it was canceled, has reached its time limit, or was given to another", req.GetJobId(), w.runner)
	}
}

// reports notes of what job the worker reports; the acknowledgement is for that, whatever
// becomes of the job meanwhile. It returns the conversation to say so.
func (w *worker) reports(g *given) *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.reporting = g
	w.mu.heardAt = time.Now()
	return w.mu.link
}

func resultMessage(g *given, r *typesv1.JobResult) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: g.job, Attempt: g.attempt, Result: r,
	}}}
}

func errStale(job string, said, is int32) error {
	return status.Errorf(codes.FailedPrecondition, "attempt %d of job %s is over: attempt %d counts", said, job, is)
}

// awaitAck waits until a result is stored or refused.
func awaitAck(ctx context.Context, l *link, g *given) (stale bool, err error) {
	late := time.NewTimer(ackWait)
	defer late.Stop()
	select {
	case stale = <-g.acks:
		return stale, nil
	case <-l.over:
		return false, status.Error(codes.Unavailable, "the result is not known to be stored: report it again")
	case <-late.C:
		return false, status.Error(codes.Unavailable, "the result could not be stored in time: report it again")
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

// finish forgets what the worker had.
func (s *Server) finish(ctx context.Context, w *worker, g *given) {
	w.mu.Lock()
	if w.mu.given == g {
		w.mu.given, w.mu.suspected = nil, false
	}
	pool := w.mu.pool
	w.mu.Unlock()
	err := s.store.DropWork(context.WithoutCancel(ctx), store.Work{Machine: w.id, Pool: pool, Job: spillway.JobID(g.job), Attempt: int(g.attempt)})
	if err != nil { // it is kept for no longer than the job might have run, and says nothing about an ended one
		tell(s.opt.Events.Trouble, Trouble{Op: "forget what a worker had", Err: err})
	}
}

// holding returns the attempt at the job that the worker has, by our book or, where the
// worker was at another replica, by the store's. nil and no error: this result is stored.
func (s *Server) holding(ctx context.Context, w *worker, c caller, req *pb.ReportJobResultRequest, result *typesv1.JobResult) (*given, error) {
	if g := w.has(req.GetJobId()); g != nil {
		return g, nil
	}
	work, kept, err := s.store.Work(ctx, w.id)
	if err != nil {
		return nil, storeStatus(err)
	}
	records, err := s.store.GetMany(ctx, []spillway.JobID{spillway.JobID(req.GetJobId())})
	if err != nil {
		return nil, storeStatus(err)
	}
	record := records[0]
	switch {
	case record == nil:
		return nil, status.Errorf(codes.NotFound, "no job %s: it was never submitted, or ended long ago", req.GetJobId())
	case !kept || string(work.Job) != req.GetJobId():
		work = store.Work{}
	case work.By != c.by:
		return nil, errTaken(c.runner)
	}
	if err := judge(w, req, record, &work, result); err != nil || record.State.Terminal() {
		return nil, err
	}
	pool, err := s.pools.find(ctx, work.Pool)
	if err != nil {
		return nil, err
	}
	if err := w.mayMove(pool.Name); err != nil {
		return nil, err
	}
	if err := s.sit(ctx, w, pool.Name, true); err != nil {
		return nil, err
	}
	w.describe(c)
	if err := s.attach(ctx, w, &pool, work, false); err != nil {
		return nil, err
	}
	s.publish(ctx, move{w.id, s.opt.Replica, moveAttached})
	if g := w.has(req.GetJobId()); g != nil {
		return g, nil
	}
	return nil, errNotYours(req, record)
}

// has returns the job if the worker was given it and the conversation stands.
func (w *worker) has(job string) *given {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.given == nil || w.mu.given.job != job || w.mu.link == nil || !w.mu.link.isReady() {
		return nil
	}
	select {
	case <-w.mu.given.acks: // of a report that nobody waits for any more
	default:
	}
	return w.mu.given
}

// judge reports why a result can't be taken for the job that the record is of.
func judge(w *worker, req *pb.ReportJobResultRequest, record *spillway.JobRecord, work *store.Work, result *typesv1.JobResult) error {
	switch {
	case record.State.Terminal() && record.Machine == w.id && sameResult(&record.Result, result):
		return nil // reported again: the answer got lost
	case record.State.Terminal():
		return status.Errorf(codes.FailedPrecondition, "job %s has ended already: %s %s", req.GetJobId(), record.State, record.Result.Reason)
	case work.Attempt == 0:
		return errNotYours(req, record)
	case !isLive(work, record):
		return errStale(req.GetJobId(), int32(work.Attempt), int32(record.Attempt))
	}
	return nil
}

func errNotYours(req *pb.ReportJobResultRequest, record *spillway.JobRecord) error {
	return status.Errorf(codes.FailedPrecondition, "job %s (%s) was not given to runner %s, or not for this attempt", req.GetJobId(), record.State, req.GetRunnerId())
}

// resultOf is a report as the router takes it.
func resultOf(req *pb.ReportJobResultRequest) *typesv1.JobResult {
	r := &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_FAILED, ExitCode: req.GetExitCode(), Output: output(req.GetStdout(), req.GetStderr())}
	switch {
	case req.GetSuccess():
		r.State = typesv1.JobState_JOB_STATE_COMPLETED
	case req.GetExitCode() == TimeLimitExitCode:
		r.Reason = string(spillway.JobExecutionTimeout)
	case req.GetExitCode() == 0:
		r.Reason, r.Detail = string(spillway.RunnerSystemFailure), "the worker says that it failed, and no exit code"
	default:
		r.Reason = string(spillway.ScriptFailure)
	}
	return r
}

// sameResult reports whether what is stored is what is reported.
func sameResult(stored *spillway.JobResult, r *typesv1.JobResult) bool {
	state := spillway.Failed
	if r.GetState() == typesv1.JobState_JOB_STATE_COMPLETED {
		state = spillway.Completed
	}
	return stored.State == state && string(stored.Reason) == r.GetReason() && stored.ExitCode == int(r.GetExitCode()) && bytes.Equal(stored.Output, r.GetOutput())
}

// output joins the tails of both outputs. If both are long, each has half of the room.
func output(stdout, stderr string) []byte {
	room := spillway.MaxOutputBytes
	if stderr == "" {
		return []byte(tail(stdout, room))
	}
	room -= len(stderrMark)
	errs := tail(stderr, max(room/2, room-len(stdout)))
	return []byte(tail(stdout, room-len(errs)) + stderrMark + errs)
}

// tail returns at most limit bytes from the end of s, and no half character.
func tail(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
