package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// some is an experience of every kind.
func some(mean time.Duration, machine spillway.MachineID) router.Experience {
	return router.Experience{
		Durations: []router.LearnedDuration{{Pool: "linux", Job: "unit tests: \"a b\"", Mean: mean}},
		Warm: []router.LearnedWarm{
			{Word: "cache", Machines: []spillway.MachineID{machine, "m 2"}},
			{Project: 7, Machines: []spillway.MachineID{machine}},
		},
	}
}

var experienceContract = []contract{
	{"each learns what the others do, and not what it knows", store.Options{}, func(t *testing.T, s *store.Store) {
		got, one := share(t, s, 0, some(time.Second, "m1"))
		require.True(t, got.Empty())
		got, two := share(t, s, 0, router.Experience{})
		requireSame(t, some(time.Second, "m1"), got)
		got, one = share(t, s, one, router.Experience{})
		require.True(t, got.Empty(), "its own")
		got, two = share(t, s, two, some(3*time.Second, "m3"))
		require.True(t, got.Empty())
		got, _ = share(t, s, one, router.Experience{})
		requireSame(t, some(3*time.Second, "m3"), got)
		got, _ = share(t, s, two, router.Experience{})
		require.True(t, got.Empty())
		got, _ = share(t, s, 0, router.Experience{})
		requireSame(t, some(3*time.Second, "m3"), got) // one that was started anew
		got, _ = share(t, s, 1_000_000, router.Experience{})
		requireSame(t, some(3*time.Second, "m3"), got) // one whose store was lost meanwhile
	}},
	{"what was learned longest ago goes", store.Options{}, func(t *testing.T, s *store.Store) {
		const batch = router.MaxExperience
		at := uint64(0)
		for i := range store.MaxExperience/batch + 1 {
			var x router.Experience
			for k := range batch {
				x.Durations = append(x.Durations, router.LearnedDuration{Pool: "linux", Job: fmt.Sprint(i, " ", k), Mean: time.Second})
			}
			if _, at = share(t, s, at, x); i == 0 {
				share(t, s, at, some(time.Second, "m1"))
			}
		}
		jobs := map[string]bool{}
		got, _ := share(t, s, 0, router.Experience{})
		for _, d := range got.Durations {
			jobs[d.Job] = true
		}
		require.Len(t, jobs, 2*batch, "the latest, as much as one answer may have")
		last := store.MaxExperience / batch
		for k := range batch {
			require.True(t, jobs[fmt.Sprint(last, " ", k)])
		}
		require.Empty(t, got.Warm)
	}},
}

func share(t *testing.T, s *store.Store, since uint64, x router.Experience) (router.Experience, uint64) {
	t.Helper()
	got, number, err := s.ShareExperience(t.Context(), since, x)
	require.NoError(t, err)
	return got, number
}

func requireSame(t *testing.T, want, got router.Experience) {
	t.Helper()
	require.ElementsMatch(t, want.Durations, got.Durations)
	require.ElementsMatch(t, want.Warm, got.Warm)
}
