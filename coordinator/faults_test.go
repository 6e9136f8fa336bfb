package coordinator_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// running has a worker fetch a job, and waits until the store knows that it runs.
func (p *plane) running(w *worker, id string) {
	p.t.Helper()
	p.submit(w.pool, id)
	require.Equal(p.t, id, w.fetch(p).GetId())
	p.waitFor(id, in(spillway.Running))
}

func TestResultsThatAreNotTaken(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	w, other := p.worker("w1", "gpu"), p.worker("w2", "gpu")
	p.running(w, "a")
	before := p.record("a")
	requireStatus(t, w.report(p, "nothing", 0), codes.NotFound, "no job nothing")
	requireStatus(t, other.report(p, "a", 0), codes.FailedPrecondition, "job a (running) was not given to runner w2")
	other.none(p)
	requireStatus(t, other.report(p, "a", 0), codes.FailedPrecondition, "job a (running) was not given to runner w2")
	p.submit("gpu", "b")
	requireStatus(t, w.report(p, "b", 0), codes.FailedPrecondition, "job b (", "was not given to runner w1")
	for part, req := range map[string]*pb.ReportJobResultRequest{
		"attempt -1":             {JobId: "a", Attempt: -1},
		"job_id must be":         {JobId: "a b"},
		"job_id must be 1":       {},
		"success with exit_code": {JobId: "a", Success: true, ExitCode: 1},
	} {
		req.RunnerId = "w1"
		_, err := p.ReportJobResult(as("workers"), req)
		requireStatus(t, err, codes.InvalidArgument, part)
	}
	_, err := p.ReportJobResult(as("workers"), &pb.ReportJobResultRequest{JobId: "a", RunnerId: "w1", Attempt: 2, Success: true})
	requireStatus(t, err, codes.FailedPrecondition, "attempt 2 of job a is over: attempt 1 counts")
	require.Equal(t, before, p.record("a"), "nothing of this changed the job")

	require.NoError(t, w.report(p, "a", 0))
	require.NoError(t, w.report(p, "a", 0), "repeated after a lost answer")
	requireStatus(t, w.report(p, "a", 1), codes.FailedPrecondition, "job a has ended already: completed")
	requireStatus(t, other.report(p, "a", 0), codes.FailedPrecondition, "has ended already")
	require.Equal(t, spillway.Completed, p.record("a").State)
}

// slow is a store that answers for the ends of jobs when it is let.
type slow struct {
	*store.Store
	let chan struct{}
}

func (s *slow) Apply(ctx context.Context, transitions []store.Transition) ([]error, error) {
	errs, err := s.Store.Apply(ctx, transitions)
	if slices.ContainsFunc(transitions, func(t store.Transition) bool { return t.To.Terminal() }) {
		<-s.let
	}
	return errs, err
}

// Who has given up waiting for the answer reports again, and is told what is so.
func TestAResultThatWasStoredMeanwhileIsReportedAgain(t *testing.T) {
	let := make(chan struct{})
	p := start(t, settings{wrapped: func(s *store.Store) session.Store { return &slow{s, let} }})
	answer := sync.OnceFunc(func() { close(let) })
	t.Cleanup(answer)
	p.register("gpu")
	w := p.worker("w1", "gpu")
	p.running(w, "a")
	ctx, cancel := context.WithCancel(as("workers"))
	reported := make(chan error, 1)
	report := &pb.ReportJobResultRequest{JobId: "a", RunnerId: "w1", Success: true, Stdout: "ran a", Stderr: "by w1"}
	go func() {
		_, err := p.ReportJobResult(ctx, report)
		reported <- err
	}()
	p.waitFor("a", in(spillway.Completed))
	cancel()
	requireStatus(t, <-reported, codes.Canceled)
	answer()
	p.machine("w1", func(m *router.Machine) bool { return m.InUse() == 0 })
	require.NoError(t, w.report(p, "a", 0))
	requireStatus(t, w.report(p, "a", 1), codes.FailedPrecondition, "job a has ended already: completed")
}

