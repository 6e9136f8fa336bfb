package providers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRestartsBackOffAndThenBreak(t *testing.T) {
	var r restarts
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{0, 1 * time.Second, 2 * time.Second, 4 * time.Second} {
		wait, broken := r.died(now, 0, false)
		require.False(t, broken)
		require.Equal(t, want, wait, "death %d", i+1)
		now = now.Add(wait)
	}
	wait, broken := r.died(now, 0, false)
	require.True(t, broken, "5 in a minute")
	require.Equal(t, time.Minute, wait)

	now = now.Add(wait)
	wait, broken = r.died(now, time.Second, false)
	require.True(t, broken, "until one has lived for a minute")
	require.Equal(t, time.Minute, wait)

	now = now.Add(wait + stableAfter)
	wait, broken = r.died(now, stableAfter, false)
	require.False(t, broken)
	require.Zero(t, wait, "the first restart comes at once")
}

// TestSlowDeathsOnlyBackOff (C42): 20 kills in 10 minutes are no crash loop.
func TestSlowDeathsOnlyBackOff(t *testing.T) {
	var r restarts
	now := time.Unix(0, 0)
	for range 20 {
		wait, broken := r.died(now, 30*time.Second, false)
		require.False(t, broken)
		require.LessOrEqual(t, wait, maxRestartWait)
		now = now.Add(wait + 30*time.Second)
	}
}

func TestAHopelessFailureBreaksAtOnce(t *testing.T) {
	var r restarts
	wait, broken := r.died(time.Unix(0, 0), 0, true)
	require.True(t, broken)
	require.Equal(t, brokenRetry, wait)
}

// TestRestartWaitsAreBounded: whatever happens, there is another attempt within
// a minute, never more than crashLoop attempts in one, and the memory is bounded.
func TestRestartWaitsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var r restarts
		now := time.Unix(0, 0)
		var starts []time.Time
		for range rapid.IntRange(1, 60).Draw(rt, "deaths") {
			life := time.Duration(rapid.IntRange(0, 70).Draw(rt, "life, s")) * time.Second
			now = now.Add(life)
			wait, _ := r.died(now, life, rapid.IntRange(0, 9).Draw(rt, "hopeless") == 0)
			if wait < 0 || wait > time.Minute {
				rt.Fatalf("waits %v", wait)
			}
			now = now.Add(wait)
			starts = append(starts, now)
			if n := len(starts); n > crashLoop+1 && starts[n-1].Sub(starts[n-1-crashLoop]) < crashLoopSpan/2 {
				rt.Fatalf("%d starts within %v", crashLoop+1, starts[n-1].Sub(starts[n-1-crashLoop]))
			}
			if len(r.deaths) > crashLoop {
				rt.Fatalf("remembers %d deaths", len(r.deaths))
			}
		}
	})
}
