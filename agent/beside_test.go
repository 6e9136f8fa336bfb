package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/agent/notices"
	"github.com/spillway-ci/spillway/agent/sidecar"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// besideUs is a runner of which the test says what is true.
type besideUs struct {
	states chan sidecar.State
	orders chan sidecar.Order
	ours   bool
}

func (b *besideUs) States() <-chan sidecar.State { return b.states }
func (b *besideUs) Order(o sidecar.Order)        { b.orders <- o }
func (b *besideUs) Ours() bool                   { return b.ours }

// serves is a runner with jobs, seen just now.
func serves(jobs int) sidecar.State {
	return sidecar.State{Busy: jobs, Capacity: 3, SeenAt: time.Now().Add(time.Hour)} // it doesn't age in a test
}

// stops is one that was told to by an order.
func stops(jobs int, order uint64) sidecar.State {
	s := serves(jobs)
	s.Stopping, s.Order = true, order
	return s
}

func gone(order uint64) sidecar.State {
	s := stops(0, order)
	s.Gone = true
	return s
}

func (b *besideUs) order(t *testing.T) sidecar.Order {
	t.Helper()
	select {
	case o := <-b.orders:
		return o
	case <-time.After(within):
		require.FailNow(t, "no order")
		return sidecar.Order{}
	}
}

func startBeside(t *testing.T, r *router, change ...func(*agent.Options)) (*besideUs, *machine) {
	t.Helper()
	b := &besideUs{states: make(chan sidecar.State), orders: make(chan sidecar.Order, 100)}
	return b, startAgent(t, r, append([]func(*agent.Options){func(o *agent.Options) { o.Beside, o.Capacity = b, 0 }}, change...)...)
}

func beats(busy int32, draining bool) func(*runnerv1.Heartbeat) bool {
	return func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == busy && h.GetDraining() == draining }
}

func drainOrder(id uint64, on, terminate bool) *runnerv1.RouterMessage {
	return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: &runnerv1.Drain{DrainId: id, Draining: on, Terminate: terminate}}}
}

// nextAck returns the acknowledgement and the heartbeat right behind it.
func (s *stream) nextAck(t *testing.T) (*runnerv1.DrainAck, *runnerv1.Heartbeat) {
	t.Helper()
	ack := until(t, s, func(m *runnerv1.RunnerMessage) (*runnerv1.DrainAck, bool) {
		return m.GetDrainAck(), m.GetDrainAck() != nil
	})
	beat := s.next(t).GetHeartbeat()
	require.NotNil(t, beat, "a heartbeat comes right behind")
	return ack, beat
}

func TestAMachineThatSpeaksForARunner(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r)
	b.states <- sidecar.State{} // nothing is known yet: it waits
	b.states <- serves(0)
	s, register := r.accept(t)
	require.EqualValues(t, 3, register.GetCapacity())
	s.heartbeat(t, beats(0, false))
	b.states <- serves(2)
	h := s.heartbeat(t, beats(2, false))
	require.Empty(t, h.GetRunning(), "they are nobody's of the router")

	s.assign(t, "1", 1, script("exit 0"))
	refused := s.refusal(t)
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_INVALID, refused.GetCode())
	b.states <- stops(2, 0)
	s.assign(t, "2", 1, script("exit 0"))
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_DRAINING, s.refusal(t).GetCode())
}

func TestC12_ARunnerThatWasNotSeenIsBusy(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r)
	b.states <- serves(0)
	s, _ := r.accept(t)
	s.heartbeat(t, beats(0, false))
	b.states <- sidecar.State{Capacity: 3, SeenAt: time.Now().Add(-time.Minute)}
	s.heartbeat(t, beats(1, false))
}

func TestTheCapacityOfARunner(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r, func(o *agent.Options) { o.Capacity = 2 })
	b.states <- serves(0)
	s, register := r.accept(t)
	require.EqualValues(t, 2, register.GetCapacity(), "bounded")
	less := serves(0)
	less.Capacity = 1
	b.states <- less
	s.requireGone(t)
	_, register = r.accept(t)
	require.EqualValues(t, 1, register.GetCapacity(), "somebody has changed its concurrent: it registers again")
}

// A broken runner is told to the router even if it never said how many jobs it takes.
func TestABrokenRunnerIsRegistered(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r)
	b.states <- sidecar.State{Unhealthy: "no metrics"}
	s, register := r.accept(t)
	require.EqualValues(t, 1, register.GetCapacity())
	require.Equal(t, "no metrics", register.GetUnhealthy())
	h := s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true })
	require.Equal(t, "no metrics", h.GetUnhealthy())
	require.EqualValues(t, 1, h.GetBusy())
}

// The acknowledgement says what has happened, not what is going to.
func TestADrainIsAcknowledgedWhenTheRunnerWasTold(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r)
	b.states <- serves(2)
	s, _ := r.accept(t)
	s.send(t, drainOrder(7, true, false))
	o := b.order(t)
	require.True(t, o.Stop)
	b.states <- serves(2) // of before the order
	h := s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true })
	require.False(t, h.GetDraining())
	b.states <- stops(2, o.Number)
	ack, beat := s.nextAck(t)
	require.True(t, ack.GetDraining())
	require.EqualValues(t, 7, ack.GetDrainId())
	require.EqualValues(t, 2, beat.GetBusy())
	require.True(t, beat.GetDraining())
	b.states <- gone(o.Number)
	s.heartbeat(t, beats(0, true))

	s.send(t, drainOrder(8, false, false))
	back := b.order(t)
	require.False(t, back.Stop)
	b.states <- gone(back.Number)
	ack, beat = s.nextAck(t)
	require.True(t, ack.GetDraining(), "it can't be called back")
	require.True(t, beat.GetDraining())
	again := serves(0)
	again.Order = back.Number
	b.states <- again
	s.heartbeat(t, beats(0, false))

	s.send(t, drainOrder(9, true, false))
	b.order(t)
	s.send(t, drainOrder(10, true, false))
	o = b.order(t)
	b.states <- gone(o.Number)
	ack, _ = s.nextAck(t)
	require.EqualValues(t, 10, ack.GetDrainId(), "only the newest is answered")
}

