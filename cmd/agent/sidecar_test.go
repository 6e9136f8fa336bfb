package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// drainer is a router that gives orders to drain.
type drainer struct {
	runnerv1.UnimplementedRunnerServiceServer
	*router

	orders chan *runnerv1.Drain
}

func startDrainer(t *testing.T) *drainer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &drainer{
		router: &router{address: listener.Addr().String(), story: make(chan *runnerv1.RunnerMessage, 10_000)},
		orders: make(chan *runnerv1.Drain),
	}
	server := grpc.NewServer()
	runnerv1.RegisterRunnerServiceServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return d
}

func (d *drainer) Connect(s runnerv1.RunnerService_ConnectServer) error {
	registered := &runnerv1.Registered{Pool: "linux", HeartbeatEvery: durationpb.New(20 * time.Millisecond)}
	if err := s.Send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Registered{Registered: registered}}); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-s.Context().Done():
				return
			case o := <-d.orders:
				_ = s.Send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: o}}) // a broken stream shows below
			}
		}
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // it has left
		}
		d.story <- m
	}
}

func (d *drainer) beat(t *testing.T, busy int32, draining bool) {
	t.Helper()
	d.wait(t, func(m *runnerv1.RunnerMessage) bool {
		h := m.GetHeartbeat()
		return h != nil && h.GetBusy() == busy && h.GetDraining() == draining
	})
}

func (d *drainer) acked(t *testing.T, id uint64) bool {
	t.Helper()
	return d.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetDrainAck().GetDrainId() == id }).GetDrainAck().GetDraining()
}

// beside are the flags of a sidecar of r.
func beside(d *drainer, r *sidecartest.Runner, more ...string) []string {
	return append([]string{
		"--router", d.address, "--plaintext", "--instance-id", "i-1", "--sidecar",
		"--runner-metrics", r.Metrics(), "--runner-metrics-every", "100ms",
	}, more...)
}

var withToken = []string{tokenVariable + "=" + token}

// One drain, from the first word to the last: the runner's jobs are told, it is told to
// stop, its last job ends, and so does everything.
func TestB7_ASidecarDrainsItsRunnerAndLeaves(t *testing.T) {
	d, r := startDrainer(t), sidecartest.New(t)
	p := startProcess(t, withToken, beside(d, r, append([]string{"--exec", "--"}, r.Command()...)...)...)
	register := d.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister() != nil }).GetRegister()
	require.Equal(t, "i-1", register.GetInstanceId())
	require.EqualValues(t, 3, register.GetCapacity())
	d.beat(t, 0, false)
	r.Jobs(t, 2)
	d.beat(t, 2, false)

	d.orders <- &runnerv1.Drain{DrainId: 1, Draining: true, Terminate: true, Reason: "scale_in"}
	require.True(t, d.acked(t, 1))
	// What is acknowledged is that it was told; it may hear of that a little later.
	require.Eventually(t, func() bool { return slices.Equal([]string{"start", "QUIT"}, r.Story()) }, within, time.Millisecond)
	d.beat(t, 2, true)
	r.Jobs(t, 0)
	d.beat(t, 0, true)
	p.requireExit(t, exitLeft)
	require.Zero(t, r.PID())
	require.NotContains(t, r.Environment(), token)
}

func TestASidecarWhoseDrainIsTakenBack(t *testing.T) {
	d, r := startDrainer(t), sidecartest.New(t)
	r.Start(t)
	p := startProcess(t, withToken, beside(d, r, "--runner-pid", r.PIDFile(), "--restart-command", r.Shell())...)
	d.beat(t, 0, false)
	d.orders <- &runnerv1.Drain{DrainId: 1, Draining: true}
	require.True(t, d.acked(t, 1))
	d.beat(t, 0, true)
	d.orders <- &runnerv1.Drain{DrainId: 2}
	d.acked(t, 2)
	d.beat(t, 0, false)
	require.Eventually(t, func() bool { return slices.Equal([]string{"start", "QUIT", "end", "start"}, r.Story()) }, within, time.Millisecond)

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.requireExit(t, exitLeft)
	require.NotZero(t, r.PID(), "a runner that was not started here goes on")
}

