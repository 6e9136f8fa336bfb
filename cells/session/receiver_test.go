package session_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/cells/session"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	routersession "github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

const (
	within = 20 * time.Second
	every  = 5 * time.Millisecond
)

// inItsTime brings the clock of a bubble, which begins in 2000, to times that a store keeps.
func inItsTime() { time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))) }

func openStore(t *testing.T) *store.Store {
	t.Helper()
	inItsTime()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// peerCell is a replica of the cell that takes jobs.
type peerCell struct {
	t        *testing.T
	store    *store.Store
	receiver *session.Receiver
	client   cellsv1.CellServiceClient
	stop     func()

	listener *bufconn.Listener
	router   atomic.Pointer[routersession.Dispatcher] // nil: the test plays it

	mu struct {
		sync.Mutex
		ended []spillway.JobID // that machines were told to end
		told  []string         // by events
	}
}

// startPeer starts one on a store; who is who calls, nil as without an access section. Its
// times are so short that a busy machine is slower: it is for a bubble, where only who waits
// lets time pass.
func startPeer(t *testing.T, s *store.Store, replica string, who *access.Identity) *peerCell {
	t.Helper()
	return startPeerOver(t, s, s, replica, who)
}

// startPeerOver starts one that reaches its store by a way of its own.
func startPeerOver(t *testing.T, s *store.Store, way session.ReceiverStore, replica string, who *access.Identity) *peerCell {
	t.Helper()
	p := &peerCell{t: t, store: s}
	note := func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.told = append(p.mu.told, text)
	}
	r, err := session.NewReceiver(way, nil, session.ReceiverOptions{
		Cell: "b", Region: "there", Replica: replica, EndWithin: 3 * time.Second,
		Offers: func() []cells.Offer {
			return []cells.Offer{{Capability: spillway.Capability{Tags: []string{"linux"}}, Free: 2, CostPerJob: 4}}
		},
		EndJobs: func(_ context.Context, ids []spillway.JobID, _ string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.mu.ended = append(p.mu.ended, ids...)
			if d := p.router.Load(); d != nil {
				d.EndJobs(t.Context(), ids, "ended on its machine: its cell does not hold it any more")
			}
		},
		Events: session.Events{
			OriginLinked: func(e session.OriginLinked) { note(e.String()) },
			JobEnded:     func(e session.JobEnded) { note(e.String()) },
			JobTaken:     func(e session.JobTaken) { note(e.Why) },
			Trouble:      func(e session.Trouble) { note(e.String()) },
		},
	})
	require.NoError(t, err)
	p.receiver = r
	var options []grpc.ServerOption
	if who != nil {
		options = append(options, grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, known{ss, access.With(ss.Context(), *who)})
		}))
	}
	lis, server := bufconn.Listen(1<<20), grpc.NewServer(options...)
	p.listener = lis
	cellsv1.RegisterCellServiceServer(server, r)
	go func() { _ = server.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:cell", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	p.client = cellsv1.NewCellServiceClient(conn)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait(); server.Stop(); _ = conn.Close() })
	t.Cleanup(p.stop)
	return p
}

type known struct {
	grpc.ServerStream
	ctx context.Context
}

func (k known) Context() context.Context { return k.ctx }

// routes gives the cell a router.
func (p *peerCell) routes() *routersession.Dispatcher {
	p.t.Helper()
	d, err := routersession.NewDispatcher(p.store, routersession.Options{Replica: "b-1", Pools: []spillway.Pool{
		{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 5},
	}})
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	p.t.Cleanup(func() { cancel(); running.Wait() })
	p.router.Store(d)
	return d
}

func resultOf(r *spillway.JobResult) *typesv1.JobResult {
	state := map[spillway.JobState]typesv1.JobState{
		spillway.Completed: typesv1.JobState_JOB_STATE_COMPLETED, spillway.Failed: typesv1.JobState_JOB_STATE_FAILED, spillway.Canceled: typesv1.JobState_JOB_STATE_CANCELED,
	}[r.State]
	return &typesv1.JobResult{State: state, Reason: string(r.Reason), Detail: r.Detail, ExitCode: int32(r.ExitCode), Output: r.Output}
}

func (p *peerCell) toldToEnd() []spillway.JobID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]spillway.JobID(nil), p.mu.ended...)
}

// originLink is a link of an origin that the test plays.
type originLink struct {
	t      *testing.T
	stream cellsv1.CellService_LinkClient
	close  context.CancelFunc
	from   chan *cellsv1.PeerMessage
	err    chan error
	beat   uint64
	kept   []*cellsv1.PeerMessage // what was said before the first beat
}

