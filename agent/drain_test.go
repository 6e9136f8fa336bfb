package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

func TestDrainByRouterAndBack(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)

	ack, next := s.drain(t, &runnerv1.Drain{DrainId: 5, Draining: true, Reason: "scale in"})
	require.EqualValues(t, 5, ack.GetDrainId())
	require.True(t, ack.GetDraining())
	require.True(t, next.GetHeartbeat().GetDraining(), "a heartbeat comes right behind the acknowledgement: %v", next)

	s.assign(t, "1", 1, script("true"))
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_DRAINING, s.refusal(t).GetCode())

	ack, next = s.drain(t, &runnerv1.Drain{DrainId: 6, Draining: false})
	require.EqualValues(t, 6, ack.GetDrainId())
	require.False(t, ack.GetDraining())
	require.NotNil(t, next.GetHeartbeat())
	require.False(t, next.GetHeartbeat().GetDraining())

	s.assign(t, "1", 2, script("true"))
	s.result(t)
}

func TestDrainAndTerminateWaitsForTheJobAndItsAcknowledgement(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r)
	s, _ := r.accept(t)
	goOn := filepath.Join(t.TempDir(), "go-on")
	s.assign(t, "1", 1, script("while ! [ -e %s ]; do sleep 0.01; done", goOn))
	s.begun(t)
	_, next := s.drain(t, &runnerv1.Drain{DrainId: 1, Draining: true, Terminate: true})
	require.EqualValues(t, 1, next.GetHeartbeat().GetBusy())
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	s.result(t)
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 0 }) // idle, and still there
	require.Empty(t, m.ended)
	s.ack(t, "1", 1, false)
	require.NoError(t, m.requireEnd(t))
	s.requireGone(t)
}

func TestIdleMachineLeavesWhenToldTo(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r)
	s, _ := r.accept(t)
	s.drain(t, &runnerv1.Drain{DrainId: 1, Draining: true, Terminate: true})
	require.NoError(t, m.requireEnd(t))
	s.requireGone(t)
}

// An order is the router's that gave it: the next one repeats it if it stands.
func TestOrderedDrainEndsWithTheRegistration(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.drain(t, &runnerv1.Drain{DrainId: 1, Draining: true})
	s.end <- nil
	s, _ = r.accept(t)
	require.False(t, s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true }).GetDraining())
	ack, _ := s.drain(t, &runnerv1.Drain{DrainId: 2, Draining: true})
	require.True(t, ack.GetDraining())
}

func TestDrainFromOutside(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r)
	s, _ := r.accept(t)
	goOn := filepath.Join(t.TempDir(), "go-on")
	s.assign(t, "1", 1, script("while ! [ -e %s ]; do sleep 0.01; done", goOn))
	s.begun(t)
	close(m.drain)
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetDraining() && h.GetBusy() == 1 })

	ack, next := s.drain(t, &runnerv1.Drain{DrainId: 9, Draining: false}) // the router can't take that back
	require.True(t, ack.GetDraining())
	require.True(t, next.GetHeartbeat().GetDraining())
	s.end <- nil // nor does a new registration
	s, _ = r.accept(t)
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetDraining() })

	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	s.result(t)
	s.ack(t, "1", 1, false)
	require.NoError(t, m.requireEnd(t))
}

func TestDrainTimeoutCutsJobsShort(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r, func(o *agent.Options) { o.DrainTimeout = 50 * time.Millisecond })
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	close(m.drain)
	require.ErrorIs(t, m.requireEnd(t), agent.ErrDrainTimeout)
	s.requireGone(t)
	requireNoResult(t, s)
}

func TestEndOfContextCutsJobsShort(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	m.cut(errCut)
	require.ErrorIs(t, m.requireEnd(t), errCut)
	s.requireGone(t)
	requireNoResult(t, s)
	left, err := os.ReadDir(m.options.WorkDir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// requireNoResult: nobody wanted the job to end, so it is to be seen as lost; and
// the last that the router hears is that nothing runs.
func requireNoResult(t *testing.T, s *stream) {
	t.Helper()
	var last *runnerv1.RunnerMessage
	for len(s.from) > 0 {
		last = <-s.from
		require.Nil(t, last.GetJobStatus().GetResult())
	}
	require.NotNil(t, last.GetHeartbeat())
	require.Zero(t, last.GetHeartbeat().GetBusy())
}

func TestContextEndsWithoutARouter(t *testing.T) {
	r := startRouter(t)
	r.server.Stop()
	m := startAgent(t, r)
	m.cut(errCut)
	require.ErrorIs(t, m.requireEnd(t), errCut)
}
