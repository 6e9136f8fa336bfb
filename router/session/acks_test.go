package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

// An acknowledgement goes out with the next message, or alone when it has waited for
// long enough itself, whatever became of the ones before it.
func TestAcksWaitForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []*runnerv1.RouterMessage
		s := &stream{}
		s.out.limit = 10
		s.out.send = func(m *runnerv1.RouterMessage) error { sent = append(sent, m); return nil }
		ack := func(id spillway.JobID) *runnerv1.StatusAck {
			return statusAck(router.JobRef{ID: id, Attempt: 1}, false)
		}
		sentAfter := func(d *Dispatcher, wait time.Duration) (messages int, rest time.Duration) {
			time.Sleep(wait) // of the bubble's clock
			rest = d.flushAcks(time.Now())
			synctest.Wait()
			return len(sent), rest
		}
		d := &Dispatcher{opt: Options{AckDelay: DefaultAckDelay}}
		d.outcomes.acked.send(time.Now(), s, ack("1"))
		n, rest := sentAfter(d, DefaultAckDelay/2)
		require.Zero(t, n, "it waits")
		require.Equal(t, DefaultAckDelay/2, rest)

		s.send(&runnerv1.RouterMessage{})
		n, _ = sentAfter(d, 0)
		require.Equal(t, 2, n, "both went together")

		d.outcomes.acked.send(time.Now(), s, ack("2"))
		d.outcomes.acked.send(time.Now(), s, ack("3"))
		n, rest = sentAfter(d, DefaultAckDelay/2)
		require.Equal(t, 2, n, "the time of the first one is not theirs")
		require.Equal(t, DefaultAckDelay/2, rest)
		n, rest = sentAfter(d, DefaultAckDelay/2-1)
		require.Equal(t, 2, n)
		require.Equal(t, time.Duration(1), rest)
		n, rest = sentAfter(d, 1)
		require.Equal(t, 4, n)
		require.Equal(t, sweepEvery, rest)
		require.Empty(t, d.outcomes.acked.waiting)
	})
}

// A machine that reads acknowledgements in assignments gets them there, and as messages
// of their own where no assignment comes, in front of whatever else it is told, and
// where there are more than one message should carry.
func TestAssignmentsCarryAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []*runnerv1.RouterMessage
		s := &stream{carries: true}
		s.out.limit = 2 * maxCarriedAcks
		s.out.send = func(m *runnerv1.RouterMessage) error { sent = append(sent, m); return nil }
		ack := func(n int) {
			for range n {
				s.ack(time.Now(), statusAck(router.JobRef{ID: "1", Attempt: 1}, false))
			}
		}
		told := func() []*runnerv1.RouterMessage {
			synctest.Wait()
			defer func() { sent = nil }()
			return sent
		}
		assign := func() *runnerv1.RouterMessage {
			return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{}}}
		}
		ack(2)
		require.Empty(t, told())
		s.send(assign())
		got := told()
		require.Len(t, got, 1)
		require.Len(t, got[0].GetAssign().GetAcks(), 2)
		s.send(assign())
		got = told()
		require.Len(t, got, 1)
		require.Empty(t, got[0].GetAssign().GetAcks(), "once only")

		ack(1)
		s.send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: &runnerv1.Drain{}}})
		got = told()
		require.Len(t, got, 2)
		require.NotNil(t, got[0].GetStatusAck())
		require.NotNil(t, got[1].GetDrain())

		ack(2)
		s.flush()
		got = told()
		require.Len(t, got, 2)
		require.NotNil(t, got[1].GetStatusAck())

		ack(maxCarriedAcks + 1)
		s.send(assign())
		got = told()
		require.Len(t, got, 2)
		require.NotNil(t, got[0].GetStatusAck())
		require.Len(t, got[1].GetAssign().GetAcks(), maxCarriedAcks)
	})
}
