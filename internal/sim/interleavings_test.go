package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestC26 lets a job arrive at a thousand moments around the two looks of a
// scale-in: when the idle instance is chosen and drained, and when it is removed.
// Whatever comes first, no job is hit and none is forgotten.
func TestC26_AJobMayArriveAtAnyMomentOfAScaleIn(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand stories")
	}
	const each = 500
	for _, around := range []int{60_000, 65_000} { // ms: the drain, the removal
		taken := 0
		for i := range each {
			at := around - 50 + i/5 // 100 ms around, five stories for each of them
			r := run(t, fmt.Sprintf(`
seed: %d
duration: 5m
config:
  pools: [{name: linux, capability: {tags: [docker]}, policy: {idle_time: 1m}}]
cloud: {linux: {initial: 2, boot: 30s}}
jobs: [{at: %d.%03ds, id: j, count: %d, tags: [docker], duration: 60s}]
`, i, at/1000, at%1000, 1+i%3))
			require.Zero(t, r.BusyKills)
			require.Zero(t, r.ForcedKills)
			require.Empty(t, r.Violations)
			require.Equal(t, r.Jobs.Submitted, r.Jobs.Completed)
			if r.Pools["linux"].Launches == 0 {
				taken++
			}
		}
		require.Positive(t, taken, "some must come in time for an instance that is drained already")
		require.Less(t, taken, each, "and some too late")
	}
}
