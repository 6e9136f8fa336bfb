package tunnel_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway/agent/shell"
	"github.com/spillway-ci/spillway/agent/tunnel"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// impatient is open with a machine that soon takes a target for stuck.
func (r *router) impatient(place *shell.Place, target *debugv1.Target) (*call, chan error) {
	machine := tunnel.Router{Client: runnerv1.NewRunnerServiceClient(r.conn), Token: "a-token"}.WithStuckFor(time.Second)
	ended := make(chan error, 1)
	go func() {
		ended <- machine.Serve(context.Background(), &runnerv1.OpenTunnel{TunnelId: "an-id", Target: target}, place)
	}()
	c := <-r.calls
	c.hear(func(h *heard) bool { return h.opened })
	return c, ended
}

// fill says things until nobody takes them any more. over is closed when the tunnel is.
func (c *call) fill() (over chan struct{}) {
	c.t.Helper()
	over = make(chan struct{})
	var said atomic.Int64
	piece := &runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: make([]byte, 32<<10)}}}}
	go func() {
		defer close(over)
		for c.rpc.Send(piece) == nil {
			said.Add(1)
		}
	}()
	var before int64
	require.Eventually(c.t, func() bool {
		full := said.Load() == before && before > 0
		before = said.Load()
		return full
	}, patience, 200*time.Millisecond)
	return over
}

// eachDeafTarget are a command and a server that read nothing. (A terminal takes, and
// forgets, what nobody reads.)
func eachDeafTarget(t *testing.T, test func(t *testing.T, r *router, place *shell.Place, target *debugv1.Target)) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // connections wait in its backlog
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, target := range map[string]*debugv1.Target{
		"command": execTarget(false, "sleep", "1000"), "port": portTarget(l.Addr().(*net.TCPAddr).Port),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place, _ := job(t, "exec sleep 1000")
			test(t, newRouter(t), place, target)
		})
	}
}

// That the other side has left comes behind what a deaf target leaves unread: the session
// ends all the same, and takes the command along.
func TestASessionWithADeafTargetEndsWhenTheOtherSideHasLeft(t *testing.T) {
	eachDeafTarget(t, func(t *testing.T, r *router, place *shell.Place, target *debugv1.Target) {
		c, ended := r.impatient(place, target)
		over := c.fill()
		close(c.leave)
		require.ErrorContains(t, await(t, ended), "reads nothing")
		<-over
	})
}

// Whoever is still there is told.
func TestADeafTargetIsGivenUp(t *testing.T) {
	eachDeafTarget(t, func(t *testing.T, r *router, place *shell.Place, target *debugv1.Target) {
		c, ended := r.impatient(place, target)
		over := c.fill()
		failed := c.hear(func(h *heard) bool { return h.failed != nil }).failed
		require.Equal(t, int32(codes.Aborted), failed.GetCode())
		close(c.leave)
		require.ErrorContains(t, await(t, ended), "reads nothing")
		<-over
	})
}

// One that says something, or is told nothing, is not stuck.
func TestATargetThatDoesSomethingIsNotStuck(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		told   bool
	}{
		"it prints":          {"for i in $(seq 30); do echo $i; sleep 0.1; done", true},
		"it is told nothing": {"sleep 3", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place, _ := job(t, "exec sleep 1000")
			r := newRouter(t)
			call, ended := r.impatient(place, execTarget(false, "sh", "-c", c.script))
			over := make(chan struct{})
			if c.told {
				over = call.fill()
			} else {
				close(over)
			}
			require.NotNil(t, call.hear(func(h *heard) bool { return h.exit != nil }).exit)
			close(call.leave)
			require.NoError(t, await(t, ended))
			<-over
		})
	}
}
