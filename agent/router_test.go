package agent_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/internal/peertest"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

const (
	token = "runner-token-for-tests"
	// within bounds what happens at once on an idle machine.
	within = 80 * time.Second
	// beatEvery is short, so that a heartbeat is never waited for long.
	beatEvery = 20 * time.Millisecond
)

// router is the router's side of the stream, played by the test.
type router struct {
	runnerv1.UnimplementedRunnerServiceServer
	address string
	server  *grpc.Server
	streams chan *stream
}

func startRouter(t *testing.T) *router {
	t.Helper()
	r := &router{streams: make(chan *stream, 16)}
	r.listen(t, "127.0.0.1:0")
	return r
}

// startRouterToReturn is startRouter for a test that has it go away and come back: its port
// is none that an outgoing connection could have taken by then.
func startRouterToReturn(t *testing.T) *router {
	t.Helper()
	r := &router{address: peertest.FreeAddress(t), streams: make(chan *stream, 16)}
	r.listen(t, r.address)
	return r
}

func (r *router) listen(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	r.address = listener.Addr().String()
	r.server = grpc.NewServer(
		grpc.MaxRecvMsgSize(agent.MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second}),
	)
	runnerv1.RegisterRunnerServiceServer(r.server, r)
	go func() { _ = r.server.Serve(listener) }()
	t.Cleanup(r.server.Stop)
}

// Connect hands the stream to the test and lasts until the test ends it.
func (r *router) Connect(server runnerv1.RunnerService_ConnectServer) error {
	if got := metadata.ValueFromIncomingContext(server.Context(), "authorization"); len(got) != 1 || got[0] != "Bearer "+token {
		return status.Error(codes.Unauthenticated, "unknown token")
	}
	s := &stream{server: server, from: make(chan *runnerv1.RunnerMessage, 1000), end: make(chan error, 1), gone: make(chan struct{})}
	r.streams <- s
	go func() {
		defer close(s.gone)
		for {
			m, err := server.Recv()
			if err != nil {
				return
			}
			s.from <- m
		}
	}()
	select {
	case err := <-s.end:
		return err
	case <-s.gone:
		return nil
	}
}

// stream is one conversation.
type stream struct {
	server runnerv1.RunnerService_ConnectServer
	from   chan *runnerv1.RunnerMessage
	end    chan error
	gone   chan struct{} // closed when the agent ended it, or the connection broke
}

// accept waits for the next stream and its Register, and answers it.
func (r *router) accept(t *testing.T, superseded ...*runnerv1.RunningJob) (*stream, *runnerv1.Register) {
	t.Helper()
	s, register := r.acceptSilently(t)
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Registered{Registered: &runnerv1.Registered{
		Pool: "linux", HeartbeatEvery: durationpb.New(beatEvery), Superseded: superseded,
	}}})
	return s, register
}

func (r *router) acceptSilently(t *testing.T) (*stream, *runnerv1.Register) {
	t.Helper()
	select {
	case s := <-r.streams:
		m := s.next(t)
		require.NotNil(t, m.GetRegister(), "the first message must be Register: %v", m)
		return s, m.GetRegister()
	case <-time.After(within):
		require.FailNow(t, "no stream")
		return nil, nil
	}
}

func (s *stream) send(t *testing.T, m *runnerv1.RouterMessage) {
	t.Helper()
	require.NoError(t, s.server.Send(m))
}

func (s *stream) next(t *testing.T) *runnerv1.RunnerMessage {
	t.Helper()
	select {
	case m := <-s.from:
		return m
	case <-time.After(within):
		require.FailNow(t, "the agent says nothing")
		return nil
	}
}

// until returns the first message that pick wants; all before it are dropped.
func until[T any](t *testing.T, s *stream, pick func(*runnerv1.RunnerMessage) (T, bool)) T {
	t.Helper()
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		if found, ok := pick(s.next(t)); ok {
			return found
		}
	}
	require.FailNow(t, "the agent never said it")
	panic("unreachable")
}