func TestACanceledJobIsEnded(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	w := p.worker("w1", "gpu")
	p.running(w, "a")
	_, err := p.store.Cancel(t.Context(), []spillway.JobID{"a"}, "not wanted")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(w.beat(p, 1).GetEndedJobIds()) == 1 }, patience, tick)
	require.Equal(t, []string{"a"}, w.beat(p, 1).GetEndedJobIds(), "until it is ended")
	requireStatus(t, w.report(p, "a", 0), codes.FailedPrecondition, "job a has ended already: canceled")
	require.Empty(t, w.beat(p, 0).GetEndedJobIds())
	require.Empty(t, w.beat(p, 1).GetEndedJobIds())
	w.none(p)
	p.submit("gpu", "b")
	require.Equal(t, "b", w.fetch(p).GetId())
}

// A worker that dies: its job is another's with the next attempt.
func TestTheJobOfASilentWorkerGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu")
		w := p.worker("w1", "gpu")
		p.running(w, "a")
		other := p.worker("w2", "gpu")
		got := other.fetch(p)
		require.Equal(t, "a", got.GetId())
		require.Equal(t, int32(2), got.GetAttempt())
		r := p.waitFor("a", in(spillway.Running))
		require.Equal(t, []any{1, "worker:w2"}, []any{r.Lost, string(r.Machine)})
		// The dead one was only slow.
		requireStatus(t, w.report(p, "a", 0), codes.FailedPrecondition, "attempt 1 of job a is over: attempt 2 counts")
		require.NoError(t, other.report(p, "a", 0))
		require.Equal(t, 2, p.record("a").Attempt)
		p.seen.mu.Lock()
		defer p.seen.mu.Unlock()
		require.Equal(t, "w1", p.seen.detached[0].Runner)
		require.Equal(t, "a", p.seen.detached[0].Lost)
	})
}

// It stays the worker's for as long as it says so, whatever it also says.
func TestABusyWorkerKeepsItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu")
		w := p.worker("w1", "gpu")
		p.running(w, "a")
		for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
			w.none(p) // which says that it is idle
			w.beat(p, 1)
		}
		require.NoError(t, w.report(p, "a", 0))
		require.Equal(t, 1, p.record("a").Attempt)
	})
}

// The answer with the job got lost, or the worker's process was started anew.
func TestAWorkerWithoutItsJobGetsTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu")
		w := p.worker("w1", "gpu")
		p.running(w, "a")
		got := w.fetch(p)
		require.Equal(t, "a", got.GetId())
		require.Equal(t, int32(2), got.GetAttempt())
		require.NoError(t, w.report(p, "a", 0))
		require.Equal(t, 1, p.record("a").Lost)
	})
}

// By heartbeats alone, too.
func TestAnIdleHeartbeatSaysThatTheJobIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu")
		w := p.worker("w1", "gpu")
		p.running(w, "a")
		require.Eventually(t, func() bool {
			w.beat(p, 0)
			return p.record("a").Lost == 1
		}, patience, 50*time.Millisecond)
	})
}

// A job that was offered to a worker which does not come for it is another's soon, and
// no machine was lost by it.
func TestAnOfferIsNotHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu")
		lazy := p.worker("lazy", "gpu")
		lazy.none(p)
		p.submit("gpu", "a")
		p.waitFor("a", in(spillway.Assigned))
		eager := p.worker("eager", "gpu")
		require.Eventually(t, func() bool {
			lazy.beat(p, 0) // it is there, and does not poll
			j, _ := eager.poll(p)
			return j != nil
		}, patience, tick)
		require.Zero(t, p.record("a").Lost)
	})
}

