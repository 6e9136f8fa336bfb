package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/agent/sidecar"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// connected is an agent with a link that nobody reads.
func connected(t *testing.T) *agent {
	t.Helper()
	a := newAgent(Options{Capacity: 1, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(a.stopTimers)
	ctx, cancel := context.WithCancelCause(t.Context())
	a.link = &link{out: make(chan *runnerv1.RunnerMessage, outQueueMessages), cancel: cancel}
	context.AfterFunc(ctx, func() { a.linkEnded <- context.Cause(ctx) })
	a.registeredAt = time.Now()
	return a
}

// Waits are drawn between 0 and a bound that doubles from 100 ms to 10 s.
func TestReconnectWaits(t *testing.T) {
	for range 20 {
		a := newAgent(Options{Log: slog.New(slog.DiscardHandler)})
		a.stopTimers()
		longest := reconnectFirst
		for range 20 {
			wait := a.backoff.NextBackOff()
			require.GreaterOrEqual(t, wait, time.Duration(0))
			require.LessOrEqual(t, wait, longest+1)
			longest = min(2*longest, reconnectMax)
		}
		require.Equal(t, reconnectMax, longest)
	}
}

func TestResultIsSentAgainOnTheSameLinkAfterAWhile(t *testing.T) {
	a := connected(t)
	ref := attempt{"1", 1}
	h := &heldJob{result: &typesv1.JobResult{}}
	a.held[ref] = h
	sent := func() int {
		before := len(a.link.out)
		a.deliverResults()
		return len(a.link.out) - before
	}
	require.Equal(t, 1, sent(), "never sent on this link")
	require.Zero(t, sent(), "just sent")
	h.sentAt = h.sentAt.Add(-resendAfter)
	require.Equal(t, 1, sent(), "sent long ago")
}

// A router that takes everything and reads nothing is left, and told all again on
// a new stream.
func TestSlowRouterIsLeft(t *testing.T) {
	a := connected(t)
	for range outQueueMessages {
		a.send(drainAckMessage(1, true))
	}
	require.Empty(t, a.linkEnded)
	a.send(drainAckMessage(1, true)) // must not block
	require.ErrorIs(t, <-a.linkEnded, errSlowRouter)
}

// A machine that leaves is not kept by a router that reads nothing any more.
func TestTheLastWordsDoNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := connected(t)
		a.heartbeat()
		began := time.Now()
		a.closeLink()
		require.Equal(t, partWithin, time.Since(began))
	})
}

func TestHeartbeatIntervalIsBounded(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 15 * time.Second, time.Nanosecond: minHeartbeat, 30 * time.Second: 30 * time.Second, time.Hour: maxHeartbeat,
	} {
		a := connected(t)
		a.registered(&runnerv1.Registered{HeartbeatEvery: durationpb.New(asked)})
		require.Equal(t, want, a.beatEvery, "asked for %s", asked)
	}
}

// A machine that is to leave waits for acknowledgements, but not for ever, and the
// wait doesn't start anew with each message.
func TestLingerForAcknowledgements(t *testing.T) {
	a := connected(t)
	a.own = true
	a.held[attempt{"1", 1}] = &heldJob{result: &typesv1.JobResult{}}
	require.False(t, a.mayLeave())
	require.True(t, a.linger.Stop(), "it waits without an end")
	require.False(t, a.mayLeave())
	require.False(t, a.linger.Stop(), "it started to wait again")
	a.lingered = true
	require.True(t, a.mayLeave())
}

// fixedBeside is a runner that is told things.
type fixedBeside struct {
	sidecar.Watch

	told []sidecar.Order
}

func (f *fixedBeside) Order(o sidecar.Order) { f.told = append(f.told, o) }

// A router that knows of no drain any more repeats none. Then the runner serves again.
func TestAnOrderThatIsNotRepeatedIsVoid(t *testing.T) {
	a := connected(t)
	f := &fixedBeside{}
	a.beside = &beside{Beside: f}
	a.obeyDrain(&runnerv1.Drain{DrainId: 1, Draining: true})
	require.True(t, f.told[0].Stop)
	require.False(t, a.forget.Stop())
	a.registered(&runnerv1.Registered{})
	require.Len(t, f.told, 1, "it may come in a moment")
	require.True(t, a.forget.Stop(), "and is waited for")
	a.steer(false)
	require.Len(t, f.told, 2)
	require.False(t, f.told[1].Stop)

	a.obeyDrain(&runnerv1.Drain{DrainId: 2, Draining: true})
	a.registered(&runnerv1.Registered{})
	a.obeyDrain(&runnerv1.Drain{DrainId: 2, Draining: true})
	require.False(t, a.forget.Stop(), "it came")
	a.registered(&runnerv1.Registered{})
	require.True(t, a.forget.Stop())
	require.True(t, f.told[len(f.told)-1].Stop)
}

// A fleet that has lost its router comes back at once. Its heartbeats must not all come
// together from then on: in every one of five parts of the interval there are some.
func TestHeartbeatsOfAFleetThatComesBackAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, fleet = 15 * time.Second, 200
		began := time.Now()
		parts := map[int64]int{}
		for range fleet {
			a := newAgent(Options{Capacity: 1, Log: slog.New(slog.DiscardHandler)})
			a.registered(&runnerv1.Registered{HeartbeatEvery: durationpb.New(every)})
			first := <-a.beat.C
			parts[int64(first.Sub(began)/(every/5))]++
			a.heartbeat()
			second := <-a.beat.C
			require.Equal(t, every, second.Sub(first), "from then on as often as the router says")
			a.stopTimers()
			began = time.Now()
		}
		for part := range int64(5) {
			require.NotZero(t, parts[part], "part %d of %v", part, parts)
		}
		require.Len(t, parts, 5, "none comes later than the router says")
	})
}
