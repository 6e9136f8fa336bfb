package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/agent/shell"
	"github.com/spillway-ci/spillway/agent/tunnel"
	"github.com/spillway-ci/spillway/internal/peertest"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const patience = 80 * time.Second

// router is the other end, by hand.
type router struct {
	runnerv1.UnimplementedRunnerServiceServer
	t     *testing.T
	calls chan *call
	conn  *grpc.ClientConn
}

// call is a tunnel that the machine has opened.
type call struct {
	t     *testing.T
	rpc   runnerv1.RunnerService_TunnelServer
	leave chan struct{} // closed: the router ends it
}

func (r *router) Tunnel(rpc runnerv1.RunnerService_TunnelServer) error {
	first, err := rpc.Recv()
	if err != nil {
		return err
	}
	require.Equal(r.t, "an-id", first.GetTunnelId())
	require.Equal(r.t, []string{"Bearer a-token"}, metadata.ValueFromIncomingContext(rpc.Context(), "authorization"))
	c := &call{r.t, rpc, make(chan struct{})}
	r.calls <- c
	select {
	case <-c.leave:
	case <-rpc.Context().Done():
	}
	return nil
}

func newRouter(t *testing.T) *router {
	t.Helper()
	r := &router{t: t, calls: make(chan *call, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	runnerv1.RegisterRunnerServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	r.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.conn.Close() })
	return r
}

// open asks for a tunnel into place. ended gets what Serve returns.
func (r *router) open(place *shell.Place, target *debugv1.Target) (c *call, ended chan error) {
	r.t.Helper()
	ended = make(chan error, 1)
	machine := tunnel.Router{Client: runnerv1.NewRunnerServiceClient(r.conn), Token: "a-token"}
	go func() {
		ended <- machine.Serve(context.Background(), &runnerv1.OpenTunnel{TunnelId: "an-id", Target: target}, place)
	}()
	select {
	case c = <-r.calls:
	case <-time.After(patience):
		require.Fail(r.t, "no tunnel was opened")
	}
	return c, ended
}

func (c *call) say(f *debugv1.Frame) {
	c.t.Helper()
	require.NoError(c.t, c.rpc.Send(&runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: f}}))
}

func (c *call) data(text string) {
	c.t.Helper()
	c.say(&debugv1.Frame{Frame: &debugv1.Frame_Data{Data: []byte(text)}})
}

func (c *call) endInput() {
	c.t.Helper()
	c.say(&debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}})
}

// heard is all that a session says to its end.
type heard struct {
	opened, end    bool
	stdout, stderr bytes.Buffer
	exit           *debugv1.Exit
	failed         *runnerv1.TunnelFailed
}

func (c *call) hear(until func(*heard) bool) *heard {
	c.t.Helper()
	h := &heard{}
	for until == nil || !until(h) {
		m, err := c.rpc.Recv()
		if errors.Is(err, io.EOF) {
			return h
		}
		require.NoError(c.t, err)
		switch f := m.GetFrame().GetFrame().(type) {
		case *debugv1.Frame_Opened:
			h.opened = true
		case *debugv1.Frame_Data:
			h.stdout.Write(f.Data)
		case *debugv1.Frame_Stderr:
			h.stderr.Write(f.Stderr)
		case *debugv1.Frame_End:
			h.end = true
		case *debugv1.Frame_Exit:
			h.exit = f.Exit
		default:
			h.failed = m.GetFailed()
			require.NotNil(c.t, h.failed)
		}
	}
	return h
}

func await(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		require.Fail(t, "the session did not end")
		return nil
	}
}

// job runs a script and returns where; stop has it end, and waits.
func job(t *testing.T, script string) (*shell.Place, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "s")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(context.Background())
	places, done := make(chan *shell.Place, 1), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = shell.Run(ctx, shell.Spec{Parent: dir, Script: script, Timeout: time.Minute, Grace: time.Second, Sockets: true}, func(p *shell.Place) { places <- p })
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return <-places, stop
}

func execTarget(tty bool, args ...string) *debugv1.Target {
	return &debugv1.Target{Target: &debugv1.Target_Exec{Exec: &debugv1.Exec{Command: args, Tty: tty, Size: &debugv1.Size{Columns: 80, Rows: 24}, Term: "dumb"}}}
}

