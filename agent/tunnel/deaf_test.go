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

// aWhile is how long nothing is taken, usually, by whom nothing more is taken.
const aWhile = 200 * time.Millisecond

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

// fill says things until nobody has taken any for a while. over is closed when the tunnel is.
func (c *call) fill(while time.Duration) (over chan struct{}) {
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
	}, patience, while)
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
		for while := aWhile; ; while *= 3 {
			c, ended := r.impatient(place, target)
			over := c.fill(while)
			close(c.leave)
			err := await(t, ended)
			<-over
			if err != nil || while > 10*time.Second {
				require.ErrorContains(t, err, "reads nothing")
				return
			}
			// What it was told was only slow to arrive, and it had room for all of it.
		}
	})
}

// Whoever is still there is told.
func TestADeafTargetIsGivenUp(t *testing.T) {
	eachDeafTarget(t, func(t *testing.T, r *router, place *shell.Place, target *debugv1.Target) {
		c, ended := r.impatient(place, target)
		over := c.fill(aWhile)
		failed := c.hear(func(h *heard) bool { return h.failed != nil }).failed
		require.Equal(t, int32(codes.Aborted), failed.GetCode())
		close(c.leave)
		require.ErrorContains(t, await(t, ended), "reads nothing")
		<-over
	})
}

// One that is told nothing is not stuck.
func TestATargetThatIsToldNothingIsNotStuck(t *testing.T) {
	t.Parallel()
	place, _ := job(t, "exec sleep 1000")
	c, ended := newRouter(t).impatient(place, execTarget(false, "sleep", "3"))
	require.NotNil(t, c.hear(func(h *heard) bool { return h.exit != nil }).exit)
	close(c.leave)
	require.NoError(t, await(t, ended))
}
