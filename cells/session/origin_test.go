package session_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/cells/session"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	routersession "github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// originCell is a replica of the cell that hands jobs over: it has no machine of its own.
type originCell struct {
	t          *testing.T
	store      *store.Store
	dispatcher *routersession.Dispatcher
	origin     *session.Origin
	stop       func()

	mu struct {
		sync.Mutex
		handed, back []string
	}
}

// localRouter is the router of a replica.
type localRouter struct{ d *routersession.Dispatcher }

func (r localRouter) Attach(ctx context.Context, pool spillway.Pool) session.Conversation {
	return routersession.NewRunners(r.d, nil).Attach(ctx, pool)
}

func (r localRouter) Abandon(ctx context.Context, id spillway.MachineID) { r.d.Abandon(ctx, id) }

func (r localRouter) SetPools(pools []spillway.Pool) error {
	r.d.SetPools(pools)
	return nil
}

func (r localRouter) SetBars(ctx context.Context, peer string, pools []string, bars []router.Bar) {
	r.d.SetBars(ctx, peer, pools, bars)
}

func startOrigin(t *testing.T, s *store.Store, replica string, to *peerCell) *originCell {
	t.Helper()
	return startOriginOver(t, s, replica, to, func(r session.Router) session.Router { return r })
}

// startOriginOver starts one that reaches its router by a way of its own.
func startOriginOver(t *testing.T, s *store.Store, replica string, to *peerCell, way func(session.Router) session.Router) *originCell {
	t.Helper()
	o := &originCell{t: t, store: s}
	var err error
	o.dispatcher, err = routersession.NewDispatcher(s, routersession.Options{Replica: replica})
	require.NoError(t, err)
	o.origin, err = session.NewOrigin(s, way(localRouter{o.dispatcher}), session.OriginOptions{
		Cell: "a", Region: "here", Replica: replica, Lease: 3 * time.Second,
		Peers: []session.PeerOptions{{
			Terms:   cells.Terms{Peer: "b", CostFactor: 1, MaxJobs: 5, StartWithin: time.Minute},
			Address: "passthrough:b", Dial: []grpc.DialOption{
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return to.listener.DialContext(ctx) }),
			},
		}},
		Events: session.Events{
			HandedOver: func(e session.HandedOver) { o.note(&o.mu.handed, e.Ref.String()) },
			CameBack:   func(e session.CameBack) { o.note(&o.mu.back, e.Ref.String()+" "+e.Outcome()) },
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = o.dispatcher.Run(ctx) })
	running.Go(func() { o.origin.Run(ctx) })
	o.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(o.stop)
	return o
}

func (o *originCell) note(to *[]string, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*to = append(*to, text)
}

func (o *originCell) cameBack() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.mu.back...)
}

func (o *originCell) push(ids ...spillway.JobID) {
	o.t.Helper()
	for _, id := range ids {
		_, err := o.store.Push(o.t.Context(), []spillway.Job{{ID: id, Script: "echo " + canary, Env: map[string]string{"SECRET": canary}, Requirement: spillway.Requirement{Tags: []string{"linux"}}}})
		require.NoError(o.t, err)
	}
}

func (o *originCell) waitFor(id spillway.JobID, state spillway.JobState) *spillway.JobRecord {
	o.t.Helper()
	var r spillway.JobRecord
	require.Eventually(o.t, func() bool {
		var err error
		r, err = o.store.Get(o.t.Context(), id)
		return err == nil && r.State == state
	}, within, every, "job %s", id)
	return &r
}

// machineOf runs the peer's jobs: each is accepted, and ends when it is told how.
type machineOf struct {
	t       *testing.T
	a       *routersession.Attached
	assigns chan *runnerv1.Assign
	cancels chan *runnerv1.CancelJob
}

func (p *peerCell) machine(d *routersession.Dispatcher, id string) *machineOf {
	p.t.Helper()
	pool := spillway.Pool{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 5}
	m := &machineOf{t: p.t, assigns: make(chan *runnerv1.Assign, 10), cancels: make(chan *runnerv1.CancelJob, 100)}
	m.a = routersession.NewRunners(d, nil).Attach(p.t.Context(), pool)
	p.t.Cleanup(m.a.Close)
	m.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: id, Capacity: 5}}})
	go func() {
		for {
			said, err := m.a.Recv()
			if err != nil {
				return
			}
			if x := said.GetAssign(); x != nil {
				m.assigns <- x
			}
			if x := said.GetCancelJob(); x != nil {
				m.cancels <- x
			}
		}
	}()
	return m
}

func (m *machineOf) say(msg *runnerv1.RunnerMessage) { require.NoError(m.t, m.a.Send(msg)) }