func (p *peerCell) dial() *originLink {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	stream, err := p.client.Link(ctx)
	require.NoError(p.t, err)
	l := &originLink{t: p.t, stream: stream, close: cancel, from: make(chan *cellsv1.PeerMessage, 1000), err: make(chan error, 1)}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				l.err <- err
				return
			}
			l.from <- m
		}
	}()
	return l
}

func (l *originLink) hello(epoch uint64) {
	l.t.Helper()
	require.NoError(l.t, l.stream.Send(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Hello{Hello: &cellsv1.Hello{
		Cell: "a", Region: "here", Epoch: epoch, Lease: durationpb.New(3 * time.Second),
	}}}))
}

// welcomed waits for the welcome and the first beat.
func (l *originLink) welcomed() *cellsv1.Welcome {
	l.t.Helper()
	w := l.next().GetWelcome()
	require.NotNil(l.t, w)
	var said []*cellsv1.PeerMessage
	for l.beat == 0 {
		said = append(said, l.next())
	}
	l.kept = said
	return w
}

func (l *originLink) next() *cellsv1.PeerMessage {
	l.t.Helper()
	if len(l.kept) > 0 {
		m := l.kept[0]
		l.kept = l.kept[1:]
		return m
	}
	select {
	case m := <-l.from:
		if b := m.GetBeat(); b != nil {
			l.beat = b.GetNumber()
		}
		return m
	case err := <-l.err:
		require.NoError(l.t, err)
	case <-time.After(within):
		require.Fail(l.t, "nothing was said")
	}
	return nil
}

// report waits for what becomes of an attempt; each beat is answered with the names.
func (l *originLink) report(state cellsv1.AttemptState, named ...*cellsv1.Attempt) *cellsv1.Report {
	l.t.Helper()
	for {
		m := l.next()
		if b := m.GetBeat(); b != nil && len(named) > 0 {
			l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Renew{Renew: &cellsv1.Renew{Beat: b.GetNumber(), Covered: named}}})
		}
		if r := m.GetReport(); r != nil && r.GetState() == state {
			return r
		}
	}
}

func (l *originLink) say(m *cellsv1.OriginMessage) { require.NoError(l.t, l.stream.Send(m)) }

const canary = "env-canary-0123456789"

func (l *originLink) spill(id string) {
	l.t.Helper()
	l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Spill{Spill: &cellsv1.Spill{Job: jobNamed(id), Attempt: 1, Beat: l.beat}}})
}

// given is spill, until the job is taken.
func (l *originLink) given(id string) {
	l.t.Helper()
	l.spill(id)
	l.report(cellsv1.AttemptState_ATTEMPT_STATE_TAKEN, att(id))
}

// refused is why the peer doesn't welcome us.
func (l *originLink) refused() error {
	l.t.Helper()
	select {
	case err := <-l.err:
		return err
	case m := <-l.from:
		require.Fail(l.t, "it was welcomed", "%v", m)
		return nil
	}
}

func jobNamed(id string) *typesv1.Job {
	return &typesv1.Job{
		Id: id, Script: "echo " + canary, Env: map[string]string{"SECRET": canary}, Requirement: &typesv1.Requirement{Tags: []string{"linux"}}, MaxAttempts: 3,
	}
}

func att(id string) *cellsv1.Attempt { return &cellsv1.Attempt{JobId: id, Attempt: 1} }

// claimed has a machine take the job, as the router of the cell would.
func (p *peerCell) claimed(local spillway.JobID) router.JobRef {
	p.t.Helper()
	record, err := p.store.Get(p.t.Context(), local)
	require.NoError(p.t, err)
	got, err := p.store.Claim(p.t.Context(), "b-1", []router.ClaimWant{{Class: record.Job.Requirement.Class(), Pool: "linux", N: 1}}, time.Minute)
	require.NoError(p.t, err)
	require.Len(p.t, got, 1)
	require.Equal(p.t, spillway.CellOrigin, got[0].Job.Requirement.Origin)
	require.True(p.t, got[0].Job.NoRetry, "whether it is tried again, its cell says")
	p.apply(got[0].Ref, spillway.Running, spillway.JobResult{})
	return got[0].Ref
}