func portTarget(port int) *debugv1.Target {
	return &debugv1.Target{Target: &debugv1.Target_Port{Port: &debugv1.Port{Port: int32(port)}}}
}

func socketTarget(name string) *debugv1.Target {
	return &debugv1.Target{Target: &debugv1.Target_Socket{Socket: &debugv1.Socket{Name: name}}}
}

func TestExec(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	c, ended := r.open(place, execTarget(false, "sh", "-c", "cat; echo wrong >&2; exit 4"))
	c.data("to and ")
	c.data("fro")
	c.endInput()
	h := c.hear(nil)
	close(c.leave)
	require.NoError(t, await(t, ended))
	require.True(t, h.opened)
	require.Equal(t, "to and fro", h.stdout.String())
	require.Equal(t, "wrong\n", h.stderr.String())
	require.Equal(t, int32(4), h.exit.GetCode())
}

func TestExecOnATerminal(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	c, ended := r.open(place, execTarget(true, "sh", "-c", `stty size; trap 'stty size' WINCH; trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done`))
	until := func(word string) func(*heard) bool {
		return func(h *heard) bool { return strings.Contains(h.stdout.String(), word) }
	}
	require.Contains(t, c.hear(until("ready")).stdout.String(), "24 80")
	c.say(&debugv1.Frame{Frame: &debugv1.Frame_Size{Size: &debugv1.Size{Columns: 132, Rows: 43}}})
	c.hear(until("43 132"))
	c.data("\x03")
	h := c.hear(nil)
	close(c.leave)
	require.NoError(t, await(t, ended))
	require.Equal(t, int32(9), h.exit.GetCode())
}

func TestSignalsReachTheCommand(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	c, ended := r.open(place, execTarget(false, "sh", "-c", "echo ready; exec sleep 1000"))
	c.hear(func(h *heard) bool { return h.stdout.Len() > 0 })
	c.say(&debugv1.Frame{Frame: &debugv1.Frame_Signal{Signal: &debugv1.Signal{Name: "STOP"}}}) // not one of those that may be sent
	c.say(&debugv1.Frame{Frame: &debugv1.Frame_Signal{Signal: &debugv1.Signal{Name: "TERM"}}})
	h := c.hear(nil)
	close(c.leave)
	require.NoError(t, await(t, ended))
	require.Equal(t, int32(128+15), h.exit.GetCode())
}

// What a command prints arrives whole, however slowly it is read.
func TestASlowReaderMissesNothing(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	const size = 3 << 20
	c, ended := r.open(place, execTarget(false, "head", "-c", "3145728", "/dev/zero"))
	h := c.hear(func(h *heard) bool { return h.opened })
	all := c.hear(nil)
	close(c.leave)
	require.NoError(t, await(t, ended))
	require.Equal(t, size, h.stdout.Len()+all.stdout.Len())
	require.Zero(t, all.exit.GetCode())
}

// A session whose reader reads nothing ends with the job all the same, and holds nothing up.
func TestADeafReaderHoldsNothingUp(t *testing.T) {
	r := newRouter(t)
	place, stop := job(t, "exec sleep 1000")
	_, ended := r.open(place, execTarget(false, "cat", "/dev/zero"))
	other, otherEnded := r.open(place, execTarget(false, "echo", "hello"))
	require.Equal(t, "hello\n", other.hear(nil).stdout.String())
	close(other.leave)
	require.NoError(t, await(t, otherEnded))
	begun := make(chan struct{})
	go func() {
		stop()
		close(begun)
	}()
	select {
	case <-begun:
	case <-time.After(patience):
		require.Fail(t, "the job did not end")
	}
	require.Error(t, await(t, ended))
}