func TestADrainThatTerminates(t *testing.T) {
	r := startRouter(t)
	b, m := startBeside(t, r)
	b.states <- serves(1)
	s, _ := r.accept(t)
	s.send(t, drainOrder(1, true, true))
	o := b.order(t)
	b.states <- stops(1, o.Number)
	s.nextAck(t)
	b.states <- gone(o.Number)
	require.NoError(t, m.requireEnd(t))
	s.heartbeat(t, beats(0, true))
	s.requireGone(t)
}

// A runner of somebody else is not ours to stop.
func TestASidecarThatIsToldToLeave(t *testing.T) {
	r := startRouter(t)
	b, m := startBeside(t, r)
	b.states <- serves(1)
	s, _ := r.accept(t)
	close(m.drain)
	require.NoError(t, m.requireEnd(t))
	s.requireGone(t)
	require.Empty(t, b.orders)

	b, m = startBeside(t, r, func(o *agent.Options) { o.Beside.(*besideUs).ours = true })
	b.states <- serves(1)
	s, _ = r.accept(t)
	close(m.drain)
	o := b.order(t)
	require.True(t, o.Stop)
	b.states <- stops(1, o.Number)
	s.heartbeat(t, beats(1, true))
	b.states <- gone(o.Number)
	require.NoError(t, m.requireEnd(t))
}

func TestARunnerOfOursThatTakesTooLong(t *testing.T) {
	r := startRouter(t)
	b, m := startBeside(t, r, func(o *agent.Options) {
		beside := o.Beside.(*besideUs)
		// The agent may leave before it hears of the last one.
		beside.ours, beside.states = true, make(chan sidecar.State, 2)
		o.DrainTimeout = 50 * time.Millisecond
	})
	b.states <- serves(1)
	r.accept(t)
	close(m.drain)
	b.states <- stops(1, b.order(t).Number)
	require.ErrorIs(t, m.requireEnd(t), agent.ErrDrainTimeout)
}

// A notice is for the runner, too: it takes no job that could be lost.
func TestB7_ANoticeStopsTheRunner(t *testing.T) {
	r := startRouter(t)
	heard := make(chan notices.Notice)
	b, _ := startBeside(t, r, func(o *agent.Options) { o.Notices = heard })
	b.states <- serves(1)
	s, _ := r.accept(t)
	heard <- notices.Notice{Kind: notices.Rebalance}
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetInterruption() != nil && !h.GetDraining() })
	require.Empty(t, b.orders, "no job is at stake yet")
	heard <- notices.Notice{Kind: notices.Terminating}
	o := b.order(t)
	require.True(t, o.Stop)
	b.states <- stops(1, o.Number)
	s.heartbeat(t, beats(1, true))

	s.send(t, drainOrder(1, true, false))
	o = b.order(t)
	b.states <- gone(o.Number)
	s.nextAck(t)
	s.send(t, drainOrder(2, false, false))
	require.True(t, b.order(t).Stop, "the notice stands")
}

func TestAHealthCheckBesideARunner(t *testing.T) {
	r := startRouter(t)
	felt := make(chan string)
	b, _ := startBeside(t, r, func(o *agent.Options) { o.Health = felt })
	b.states <- serves(0)
	s, _ := r.accept(t)
	says := func(why string) {
		s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetUnhealthy() == why })
	}
	felt <- "disk full"
	says("disk full")
	broken := serves(0)
	broken.Unhealthy = "no metrics"
	b.states <- broken
	felt <- ""
	says("no metrics")
	b.states <- serves(0)
	says("")
	require.Empty(t, b.orders)
}

// What the router doesn't know of is no reason to end jobs of others.
func TestARefusedTokenEndsNoRunner(t *testing.T) {
	r := startRouter(t)
	b, m := startBeside(t, r, func(o *agent.Options) { o.Beside.(*besideUs).ours = true })
	b.states <- serves(1)
	s, _ := r.accept(t)
	s.end <- status.Error(codes.Unauthenticated, "revoked")
	o := b.order(t)
	require.True(t, o.Stop)
	b.states <- stops(1, o.Number)
	b.states <- gone(o.Number)
	require.ErrorIs(t, m.requireEnd(t), agent.ErrUnauthenticated)
}

// A new stream brings the order again, if it stands: meanwhile nothing is started.
func TestAnOrderOutlivesItsStream(t *testing.T) {
	r := startRouter(t)
	b, _ := startBeside(t, r)
	b.states <- serves(1)
	s, _ := r.accept(t)
	s.send(t, drainOrder(1, true, false))
	o := b.order(t)
	b.states <- stops(1, o.Number)
	s.nextAck(t)
	s.end <- status.Error(codes.Unavailable, "restarting")
	s, _ = r.accept(t)
	s.heartbeat(t, beats(1, true))
	require.Empty(t, b.orders)
	s.send(t, drainOrder(1, true, false))
	o = b.order(t)
	require.True(t, o.Stop)
	b.states <- stops(1, o.Number)
	ack, _ := s.nextAck(t)
	require.True(t, ack.GetDraining())
}
