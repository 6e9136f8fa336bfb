package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// A job that is taken away while its result is on the way: whoever reports is told that
// the result is not wanted as soon as the router says so.
func TestAReportThatAnEndOvertakesIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker("worker:w", caller{runner: "w"}, time.Second)
		l := &link{ready: make(chan struct{}), over: make(chan struct{})}
		close(l.ready)
		g := &given{job: "a", attempt: 2, acks: make(chan bool, 1)}
		w.mu.link, w.mu.given = l, g
		require.Same(t, l, w.reports(g))
		w.hear(l, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_CancelJob{CancelJob: &runnerv1.CancelJob{JobId: "a", Attempt: 2}}})
		require.Nil(t, w.has("a"))
		w.hear(l, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_StatusAck{StatusAck: &runnerv1.StatusAck{JobId: "a", Attempt: 2, Stale: true}}})
		stale, err := awaitAck(t.Context(), l, g)
		require.NoError(t, err)
		require.True(t, stale)
	})
}