func TestADrainedWorkerGetsNothing(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	w := p.worker("w1", "gpu")
	p.running(w, "a")
	order := router.DrainOrder{Machine: "worker:w1", On: true, Terminate: true, Reason: "not needed"}
	require.NoError(t, p.store.OrderDrain(t.Context(), "gpu", []router.DrainOrder{order}))
	require.Eventually(t, func() bool { return w.beat(p, 1).GetDraining() }, patience, tick)
	resp := w.beat(p, 1)
	require.True(t, resp.GetTerminate())
	require.Equal(t, "not needed", resp.GetReason())
	p.machine("w1", func(m *router.Machine) bool { return !m.DrainAckedAt.IsZero() && m.HeartbeatAt.After(m.DrainAckedAt) })
	require.NoError(t, w.report(p, "a", 0))
	p.submit("gpu", "b")
	require.Contains(t, w.none(p), "draining (not needed): leave")
	require.Equal(t, spillway.Pending, p.record("b").State)
	p.machine("w1", func(m *router.Machine) bool { return m.Draining && m.StoppingSince.IsZero() && m.InUse() == 0 })

	// And taken back.
	require.NoError(t, p.store.OrderDrain(t.Context(), "gpu", []router.DrainOrder{{Machine: "worker:w1"}}))
	require.Equal(t, "b", w.fetch(p).GetId())
}

// A worker that wants to leave is given nothing more.
func TestAWorkerDrainsItself(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	w := p.worker("w1", "gpu")
	w.none(p)
	_, err := p.SendHeartbeat(as(w.by), &pb.SendHeartbeatRequest{RunnerId: "w1", PoolName: "gpu", Status: pb.RunnerStatus_RUNNER_STATUS_IDLE, Draining: true})
	require.NoError(t, err)
	p.machine("w1", func(m *router.Machine) bool { return !m.StoppingSince.IsZero() })
	p.submit("gpu", "a")
	require.Equal(t, "a", p.worker("w2", "gpu").fetch(p).GetId())
}

func TestAWorkerMovesToAnotherPool(t *testing.T) {
	p := start(t, settings{})
	p.register("one")
	p.register("two")
	w, moved := p.worker("w1", "one"), p.worker("w1", "two")
	p.running(w, "a")
	_, err := moved.poll(p)
	requireStatus(t, err, codes.FailedPrecondition, "runner w1 has job a of pool one: report its result first")
	require.NoError(t, w.report(p, "a", 0))
	p.submit("one", "b")
	p.waitFor("b", in(spillway.Assigned)) // offered to it, and never fetched
	require.Eventually(t, func() bool {
		_, err := moved.poll(p)
		return status.Code(err) == codes.NotFound
	}, 2*patience, tick)
	p.submit("two", "c")
	require.Equal(t, "c", moved.fetch(p).GetId())
	require.Equal(t, "b", p.worker("w2", "one").fetch(p).GetId())
}

// replicas are two control planes over one store.
func replicas(t *testing.T, change func(settings) settings) (a, b *plane) {
	t.Helper()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	a = start(t, change(settings{store: s, replica: "one"}))
	b = start(t, change(settings{store: s, replica: "two"}))
	return a, b
}

func same(s settings) settings { return s }

func TestCallsMayGoToAnyReplica(t *testing.T) {
	a, b := replicas(t, same)
	a.register("gpu")
	w := a.worker("w1", "gpu")
	w.none(b) // knows of the pool
	a.running(w, "1")
	w.beat(b, 1)
	require.NoError(t, w.report(b, "1", 0))
	require.NoError(t, w.report(a, "1", 0), "again, elsewhere")
	a.running(w, "2")
	requireStatus(t, b.worker("w2", "gpu").report(b, "2", 0), codes.FailedPrecondition, "was not given to runner w2")
	require.NoError(t, w.report(b, "2", 3)) // which the worker has not called since
	require.Equal(t, spillway.Failed, a.record("2").State)
	stranger := &worker{t: t, id: "w1", pool: "gpu", by: "somebody"}
	a.running(w, "3")
	b.stop()
	requireStatus(t, stranger.report(a, "3", 0), codes.PermissionDenied)
	require.NoError(t, w.report(a, "3", 0))
}

