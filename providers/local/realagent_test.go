package local_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// router takes any machine in, gives it one job, acknowledges what becomes of it, and
// passes on what the machine says.
type router struct {
	runnerv1.UnimplementedRunnerServiceServer
	script string
	said   chan *runnerv1.RunnerMessage
}

func startRouter(t *testing.T, script string) (r *router, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r = &router{script: script, said: make(chan *runnerv1.RunnerMessage, 1000)}
	server := grpc.NewServer()
	runnerv1.RegisterRunnerServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r, listener.Addr().String()
}

func (r *router) Connect(s runnerv1.RunnerService_ConnectServer) error {
	for first := true; ; first = false {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		select {
		case r.said <- m:
		default: // nobody listens any more, and the agent is not to wait for that
		}
		if status := m.GetJobStatus(); status != nil {
			ack := &runnerv1.StatusAck{JobId: status.GetJobId(), Attempt: status.GetAttempt()}
			if err := s.Send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_StatusAck{StatusAck: ack}}); err != nil {
				return err
			}
		}
		if !first {
			continue
		}
		for _, answer := range []*runnerv1.RouterMessage{
			{Message: &runnerv1.RouterMessage_Registered{Registered: &runnerv1.Registered{Pool: "linux", HeartbeatEvery: durationpb.New(20 * time.Millisecond)}}},
			{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{Job: &typesv1.Job{Id: "1", Script: r.script}, Attempt: 1}}},
		} {
			if err := s.Send(answer); err != nil {
				return err
			}
		}
	}
}

func (r *router) wait(t *testing.T, what func(*runnerv1.RunnerMessage) bool) *runnerv1.RunnerMessage {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case m := <-r.said:
			if what(m) {
				return m
			}
		case <-timeout:
			require.FailNow(t, "no machine said it")
		}
	}
}

// register waits for the next machine's registration.
func (r *router) register(t *testing.T) *runnerv1.Register {
	t.Helper()
	return r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister() != nil }).GetRegister()
}

// The whole way: an instance is asked for, its agent registers under the
// instance's id and runs a job; removing it has the agent drain, and neither a
// process nor a file of it is left.
func TestRealAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the agent")
	}
	jobPID, done := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "done")
	r, address := startRouter(t, "setsid sleep 1000 >/dev/null 2>&1 & echo $! >"+jobPID+".new; mv "+jobPID+".new "+jobPID+
		"; until test -e "+done+"; do sleep 0.05; done")
	c := settings(t, build(t, "spillway-agent", "github.com/spillway-ci/spillway/cmd/agent"))
	c["router"], c["stop_grace"] = address, "1m"
	p := configured(t, c)
	set(t, p, 1, 0)
	id := awaitRunning(t, p, 1)[0].ID
	register := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister() != nil }).GetRegister()
	require.Equal(t, id, register.GetInstanceId())
	require.EqualValues(t, 3, register.GetCapacity())
	pid := stubs{filepath.Dir(jobPID)}.pid(t, filepath.Base(jobPID))

	results, err := p.Remove(t.Context(), "linux", []string{id}, "r")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.Removed, results[0].Outcome)
	r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetHeartbeat().GetDraining() })
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	awaitRunning(t, p, 0)
	requireGone(t, pid)
	left, err := os.ReadDir(c["work_dir"].(string))
	require.NoError(t, err)
	require.Empty(t, left)
}
