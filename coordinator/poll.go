package coordinator

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/store"
)

// Trailers of a poll that was answered with no job.
const (
	DrainingTrailer  = "spillway-draining"
	TerminateTrailer = "spillway-terminate"
)

// SendHeartbeat notes that a worker is there, and tells it what it should know.
func (s *Server) SendHeartbeat(ctx context.Context, req *pb.SendHeartbeatRequest) (*pb.SendHeartbeatResponse, error) {
	busy, err := busyOf(req)
	if err != nil {
		return nil, err
	}
	w, err := s.caller(ctx, req.GetRunnerId(), req.GetInstanceId(), req.GetPoolName())
	if err != nil {
		return nil, err
	}
	if busy > 0 {
		if err := s.trust(ctx, w); err != nil {
			return nil, err
		}
	} else if err := s.suspect(ctx, w); err != nil {
		return nil, err
	}
	w.word(time.Now(), busy, req.GetDraining())
	order := w.order()
	return &pb.SendHeartbeatResponse{
		Acknowledged: true, Draining: order.GetDraining(), Terminate: order.GetTerminate(), Reason: order.GetReason(),
		EndedJobIds: w.endedNow(busy == 0),
	}, nil
}

// busyOf is how many jobs a heartbeat says that the worker runs.
func busyOf(req *pb.SendHeartbeatRequest) (int32, error) {
	n := req.GetActiveJobCount()
	switch {
	case n < 0 || n > spillway.MaxCapacityPerInst:
		return 0, status.Errorf(codes.InvalidArgument, "active_job_count %d: use 0 to %d", n, spillway.MaxCapacityPerInst)
	case req.GetStatus() == pb.RunnerStatus_RUNNER_STATUS_IDLE && n > 0:
		return 0, status.Errorf(codes.InvalidArgument, "status RUNNER_STATUS_IDLE with active_job_count %d: a worker that runs jobs is RUNNER_STATUS_BUSY", n)
	case req.GetStatus() == pb.RunnerStatus_RUNNER_STATUS_IDLE:
		return 0, nil
	case req.GetStatus() == pb.RunnerStatus_RUNNER_STATUS_BUSY:
		return max(1, n), nil
	default:
		return 0, status.Errorf(codes.InvalidArgument, "status %s: use RUNNER_STATUS_IDLE or RUNNER_STATUS_BUSY", req.GetStatus())
	}
}

// caller is the worker that calls for a pool.
func (s *Server) caller(ctx context.Context, runner, instance, pool string) (*worker, error) {
	c, err := callerOf(ctx, runner, instance)
	if err != nil {
		return nil, err
	}
	p, err := s.pools.find(ctx, pool)
	if err != nil {
		return nil, err
	}
	return s.here(ctx, c, &p)
}

// trust takes a busy worker's word: it has the job that it was thought to have lost.
func (s *Server) trust(ctx context.Context, w *worker) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.suspected = false
	return ctx.Err()
}

// suspect takes an idle worker's word. If it has been given a job, it has lost that: its
// process was started anew, or the answer with the job did not reach it. The job may
// still turn up for as long as the router waits for one to be accepted; then another
// worker gets it.
func (s *Server) suspect(ctx context.Context, w *worker) error {
	if !w.contradicts() {
		return nil
	}
	if err := w.takeTurn(ctx); err != nil {
		return err
	}
	defer w.endTurn()
	if w.gone.Load() || !w.contradicts() {
		return nil
	}
	w.mu.Lock()
	name, has := w.mu.pool, w.mu.given
	w.mu.Unlock()
	if over, err := s.isOver(ctx, has); err != nil || over {
		w.drop(has, over)
		return err
	}
	pool, err := s.pools.find(ctx, name)
	if err != nil {
		return err
	}
	return s.attach(ctx, w, &pool, store.Work{}, true)
}