// One worker has one place, wherever it calls: what it is offered at a replica that it
// has left does not wait for long.
func TestAWorkerThatMovedLeavesNoJobBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(t, func(s settings) settings {
			s.timing.Timeouts.Assigned = time.Hour // an offer stands for longer than anybody waits here
			return s
		})
		a.register("gpu")
		w := a.worker("w1", "gpu")
		w.none(a)
		a.submit("gpu", "1")
		a.waitFor("1", in(spillway.Assigned))
		b.submit("gpu", "2")
		var ran []string
		for range 2 { // it calls here now
			got := w.fetch(b).GetId()
			require.NoError(t, w.report(b, got, 0))
			ran = append(ran, got)
		}
		require.ElementsMatch(t, []string{"1", "2"}, ran)
		for _, id := range ran {
			require.Equal(t, []any{spillway.Completed, 0}, []any{a.record(id).State, a.record(id).Lost})
		}
	})
}

// A replica that goes away leaves its workers what they have.
func TestAJobOutlivesItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(t, brief)
		a.register("gpu")
		w := a.worker("w1", "gpu")
		a.running(w, "1")
		a.submit("gpu", "2")
		a.stop()
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			w.beat(b, 1)
			time.Sleep(tick) // a worker's own rhythm
		}
		require.Equal(t, 1, b.record("1").Attempt)
		require.NoError(t, w.report(b, "1", 0))
		require.Equal(t, "2", w.fetch(b).GetId())
	})
}

// Heartbeats at one replica, polls and results at the other: the job is the worker's,
// though the one that gave it out hears nothing of it.
func TestHeartbeatsAtAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(t, brief)
		a.register("gpu")
		w := a.worker("w1", "gpu")
		a.running(w, "1")
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
			w.beat(b, 1)
			time.Sleep(tick) // a worker's own rhythm
		}
		require.Zero(t, a.Workers())
		r := a.record("1")
		require.Equal(t, []any{spillway.Running, 1, 0}, []any{r.State, r.Attempt, r.Lost})
		require.NoError(t, w.report(a, "1", 0))
	})
}

// A pool is known at once everywhere, and after everything was stopped.
func TestRegisteredPoolsAndQueuesStay(t *testing.T) {
	a, b := replicas(t, same)
	a.register("gpu", "cuda")
	_, err := b.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "gpu"})
	requireStatus(t, err, codes.AlreadyExists)
	b.submit("gpu", "1")
	a.stop()
	b.stop()
	c := start(t, settings{store: a.store, replica: "three"})
	require.Equal(t, "1", c.worker("w1", "gpu").fetch(c).GetId())
}

func TestAStoppedReplicaSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings{options: coordinator.Options{PollWait: coordinator.MaxPollWait}, timing: session.Options{SilentAfter: 4 * coordinator.MaxPollWait}})
		w := p.worker("w1", "linux")
		ended := make(chan error, 1)
		go func() {
			_, err := w.poll(p)
			ended <- err
		}()
		p.machine("w1", func(m *router.Machine) bool { return m.Connected })
		p.stop()
		requireStatus(t, <-ended, codes.Unavailable)
		_, err := w.poll(p)
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	})
}

// A pool that was registered where the name was free is left out where it is not; the
// others are there.
func TestANameThatIsTakenElsewhereHarmsNoOtherPool(t *testing.T) {
	a, b := replicas(t, same)
	for _, name := range []string{"of-a-cell", "linux"} {
		_, err := a.store.CreateSetting(t.Context(), "pool", name, []byte("{}"))
		require.NoError(t, err)
	}
	_, err := a.store.CreateSetting(t.Context(), "pool", "newer", []byte("of a newer version"))
	require.NoError(t, err)
	a.register("gpu")
	b.submit("gpu", "1")
	require.Equal(t, "1", b.worker("w1", "gpu").fetch(b).GetId())
	_, err = b.worker("w1", "of-a-cell").poll(b)
	requireStatus(t, err, codes.NotFound, "pool not found: of-a-cell; there are gpu, linux")
}