func (p *peerCell) apply(ref router.JobRef, to spillway.JobState, result spillway.JobResult) {
	p.t.Helper()
	errs, err := p.store.Apply(p.t.Context(), []store.Transition{{Ref: ref, To: to, Pool: "linux", Machine: "m", Result: result}})
	require.NoError(p.t, err)
	require.NoError(p.t, errs[0])
}

func TestAJobIsTakenAndItsResultComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		l := p.dial()
		l.hello(7)
		w := l.welcomed()
		require.Equal(t, "b", w.GetCell())
		require.Equal(t, 3*time.Second, w.GetEndWithin().AsDuration())
		l.given("1")
		ref := p.claimed("cell/a/1/1")
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_RUNNING, att("1"))
		p.apply(ref, spillway.Failed, spillway.JobResult{State: spillway.Failed, Reason: spillway.ScriptFailure, ExitCode: 3, Output: []byte("oh")})
		r := l.report(cellsv1.AttemptState_ATTEMPT_STATE_ENDED, att("1"))
		require.EqualValues(t, 3, r.GetResult().GetExitCode())
		require.Equal(t, "oh", string(r.GetResult().GetOutput()))

		// Until it is confirmed it is said again over each new link.
		l.close()
		l = p.dial()
		l.hello(7)
		require.Len(t, l.welcomed().GetHeld(), 1)
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_ENDED)
		book, err := p.store.Settings(t.Context(), "cells-in")
		require.NoError(t, err)
		require.Len(t, book, 1)
		l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Ack{Ack: &cellsv1.Ack{JobId: "1", Attempt: 1}}})
		require.Eventually(t, func() bool {
			book, err := p.store.Settings(t.Context(), "cells-in")
			return err == nil && len(book) == 0
		}, within, every)

		p.mu.Lock()
		defer p.mu.Unlock()
		require.NotContains(t, strings.Join(p.mu.told, "\n"), canary)
	})
}

func TestAJobThatIsNotRenewedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		l := p.dial()
		l.hello(7)
		l.welcomed()
		l.spill("runs")
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_TAKEN)
		ref := p.claimed("cell/a/runs/1")
		l.spill("waits")
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_TAKEN)
		l.close()
		require.Eventually(t, func() bool { return len(p.toldToEnd()) > 0 }, within, every)
		require.Equal(t, spillway.JobID("cell/a/runs/1"), p.toldToEnd()[0])
		require.Eventually(t, func() bool {
			r, err := p.store.Get(t.Context(), "cell/a/waits/1")
			return err == nil && r.State == spillway.Canceled
		}, within, every, "what has not begun goes out of the queue")
		// The machine confirms: only now is it over.
		l = p.dial()
		l.hello(8)
		require.Len(t, l.welcomed().GetHeld(), 2)
		require.Equal(t, "waits", l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED).GetJobId())
		p.apply(ref, spillway.Canceled, spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled, Detail: "ended on its machine: its cell does not hold it any more"})
		require.Equal(t, "runs", l.report(cellsv1.AttemptState_ATTEMPT_STATE_LOST).GetJobId())
	})
}

// A cancel in the store tells nothing of the machine: it is waited for.
func TestAnEndThatNoMachineHasSaidIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		l := p.dial()
		l.hello(7)
		l.welcomed()
		l.given("1")
		p.claimed("cell/a/1/1")
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_RUNNING, att("1"))
		began := time.Now()
		_, err := p.store.Cancel(t.Context(), []spillway.JobID{"cell/a/1/1"}, "an operator of the other cell")
		require.NoError(t, err)
		require.Contains(t, l.report(cellsv1.AttemptState_ATTEMPT_STATE_LOST, att("1")).GetDetail(), "an operator")
		require.GreaterOrEqual(t, time.Since(began), 3*time.Second, "end_within")
	})
}

func TestTheOriginTakesAJobBackThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		l := p.dial()
		l.hello(7)
		l.welcomed()
		l.given("1")
		l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Cancel{Cancel: &cellsv1.Cancel{JobId: "1", Attempt: 1, TakeBack: true}}})
		l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED, att("1"))
	})
}

