package minirunner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestBreakerNeedsFailuresThatLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := GitLabTimes()
		b := newBreaker(times.BreakerGrace, times.BreakerOpen)
		for range 10 { // a burst does not count
			require.True(t, b.allow())
			require.False(t, b.failure())
		}
		pass(5*time.Second - 1)
		require.False(t, b.failure())
		pass(1)
		require.True(t, b.failure())
		require.False(t, b.allow())
		pass(30*time.Second - 1)
		require.False(t, b.allow())
		pass(1)
		require.True(t, b.allow(), "one trial")
		require.False(t, b.allow(), "and one only")
		require.True(t, b.failure(), "which opens it again by itself")
		pass(30 * time.Second)
		require.True(t, b.allow())
		b.success()
		state, times2 := b.opened()
		require.Equal(t, "closed", state)
		require.Equal(t, 2, times2)
	})
}

func TestASuccessForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(5*time.Second, 30*time.Second)
		b.failure()
		pass(time.Minute)
		b.failure()
		b.success()
		require.False(t, b.failure())
		require.False(t, b.failure())
		require.False(t, b.failure(), "the grace begins anew")
	})
}

func TestThreeStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(GitLabTimes().Unhealthy)
		h.mark(false)
		h.mark(false)
		h.mark(true)
		h.mark(false)
		h.mark(false)
		require.True(t, h.well(), "not in a row")
		h.mark(false)
		require.False(t, h.well())
		require.True(t, h.isOff())
		pass(time.Hour)
		require.False(t, h.well())
		pass(1)
		require.True(t, h.well(), "an hour after it was last well")
	})
}

func TestServerSaysWhenToCallAgain(t *testing.T) {
	require.Equal(t, 7*time.Second, serverSays(map[string][]string{"Retry-After": {"7"}}))
	require.Zero(t, serverSays(map[string][]string{"Retry-After": {"soon"}}))
	require.Zero(t, serverSays(map[string][]string{"Retry-After": {"-1"}}))
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC1123)
	require.InDelta(t, time.Hour, serverSays(map[string][]string{"Ratelimit-Resettime": {at}}), float64(2*time.Second))
}