// isOver reports whether an attempt has ended: its result was reported at another
// replica, say.
func (s *Server) isOver(ctx context.Context, g *given) (bool, error) {
	records, err := s.store.GetMany(ctx, []spillway.JobID{spillway.JobID(g.job)})
	if err != nil {
		return false, storeStatus(err)
	}
	r := records[0]
	return r == nil || r.State.Terminal() || r.Attempt != int(g.attempt), nil
}

// drop forgets what the worker was given, and has the router's book here forget it too.
func (w *worker) drop(g *given, over bool) {
	w.mu.Lock()
	l := w.mu.link
	if !over || w.mu.given != g {
		w.mu.Unlock()
		return
	}
	w.mu.given, w.mu.suspected = nil, false
	w.mu.Unlock()
	w.say(l, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
		JobId: g.job, Attempt: g.attempt, Code: runnerv1.RefusalCode_REFUSAL_CODE_INVALID,
	}}})
}

// contradicts reports whether the worker has a job by our book and was not asked about
// it yet.
func (w *worker) contradicts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.given != nil && !w.mu.suspected
}

func (w *worker) order() *runnerv1.Drain {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.drain.GetDraining() {
		return nil
	}
	return w.mu.drain
}

// PollJob waits for a job.
func (s *Server) PollJob(ctx context.Context, req *pb.PollJobRequest) (*pb.PollJobResponse, error) {
	outcome := PollRefused
	defer func() { tell(s.opt.Events.Polled, outcome) }()
	w, err := s.caller(ctx, req.GetRunnerId(), req.GetInstanceId(), req.GetPoolName())
	if err != nil {
		s.holdSpare(ctx, err)
		return nil, err
	}
	if err := s.suspect(ctx, w); err != nil {
		return nil, err
	}
	if w.isElsewhereToo(s.opt.SilentAfter) {
		s.publish(ctx, move{w.id, s.opt.Replica, movePolls})
	}
	w.word(time.Now(), 0, false)
	w.endedNow(true)
	job, err := s.await(ctx, w)
	outcome = pollOutcome(err)
	if err != nil {
		return nil, err
	}
	return &pb.PollJobResponse{HasJob: true, Job: job}, nil
}

// await waits until a job is offered to the worker, and gives it out.
func (s *Server) await(ctx context.Context, w *worker) (*pb.Job, error) {
	number := w.beginPoll()
	defer w.endPoll()
	wait := time.NewTimer(s.pollWait(ctx))
	defer wait.Stop()
	for last := false; ; {
		o, changed, err := w.next(number)
		switch {
		case err != nil:
			return nil, err
		case o != nil:
			if job, err := s.give(ctx, w, o); err != nil || job != nil {
				return job, err
			}
			continue
		case last || w.order() != nil:
			return nil, w.noJob(ctx)
		}
		select {
		case <-changed:
		case <-wait.C:
			last = true // once more: it may have come just now
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-s.ctx.Done():
			return nil, errGoingAway
		}
	}
}

// pollOutcome is what the wait for a job came to.
func pollOutcome(err error) PollOutcome {
	switch status.Code(err) {
	case codes.OK:
		return PollJob
	case codes.NotFound:
		return PollNone
	default:
		return PollRefused
	}
}

// pollWait is how long a poll may wait: the answer has to arrive before the caller gives
// up, or a job that it carries is lost for a while.
func (s *Server) pollWait(ctx context.Context) time.Duration {
	wait := s.opt.PollWait
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/4, time.Second))
	}
	return max(wait, 0)
}

// isElsewhereToo reports whether another replica may still take the worker for one of its
// machines: what it is offered there has to come here.
func (w *worker) isElsewhereToo(silentAfter time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.mu.movedAt.IsZero() && time.Since(w.mu.movedAt) < silentAfter+movePatience
}

// beginPoll notes a poll. The newest one gets the job: the one before it may be of a
// connection that is no more.
func (w *worker) beginPoll() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.polls++
	w.mu.lastPoll++
	w.change()
	return w.mu.lastPoll
}

