package cells_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
)

// A job that the peer's rules refuse is not offered there again for a time, which grows
// with each refusal; others are.
func TestADeniedJobIsNotTakenAgainForAGrowingTime(t *testing.T) {
	o, pool := linkedBook()
	now := dawn
	for i, wait := range []time.Duration{5, 10, 20, 40, 60, 60} {
		at := cells.Ref{ID: "1", Attempt: i + 1}
		require.True(t, o.Take(now, at, "class", pool))
		send, _ := o.Kept(now, at, o.Newest(), true)
		require.True(t, send)
		require.Equal(t, []cells.Deed{cells.Deny, cells.Confirm}, deeds(o.Heard(now, at, cells.WordDenied, "cell b refused it: no")))
		require.Positive(t, o.Free(now, pool), "others go there at once")
		again := cells.Ref{ID: "1", Attempt: i + 2}
		require.False(t, o.Take(now.Add(wait*minute-1), again, "class", pool))
		why, denied := o.Denies(now.Add(wait*minute-1), "1")
		require.True(t, denied)
		require.Equal(t, "cell b refused it: no", why)
		now = now.Add(wait * minute)
		_, denied = o.Denies(now, "1")
		require.False(t, denied)
	}
	o.ForgetDenied("1")
	require.Empty(t, o.Denied())
}

func TestAnotherReplicaKnowsWhatIsDenied(t *testing.T) {
	o, pool := linkedBook()
	hand(t, o, dawn, 1)
	o.Heard(dawn, ref(1), cells.WordDenied, "no")
	heir, _ := linkedBook()
	heir.InheritDenied(o.Denied())
	require.False(t, heir.Take(dawn, cells.Ref{ID: "1", Attempt: 2}, "class", pool))
	require.True(t, heir.Take(dawn, ref(2), "class", pool))
}

func TestWhatIsDeniedIsBounded(t *testing.T) {
	o, _ := linkedBook()
	known := map[spillway.JobID]cells.Denial{}
	for i := range cells.MaxDenied {
		known[spillway.JobID(fmt.Sprint("job-", i))] = cells.Denial{Until: dawn.Add(time.Hour)}
	}
	known["soon"] = cells.Denial{Until: dawn.Add(minute)}
	o.InheritDenied(known)
	require.Len(t, o.Denied(), cells.MaxDenied)
	o.InheritDenied(map[spillway.JobID]cells.Denial{"new": {Until: dawn.Add(2 * time.Hour)}})
	require.Len(t, o.Denied(), cells.MaxDenied)
	require.NotContains(t, o.Denied(), spillway.JobID("soon"), "it would be offered first")
	require.Contains(t, o.Denied(), spillway.JobID("new"))
}
