package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/agent/notices"
	"github.com/spillway-ci/spillway/internal/peertest"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// told is an agent whose cloud and health the test plays.
func told(t *testing.T, r *router) (m *machine, cloud chan<- notices.Notice, health chan<- string) {
	t.Helper()
	c, h := make(chan notices.Notice), make(chan string)
	m = startAgent(t, r, func(o *agent.Options) { o.Notices, o.Health = c, h })
	return m, c, h
}

func tell[T any](t *testing.T, to chan<- T, what T) {
	t.Helper()
	select {
	case to <- what:
	case <-time.After(within):
		require.FailNow(t, "the agent does not listen")
	}
}

func TestInterruptedMachineTellsTakesNothingAndGoesOn(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for kind, wire := range map[notices.Kind]runnerv1.InterruptionKind{
		notices.Spot:        runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT,
		notices.Maintenance: runnerv1.InterruptionKind_INTERRUPTION_KIND_MAINTENANCE,
		notices.Terminating: runnerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING,
	} {
		t.Run(string(kind), func(t *testing.T) {
			r := startRouter(t)
			m, cloud, _ := told(t, r)
			s, reg := r.accept(t)
			require.Nil(t, reg.GetInterruption())
			goOn := filepath.Join(t.TempDir(), "go-on")
			s.assign(t, "1", 1, script("while ! [ -e %s ]; do sleep 0.01; done", goOn))
			s.begun(t)
			tell(t, cloud, notices.Notice{Kind: kind, Deadline: at})
			h := s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetInterruption() != nil })
			require.Equal(t, wire, h.GetInterruption().GetKind())
			require.Equal(t, at, h.GetInterruption().GetDeadline().AsTime())
			require.True(t, h.GetDraining())
			require.EqualValues(t, 1, h.GetBusy(), "the job goes on")
			s.assign(t, "2", 1, script("true"))
			require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_DRAINING, s.refusal(t).GetCode())

			s.end <- nil // another router is told before it can give out anything
			s, reg = r.accept(t)
			require.Equal(t, wire, reg.GetInterruption().GetKind())
			require.Equal(t, at, reg.GetInterruption().GetDeadline().AsTime())
			require.NoError(t, os.WriteFile(goOn, nil, 0o600))
			s.result(t)
			s.ack(t, "1", 1, false)
			s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 0 && h.GetInterruption() != nil })
			require.Empty(t, m.ended, "it waits to be taken")
			s.drain(t, &runnerv1.Drain{DrainId: 1, Draining: true, Terminate: true})
			require.NoError(t, m.requireEnd(t))
		})
	}
}

func TestRebalanceIsHandedOnAndJobsAreTaken(t *testing.T) {
	r := startRouter(t)
	_, cloud, _ := told(t, r)
	s, _ := r.accept(t)
	tell(t, cloud, notices.Notice{Kind: notices.Rebalance})
	h := s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetInterruption() != nil })
	require.False(t, h.GetDraining())
	require.Nil(t, h.GetInterruption().GetDeadline())
	s.assign(t, "1", 1, script("true"))
	s.result(t)

	tell(t, cloud, notices.Notice{Kind: notices.Spot})
	tell(t, cloud, notices.Notice{Kind: notices.Rebalance}) // takes nothing back
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetDraining() })
	s.drain(t, &runnerv1.Drain{DrainId: 1, Draining: false})
	h = s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true })
	require.True(t, h.GetDraining(), "nor does the router")
	require.Equal(t, runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT, h.GetInterruption().GetKind())
}

func TestUnhealthyMachineTellsAndGivesJobsBack(t *testing.T) {
	r := startRouter(t)
	_, _, health := told(t, r)
	s, _ := r.accept(t)
	tell(t, health, "disk full")
	h := s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetUnhealthy() != "" })
	require.Equal(t, "disk full", h.GetUnhealthy())
	require.False(t, h.GetDraining(), "it may get well")
	s.assign(t, "1", 1, script("true"))
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, s.refusal(t).GetCode())
	s.end <- nil
	s, reg := r.accept(t)
	require.Equal(t, "disk full", reg.GetUnhealthy())
	tell(t, health, "")
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetUnhealthy() == "" })
	s.assign(t, "1", 2, script("true"))
	s.result(t)
}

// A notice that comes while there is no router is not lost: the registration has
// it, or, if that was on its way already, the first heartbeat.
func TestNoticeWithoutARouter(t *testing.T) {
	r := &router{address: peertest.FreeAddress(t), streams: make(chan *stream, 16)}
	_, cloud, _ := told(t, r)
	tell(t, cloud, notices.Notice{Kind: notices.Spot})
	r.listen(t, r.address)
	s, _ := r.accept(t)
	h := s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true })
	require.Equal(t, runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT, h.GetInterruption().GetKind())
	s.end <- nil
	_, reg := r.accept(t)
	require.Equal(t, runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT, reg.GetInterruption().GetKind())
}