func (w *worker) endPoll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.polls--
	w.mu.heardAt = time.Now()
}

// next takes what is offered for the answer of a poll; changed is closed when to look
// again.
func (w *worker) next(number int) (o *offer, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.lastPoll != number:
		return nil, nil, status.Errorf(codes.NotFound, "no job: a newer poll of runner %s has come", w.runner)
	case w.mu.link == nil:
		return nil, nil, errGoingAway
	case w.mu.offered != nil && !w.mu.offered.taken && !w.mu.drain.GetDraining():
		w.mu.offered.taken = true
		return w.mu.offered, nil, nil
	default:
		return nil, w.mu.changed, nil
	}
}

// noJob is the answer of a poll without a job.
func (w *worker) noJob(ctx context.Context) error {
	order := w.order()
	if order == nil {
		return status.Errorf(codes.NotFound, "no job for runner %s now: poll again", w.runner)
	}
	trailer := metadata.Pairs(DrainingTrailer, "true")
	todo := "poll again later"
	if order.GetTerminate() {
		trailer.Set(TerminateTrailer, "true")
		todo = "leave"
	}
	_ = grpc.SetTrailer(ctx, trailer) // fails only outside of a call; the message says it too
	return status.Errorf(codes.NotFound, "no job: runner %s is draining (%s): %s", w.runner, order.GetReason(), todo)
}

// give hands an offered job out, once it is kept whose it is now. nil and no error: the
// offer is void, look again.
func (s *Server) give(ctx context.Context, w *worker, o *offer) (*pb.Job, error) {
	if time.Since(o.at) > s.opt.offerFor() {
		w.putBack(o)
		w.refuse(runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)
		return nil, ctx.Err()
	}
	w.mu.Lock()
	work := store.Work{
		Machine: w.id, Pool: w.mu.pool, Job: spillway.JobID(o.job.GetId()), Attempt: int(o.attempt), Replica: s.opt.Replica, By: w.by,
	}
	w.mu.Unlock()
	if err := s.store.PutWork(ctx, work, timeLimit(o)+workSpare); err != nil {
		w.putBack(o)
		return nil, storeStatus(err)
	}
	if err := ctx.Err(); err != nil {
		w.putBack(o)
		return nil, status.FromContextError(err).Err()
	}
	l := w.accept(o)
	if l == nil {
		return nil, nil //nolint:nilnil // the offer was void
	}
	accepted := w.say(l, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{
		JobId: o.job.GetId(), Attempt: o.attempt,
	}}})
	if !accepted {
		return nil, errGoingAway
	}
	s.publish(ctx, move{w.id, s.opt.Replica, moveTook})
	return jobOf(o), nil
}

// putBack has another poll take the offer, if it still stands.
func (w *worker) putBack(o *offer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.taken = false
	w.change()
}

// accept makes an offer what the worker was given, and returns the conversation to say
// so; nil if the offer was taken back meanwhile.
func (w *worker) accept(o *offer) *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.offered != o {
		return nil
	}
	w.mu.offered, w.mu.suspected = nil, false
	w.mu.given = &given{job: o.job.GetId(), attempt: o.attempt, acks: make(chan bool, 1)}
	return w.mu.link
}

// timeLimit is how long a job may run.
func timeLimit(o *offer) time.Duration {
	if limit := o.job.GetTimeout().AsDuration(); limit > 0 {
		return limit
	}
	return spillway.DefaultJobTimeout
}

func jobOf(o *offer) *pb.Job {
	return &pb.Job{
		Id: o.job.GetId(), ProjectId: o.job.GetRequirement().GetProject(), Script: o.job.GetScript(), EnvVariables: o.job.GetEnv(),
		TimeoutSeconds: int32((timeLimit(o) + time.Second - 1) / time.Second), Attempt: o.attempt,
	}
}
