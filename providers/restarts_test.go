package providers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRestartsBackOffAndThenBreak(t *testing.T) {
	r := restarts{timing: Timing{}.withDefaults()}
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

	now = now.Add(wait + time.Minute)
	wait, broken = r.died(now, time.Minute, false)
	require.False(t, broken)
	require.Zero(t, wait, "the first restart comes at once")
}

// TestC42_SlowDeathsOnlyBackOff: 20 kills in 10 minutes are no crash loop.
func TestC42_SlowDeathsOnlyBackOff(t *testing.T) {
	r := restarts{timing: Timing{}.withDefaults()}
	now := time.Unix(0, 0)
	for range 20 {
		wait, broken := r.died(now, 30*time.Second, false)
		require.False(t, broken)
		require.LessOrEqual(t, wait, time.Minute)
		now = now.Add(wait + 30*time.Second)
	}
}

func TestAHopelessFailureBreaksAtOnce(t *testing.T) {
	r := restarts{timing: Timing{}.withDefaults()}
	wait, broken := r.died(time.Unix(0, 0), 0, true)
	require.True(t, broken)
	require.Equal(t, time.Minute, wait)
}

// TestX23_RestartWaitsAreBounded: whatever happens, there is another attempt within
// a minute, never more than crashLoop attempts in one, and the memory is bounded.
func TestX23_RestartWaitsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := restarts{timing: Timing{}.withDefaults()}
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
			if n := len(starts); n > crashLoop+1 && starts[n-1].Sub(starts[n-1-crashLoop]) < time.Minute/2 {
				rt.Fatalf("%d starts within %v", crashLoop+1, starts[n-1].Sub(starts[n-1-crashLoop]))
			}
			if len(r.deaths) > crashLoop {
				rt.Fatalf("remembers %d deaths", len(r.deaths))
			}
		}
	})
}

// TestRestartsAreUneven: plugins that died together don't start together.
func TestRestartsAreUneven(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := unevenly(time.Second)
		require.LessOrEqual(t, d, time.Second)
		require.GreaterOrEqual(t, d, 800*time.Millisecond-1)
		seen[d] = true
	}
	require.Greater(t, len(seen), 50)
	require.Zero(t, unevenly(0), "at once is at once")
}
