package coordinator

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// workerVersion is what the router and its pages are told of a worker's version.
const workerVersion = "worker"

// link is one conversation of a worker with the router.
type link struct {
	attached *session.Attached
	ready    chan struct{} // closed once the router knows the machine
	over     chan struct{} // closed when it has ended
	err      error         // why; read after over
}

func (l *link) isReady() bool {
	select {
	case <-l.over:
		return false
	default:
	}
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

// attach begins a conversation in place of the one there is; the caller holds the turn.
// With work, the worker has that job. suspect: it has a job by our book and says that it
// has none, so that the router waits for a while whether it turns up.
func (s *Server) attach(ctx context.Context, w *worker, pool *spillway.Pool, work store.Work, suspect bool) error {
	l := &link{attached: s.runners.Attach(s.ctx, *pool), ready: make(chan struct{}), over: make(chan struct{})}
	register := &runnerv1.Register{MachineId: string(w.id), Capacity: 1, Version: workerVersion}
	w.mu.Lock()
	w.mu.link, w.mu.pool, w.mu.drain, w.mu.beat = l, pool.Name, nil, beat{}
	register.InstanceId = w.mu.instance
	if !suspect {
		w.mu.given, w.mu.suspected = nil, false
	} else {
		w.mu.suspected = true
	}
	if work.Attempt > 0 {
		w.mu.given = &given{job: string(work.Job), attempt: int32(work.Attempt), acks: make(chan bool, 1)}
		register.Running = []*runnerv1.RunningJob{w.mu.given.running()}
	}
	w.mu.Unlock()
	if !s.beside(func() { w.listen(l) }) {
		w.parted(l, errGoingAway)
		l.attached.Close()
		return errGoingAway
	}
	w.say(l, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: register}})
	select {
	case <-l.ready:
	case <-l.over:
		if status.Code(l.err) == codes.PermissionDenied { // our prefix is ours alone
			return status.Errorf(codes.Unavailable, "runner %s was offered a job of another pool just now: try again in a moment", w.runner)
		}
		return l.err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if !suspect {
		tell(s.opt.Events.WorkerAttached, WorkerAttached{Runner: w.runner, Pool: pool.Name, Workers: s.Workers(), Carried: len(register.GetRunning())})
	}
	return nil
}

// listen takes in what the router says until the conversation ends.
func (w *worker) listen(l *link) {
	for {
		m, err := l.attached.Recv()
		if err != nil {
			w.parted(l, err)
			return
		}
		for _, answer := range w.hear(l, m) {
			w.say(l, answer)
		}
	}
}

// parted notes that a conversation is over. The worker's next call begins another.
func (w *worker) parted(l *link, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.err = errGoingAway
	if _, ok := status.FromError(err); ok {
		l.err = err
	}
	close(l.over)
	if w.mu.link == l {
		w.mu.link, w.mu.offered = nil, nil
	}
	w.change()
}

// hear takes in one message and returns what is to be answered.
func (w *worker) hear(l *link, m *runnerv1.RouterMessage) []*runnerv1.RunnerMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.link != l {
		return nil // another conversation counts by now
	}
	switch m := m.GetMessage().(type) {
	case *runnerv1.RouterMessage_Registered:
		for _, job := range m.Registered.GetSuperseded() {
			w.taken(job.GetJobId(), job.GetAttempt())
		}
		close(l.ready)
	case *runnerv1.RouterMessage_Assign:
		return w.offer(m.Assign)
	case *runnerv1.RouterMessage_CancelJob:
		w.taken(m.CancelJob.GetJobId(), m.CancelJob.GetAttempt())
	case *runnerv1.RouterMessage_Drain:
		return w.drains(m.Drain)
	case *runnerv1.RouterMessage_StatusAck:
		w.acked(m.StatusAck)
	default: // why it has to wait, and signals: a worker that polls needs neither
		return nil
	}
	w.change()
	return nil
}

// offer keeps a job for the next poll; callers hold mu.
func (w *worker) offer(m *runnerv1.Assign) []*runnerv1.RunnerMessage {
	o := &offer{job: m.GetJob(), attempt: m.GetAttempt(), at: time.Now()}
	switch {
	case w.mu.drain.GetDraining():
		return []*runnerv1.RunnerMessage{refusal(o, runnerv1.RefusalCode_REFUSAL_CODE_DRAINING)}
	case w.mu.offered != nil:
		return []*runnerv1.RunnerMessage{refusal(o, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)}
	}
	w.mu.offered = o
	w.change()
	return nil
}

// taken: an attempt is not the worker's any more; callers hold mu.
func (w *worker) taken(job string, attempt int32) {
	if o := w.mu.offered; o != nil && o.job.GetId() == job && o.attempt == attempt {
		w.mu.offered = nil
		return
	}
	if g := w.mu.given; g == nil || g.job != job || g.attempt == attempt {
		w.end(job)
	}
}

// drains takes an order. It is obeyed by whoever gives out the jobs, which is here, so
// that it is acknowledged at once; callers hold mu.
func (w *worker) drains(m *runnerv1.Drain) (answers []*runnerv1.RunnerMessage) {
	w.mu.drain = m
	if o := w.mu.offered; o != nil && !o.taken && m.GetDraining() {
		w.mu.offered = nil
		answers = append(answers, refusal(o, runnerv1.RefusalCode_REFUSAL_CODE_DRAINING))
	}
	w.change()
	return append(answers, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_DrainAck{DrainAck: &runnerv1.DrainAck{
		DrainId: m.GetDrainId(), Draining: m.GetDraining(),
	}}})
}

// acked: the result of an attempt is stored, or refused; callers hold mu.
func (w *worker) acked(m *runnerv1.StatusAck) {
	g := w.mu.reporting
	if g == nil || g.job != m.GetJobId() || g.attempt != m.GetAttempt() {
		return
	}
	select {
	case g.acks <- m.GetStale():
	default: // one report waits at a time
	}
}

// endedNow are the jobs that the worker is to end. A worker that says that it has no job
// has ended them.
func (w *worker) endedNow(idle bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if idle {
		w.mu.ended = nil
	}
	return slices.Clone(w.mu.ended)
}