func TestTheJobsEndEndsItsSessions(t *testing.T) {
	r := newRouter(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, target := range map[string]*debugv1.Target{
		"command": execTarget(false, "sleep", "1000"), "terminal": execTarget(true, "sleep", "1000"), "port": portTarget(l.Addr().(*net.TCPAddr).Port),
	} {
		place, stop := job(t, "exec sleep 1000")
		c, ended := r.open(place, target)
		c.hear(func(h *heard) bool { return h.opened })
		go stop()
		h := c.hear(nil)
		close(c.leave)
		require.ErrorContains(t, await(t, ended), "the job has ended", name)
		require.Equal(t, int32(codes.Aborted), h.failed.GetCode(), name)
		require.Nil(t, h.exit, name)
		c, ended = r.open(place, execTarget(false, "true"))
		require.Equal(t, "the job has ended", c.hear(nil).failed.GetDetail())
		close(c.leave)
		require.Error(t, await(t, ended))
	}
}

// Whoever leaves takes the command along.
func TestLeavingEndsTheCommand(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	file := t.TempDir() + "/ended"
	for range 10 { // on a busy machine it may take longer than the moment that it gets
		c, ended := r.open(place, execTarget(false, "sh", "-c", "trap 'echo >"+file+"; exit' HUP; echo ready; while :; do sleep 0.05; done"))
		c.hear(func(h *heard) bool { return h.stdout.Len() > 0 })
		close(c.leave)
		require.NoError(t, await(t, ended))
		if _, err := os.Stat(file); err == nil {
			return
		}
	}
	require.Fail(t, "it was not told to put things in order")
}

// echo serves connections by giving back what comes, and counts them.
func echo(l net.Listener, served *atomic.Int32) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		served.Add(1)
		go func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

func TestPortsAndSockets(t *testing.T) {
	r := newRouter(t)
	place, _ := job(t, "exec sleep 1000")
	x, err := place.Start(shell.Command{Args: []string{"sh", "-c", `printf %s "$SPILLWAY_SOCKET_DIR"`}})
	require.NoError(t, err)
	dir, err := io.ReadAll(x.Stdout)
	require.NoError(t, err)
	x.Close()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	socket, err := net.Listen("unix", string(dir)+"/step-runner")
	require.NoError(t, err)
	var served atomic.Int32
	for _, l := range []net.Listener{port, socket} {
		go echo(l, &served)
		t.Cleanup(func() { _ = l.Close() })
	}
	number := port.Addr().(*net.TCPAddr).Port
	for name, target := range map[string]*debugv1.Target{"port": portTarget(number), "socket": socketTarget("step-runner")} {
		c, ended := r.open(place, target)
		c.data("ping")
		c.hear(func(h *heard) bool { return h.stdout.String() == "ping" })
		c.endInput()
		require.True(t, c.hear(nil).end, name)
		close(c.leave)
		require.NoError(t, await(t, ended), name)
	}
	require.Equal(t, int32(2), served.Load())

	dead, err := net.ResolveTCPAddr("tcp", peertest.DeadAddress(t))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		target *debugv1.Target
		code   codes.Code
		says   string
	}{
		"nothing listens": {portTarget(dead.Port), codes.FailedPrecondition, "nothing answers on port"},
		"port 0":          {portTarget(0), codes.InvalidArgument, "no port 0"},
		"port 65536":      {portTarget(65536), codes.InvalidArgument, "no port 65536"},
		"no socket":       {socketTarget("absent"), codes.FailedPrecondition, "there is no such socket"},
		"a path":          {socketTarget("../x"), codes.InvalidArgument, "a socket's name is"},
		"no command":      {execTarget(false), codes.InvalidArgument, "no command"},
		"nothing":         {&debugv1.Target{}, codes.InvalidArgument, "knows no such target"},
	} {
		call, ended := r.open(place, c.target)
		h := call.hear(nil)
		close(call.leave)
		require.Error(t, await(t, ended), name)
		require.Equal(t, int32(c.code), h.failed.GetCode(), name)
		require.Contains(t, h.failed.GetDetail(), c.says, name)
		require.False(t, h.opened, name)
	}
}

func TestRefusal(t *testing.T) {
	r := newRouter(t)
	machine := tunnel.Router{Client: runnerv1.NewRunnerServiceClient(r.conn), Token: "a-token"}
	ended := make(chan error, 1)
	go func() {
		ended <- machine.Refuse(context.Background(), &runnerv1.OpenTunnel{TunnelId: "an-id"}, tunnel.ErrNotHere)
	}()
	c := <-r.calls
	h := c.hear(nil)
	close(c.leave)
	require.Error(t, await(t, ended))
	require.Equal(t, int32(codes.FailedPrecondition), h.failed.GetCode())
}