func (m *machineOf) accept() *runnerv1.Assign {
	m.t.Helper()
	select {
	case a := <-m.assigns:
		m.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: a.GetJob().GetId(), Attempt: a.GetAttempt()}}})
		return a
	case <-time.After(within):
		require.Fail(m.t, "no job came")
		return nil
	}
}

func (m *machineOf) end(a *runnerv1.Assign, result *spillway.JobResult) {
	m.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: a.GetJob().GetId(), Attempt: a.GetAttempt(), Result: resultOf(result),
	}}})
}

func TestAJobGoesThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPeer(t, openStore(t), "b-1", nil)
		m := b.machine(b.routes(), "m")
		a := startOrigin(t, openStore(t), "a-1", b)
		a.push("1", "2")
		first := m.accept()
		second := m.accept()
		require.Equal(t, canary, first.GetJob().GetEnv()["SECRET"])
		require.NotNil(t, first.GetAloneFor())
		byID := map[string]*runnerv1.Assign{first.GetJob().GetId(): first, second.GetJob().GetId(): second}
		require.Contains(t, byID, "cell/a/1/1")
		m.end(byID["cell/a/1/1"], &spillway.JobResult{State: spillway.Completed, Output: []byte("hello")})
		require.Equal(t, "hello", string(a.waitFor("1", spillway.Completed).Result.Output))

		// What is canceled at home ends there.
		a.waitFor("2", spillway.Running)
		_, err := a.store.Cancel(t.Context(), []spillway.JobID{"2"}, "not needed")
		require.NoError(t, err)
		select {
		case c := <-m.cancels:
			require.Equal(t, "cell/a/2/1", c.GetJobId())
			m.end(byID["cell/a/2/1"], &spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled, Detail: c.GetReason()})
		case <-time.After(within):
			require.Fail(t, "the machine was not told")
		}
		require.Eventually(t, func() bool {
			book, err := a.store.Settings(t.Context(), "cells-out:b")
			return err == nil && len(book) == 0
		}, within, every)
		require.Eventually(t, func() bool {
			book, err := b.store.Settings(t.Context(), "cells-in")
			return err == nil && len(book) == 0
		}, within, every)
		require.Equal(t, []string{"1/1 ended"}, a.cameBack())
	})
}

// A replica that loses its turn forgets what it has handed over; the next one has it.
func TestAnotherReplicaHasTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPeer(t, openStore(t), "b-1", nil)
		m := b.machine(b.routes(), "m")
		s := openStore(t)
		first := startOrigin(t, s, "a-1", b)
		second := startOrigin(t, s, "a-2", b)
		first.push("1")
		job := m.accept()
		first.waitFor("1", spillway.Running)
		leader, heir := first, second
		if first.origin.Peers()[0].State != session.StateLinked {
			leader, heir = second, first
		}
		leader.stop()
		require.Eventually(t, func() bool { return heir.origin.Peers()[0].State == session.StateLinked }, within, every)
		m.end(job, &spillway.JobResult{State: spillway.Failed, Reason: spillway.ScriptFailure, ExitCode: 4})
		r := heir.waitFor("1", spillway.Failed)
		require.Equal(t, 4, r.Result.ExitCode)
		require.Equal(t, 1, r.Attempt)
		require.Empty(t, m.cancels, "nobody has ended it in between")
	})
}

// The peer is gone: the job is given back when it is sure that it runs nowhere.
func TestAJobOfAPeerThatIsGoneIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPeer(t, openStore(t), "b-1", nil)
		m := b.machine(b.routes(), "m")
		a := startOrigin(t, openStore(t), "a-1", b)
		a.push("1")
		m.accept()
		a.waitFor("1", spillway.Running)
		b.stop()
		gone := time.Now()
		r := a.waitFor("1", spillway.Pending)
		require.GreaterOrEqual(t, time.Since(gone), 6*time.Second, "lease and end_within")
		require.Equal(t, 1, r.Lost)
		require.Equal(t, []string{"1/1 lost"}, a.cameBack())
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := session.NewOrigin(openStore(t), nil, session.OriginOptions{Cell: "a", Replica: "r", Lease: time.Millisecond})
	require.ErrorContains(t, err, "lease 1ms is out of range")
	_, err = session.NewOrigin(openStore(t), nil, session.OriginOptions{Cell: "a", Replica: "r", Peers: []session.PeerOptions{{Terms: cells.Terms{Peer: "a"}}}})
	require.ErrorContains(t, err, `"a" can't name a peer of a`)
	_, err = session.NewReceiver(openStore(t), nil, session.ReceiverOptions{Cell: "A", Replica: "r"})
	require.ErrorContains(t, err, "need names")
}