func TestSignalsToASidecarWhoseRunnerIsItsOwn(t *testing.T) {
	t.Run("SIGTERM waits", func(t *testing.T) {
		d, r := startDrainer(t), sidecartest.New(t)
		r.Jobs(t, 1)
		p := startProcess(t, withToken, beside(d, r, append([]string{"--exec", "--"}, r.Command()...)...)...)
		d.beat(t, 1, false)
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		d.beat(t, 1, true)
		r.Jobs(t, 0)
		p.requireExit(t, exitLeft)
		require.Equal(t, []string{"start", "QUIT", "end"}, r.Story())
	})
	t.Run("SIGHUP doesn't", func(t *testing.T) {
		d, r := startDrainer(t), sidecartest.New(t)
		r.Jobs(t, 1)
		p := startProcess(t, withToken, beside(d, r, append([]string{"--exec", "--"}, r.Command()...)...)...)
		d.beat(t, 1, false)
		require.NoError(t, p.Process.Signal(syscall.SIGHUP))
		p.requireExit(t, exitCut)
		require.Equal(t, []string{"start", "TERM", "end"}, r.Story())
	})
	t.Run("SIGKILL leaves its jobs to it", func(t *testing.T) {
		d, r := startDrainer(t), sidecartest.New(t)
		r.Jobs(t, 1)
		p := startProcess(t, withToken, beside(d, r, append([]string{"--exec", "--"}, r.Command()...)...)...)
		d.beat(t, 1, false)
		require.NoError(t, p.Process.Kill())
		require.Eventually(t, func() bool { return slices.Contains(r.Story(), "QUIT") }, within, time.Millisecond)
		require.NotZero(t, r.PID(), "its job runs")
		r.Jobs(t, 0)
		require.Eventually(t, func() bool { return r.PID() == 0 }, within, time.Millisecond)
		// The kernel may say it with the end of each thread of ours.
		require.Equal(t, []string{"start", "QUIT", "end"}, slices.Compact(r.Story()))
	})
}

func TestWrongFlagsOfASidecar(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no process":           {[]string{"--sidecar"}, "one of them only"},
		"two processes":        {[]string{"--sidecar", "--runner-unit", "u", "--runner-pid", "p"}, "one of them only"},
		"exec of nothing":      {[]string{"--sidecar", "--exec"}, "command line behind --"},
		"a command without it": {[]string{"--sidecar", "--runner-pid", "p", "--", "gitlab-runner"}, "command line behind --"},
		"no sidecar":           {[]string{"--runner-pid", "p"}, "--runner-pid needs --sidecar"},
		"exec without sidecar": {[]string{"--exec", "--", "true"}, "--exec needs --sidecar"},
		"logs of no jobs":      {[]string{"--sidecar", "--runner-pid", "p", "--job-logs"}, "--job-logs means nothing"},
		"an argument":          {[]string{"--sidecar", "--runner-pid", "p", "x"}, "unexpected argument"},
		"other machine":        {[]string{"--sidecar", "--runner-pid", "p", "--runner-metrics", "http://192.0.2.1/"}, "loopback"},
		"too often":            {[]string{"--sidecar", "--runner-pid", "p", "--runner-metrics-every", "1ms"}, "looking every"},
		"no such program":      {[]string{"--sidecar", "--exec", "--", "/nowhere/gitlab-runner"}, "no such file"},
		"negative capacity":    {[]string{"--sidecar", "--runner-pid", "p", "--capacity", "-1"}, "capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, nil, append([]string{"--router", "127.0.0.1:1", "--plaintext", "--token-file", file}, c.args...)...)
			p.requireExit(t, exitUsage)
			require.Contains(t, p.stderr.String(), c.says)
		})
	}
}