// resultOf waits for the result of a job, past those of others that are said again.
func (s *stream) resultOf(t *testing.T, id string) *runnerv1.JobStatus {
	t.Helper()
	return until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.JobStatus, bool) {
		return m.GetJobStatus(), m.GetJobStatus().GetResult() != nil && m.GetJobStatus().GetJobId() == id
	})
}

func (s *stream) result(t *testing.T) *runnerv1.JobStatus {
	t.Helper()
	return until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.JobStatus, bool) {
		return m.GetJobStatus(), m.GetJobStatus().GetResult() != nil
	})
}

// begun waits for the acceptance and then the start of a job.
func (s *stream) begun(t *testing.T) {
	t.Helper()
	until(t, s, func(m *runnerv1.RunnerMessage) (any, bool) { return nil, m.GetJobAccepted() != nil })
	until(t, s, func(m *runnerv1.RunnerMessage) (any, bool) {
		return nil, m.GetJobStatus() != nil && m.GetJobStatus().GetResult() == nil
	})
}

func (s *stream) refusal(t *testing.T) *runnerv1.JobRefused {
	t.Helper()
	return until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.JobRefused, bool) {
		return m.GetJobRefused(), m.GetJobRefused() != nil
	})
}

func (s *stream) heartbeat(t *testing.T, want func(*runnerv1.Heartbeat) bool) *runnerv1.Heartbeat {
	t.Helper()
	return until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.Heartbeat, bool) {
		return m.GetHeartbeat(), m.GetHeartbeat() != nil && want(m.GetHeartbeat())
	})
}

func (s *stream) requireGone(t *testing.T) {
	t.Helper()
	select {
	case <-s.gone:
	case <-time.After(within):
		require.FailNow(t, "the stream is still open")
	}
}

func (s *stream) assign(t *testing.T, id string, attempt int32, job *typesv1.Job) {
	t.Helper()
	job.Id = id
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{Job: job, Attempt: attempt}}})
}

func (s *stream) ack(t *testing.T, id string, attempt int32, stale bool) {
	t.Helper()
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_StatusAck{StatusAck: &runnerv1.StatusAck{JobId: id, Attempt: attempt, Stale: stale}}})
}

func (s *stream) cancel(t *testing.T, id string, attempt int32, reason string) {
	t.Helper()
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_CancelJob{CancelJob: &runnerv1.CancelJob{JobId: id, Attempt: attempt, Reason: reason}}})
}

// drain sends the order and returns its acknowledgement and the message right
// behind it.
func (s *stream) drain(t *testing.T, d *runnerv1.Drain) (*runnerv1.DrainAck, *runnerv1.RunnerMessage) {
	t.Helper()
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: d}})
	ack := until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.DrainAck, bool) {
		return m.GetDrainAck(), m.GetDrainAck() != nil
	})
	return ack, s.next(t)
}

// machine is a running agent.
type machine struct {
	options agent.Options
	drain   chan struct{}
	cut     context.CancelCauseFunc
	ended   chan error
}

var errCut = errors.New("cut by the test")

func startAgent(t *testing.T, r *router, change ...func(*agent.Options)) *machine {
	t.Helper()
	ctx, cut := context.WithCancelCause(context.WithoutCancel(t.Context()))
	m := &machine{drain: make(chan struct{}), cut: cut, ended: make(chan error, 1)}
	m.options = agent.Options{
		Router: r.address, Token: agent.StaticToken(token), MachineID: "machine-1", InstanceID: "instance-1",
		Capacity: 2, Version: "1.2.3", WorkDir: t.TempDir(), Drain: m.drain, StopGrace: 5 * time.Second,
	}
	for _, c := range change {
		c(&m.options)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.ended <- agent.Run(ctx, m.options)
	}()
	t.Cleanup(func() {
		cut(errCut)
		<-done
	})
	return m
}

func (m *machine) requireEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.ended:
		return err
	case <-time.After(within):
		require.FailNow(t, "the agent is still there")
		return nil
	}
}