// The control plane that took a job is gone; another one answers for it.
func TestAnotherReplicaGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		first, second := startPeer(t, s, "b-1", nil), startPeer(t, s, "b-2", nil)
		l := first.dial()
		l.hello(7)
		l.welcomed()
		l.given("1")
		ref := first.claimed("cell/a/1/1")

		newer := second.dial()
		newer.hello(8)
		require.Equal(t, "1", newer.welcomed().GetHeld()[0].GetJobId())
		newer.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Renew{Renew: &cellsv1.Renew{Beat: newer.beat, Covered: []*cellsv1.Attempt{att("1")}}}})
		go func() { // answers the beats
			for {
				select {
				case m := <-newer.from:
					if b := m.GetBeat(); b != nil {
						_ = newer.stream.Send(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Renew{Renew: &cellsv1.Renew{Beat: b.GetNumber(), Covered: []*cellsv1.Attempt{att("1")}}}})
					}
				case <-t.Context().Done():
					return
				}
			}
		}()
		require.Equal(t, codes.Aborted, status.Code(<-l.err), "the older link is ended")
		older := first.dial()
		older.hello(7)
		require.Equal(t, codes.Aborted, status.Code(<-older.err))
		require.Never(t, func() bool { return len(first.toldToEnd())+len(second.toldToEnd()) > 0 }, 4*time.Second, 50*time.Millisecond, "the job goes on")
		second.apply(ref, spillway.Completed, spillway.JobResult{State: spillway.Completed})
	})
}

func TestBadLinksAreRefusedInASentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(name string) *access.Identity {
			return &access.Identity{Name: name, Via: access.ViaToken, Roles: []access.Role{access.Cell}}
		}
		for _, c := range []struct {
			name  string
			who   *access.Identity
			first *cellsv1.OriginMessage
			code  codes.Code
			says  string
		}{
			{"no hello", nil, &cellsv1.OriginMessage{}, codes.InvalidArgument, "the first message must be a hello"},
			{"no name", nil, helloOf("", 3*time.Second), codes.InvalidArgument, "can't name a cell"},
			{"our own name", nil, helloOf("b", 3*time.Second), codes.FailedPrecondition, "each cell needs a name of its own"},
			{"a short lease", nil, helloOf("a", time.Millisecond), codes.InvalidArgument, "lease 1ms is out of range"},
			{"somebody else", named("c"), helloOf("a", 3*time.Second), codes.PermissionDenied, `"c" may not speak for cell a`},
		} {
			l := startPeer(t, openStore(t), "b-1", c.who).dial()
			l.say(c.first)
			err := <-l.err
			require.Equal(t, c.code, status.Code(err), c.name)
			require.Contains(t, err.Error(), c.says, c.name)
		}
		l := startPeer(t, openStore(t), "b-1", named("a")).dial()
		l.hello(1)
		l.welcomed()
		for name, bad := range map[string]*cellsv1.OriginMessage{
			"nothing":     {},
			"hello again": helloOf("a", 3*time.Second),
		} {
			l := startPeer(t, openStore(t), "b-1", nil).dial()
			l.hello(1)
			l.welcomed()
			l.say(bad)
			for len(l.from) > 0 {
				<-l.from
			}
			require.Equal(t, codes.InvalidArgument, status.Code(<-l.err), name)
		}
	})
}

func helloOf(cell string, lease time.Duration) *cellsv1.OriginMessage {
	return &cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Hello{Hello: &cellsv1.Hello{Cell: cell, Lease: durationpb.New(lease)}}}
}

func TestBadJobsAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		l := p.dial()
		l.hello(7)
		l.welcomed()
		handedOn, invalid := jobNamed("on"), jobNamed("invalid")
		handedOn.Requirement.Origin = spillway.CellOrigin
		invalid.Script = ""
		l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Spill{Spill: &cellsv1.Spill{Job: handedOn, Attempt: 1, Beat: l.beat}}})
		require.Contains(t, l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED).GetDetail(), "a job is handed over once")
		l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Spill{Spill: &cellsv1.Spill{Job: invalid, Attempt: 1, Beat: l.beat}}})
		require.Contains(t, l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED).GetDetail(), "needs a script")
		l.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Spill{Spill: &cellsv1.Spill{Job: jobNamed("late"), Attempt: 1, Beat: l.beat + 1000}}})
		require.Contains(t, l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED).GetDetail(), "too late")
		// Somebody has pushed a job under the id that the attempt would have here.
		_, err := p.store.Push(t.Context(), []spillway.Job{{ID: "cell/a/taken/1", Script: "true"}})
		require.NoError(t, err)
		l.spill("taken")
		require.Contains(t, l.report(cellsv1.AttemptState_ATTEMPT_STATE_REFUSED).GetDetail(), "another job has its id")
		record, err := p.store.Get(t.Context(), "cell/a/taken/1")
		require.NoError(t, err)
		require.Equal(t, spillway.Pending, record.State, "and that job is left alone")
	})
}
