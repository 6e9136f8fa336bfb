package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

var seatsContract = []contract{
	{"no more than there are, each machine one", store.Options{}, func(t *testing.T, s *store.Store) {
		require.True(t, takeSeat(t, s, "w1", 2, time.Minute))
		require.True(t, takeSeat(t, s, "w1", 2, time.Minute), "it has one")
		require.True(t, takeSeat(t, s, "w2", 2, time.Minute))
		require.False(t, takeSeat(t, s, "w3", 2, time.Minute))
		require.True(t, takeSeat(t, s, "w2", 1, time.Minute), "who has one keeps it")
		taken, err := s.TakeSeat(t.Context(), "blue", "w3", 2, time.Minute)
		require.NoError(t, err)
		require.True(t, taken, "of another pool")
		require.NoError(t, s.LeaveSeat(t.Context(), "linux", "w1"))
		require.NoError(t, s.LeaveSeat(t.Context(), "linux", "w1"))
		require.True(t, takeSeat(t, s, "w3", 2, time.Minute))
	}},
	{"no longer than is said, unless it is kept", store.Options{}, func(t *testing.T, s *store.Store) {
		require.True(t, takeSeat(t, s, "w1", 1, 50*time.Millisecond))
		require.Eventually(t, func() bool { return takeSeat(t, s, "w2", 1, 50*time.Millisecond) }, within, every)
		require.NoError(t, s.KeepSeats(t.Context(), map[string][]spillway.MachineID{"linux": {"w2"}, "blue": {"w2"}}, time.Minute))
		brief, err := s.TakeSeat(t.Context(), "green", "w1", 1, 100*time.Millisecond)
		require.NoError(t, err)
		require.True(t, brief)
		require.Eventually(t, func() bool { // as long as w2's would have been at most
			free, err := s.TakeSeat(t.Context(), "green", "w2", 1, time.Minute)
			return err == nil && free
		}, within, every)
		require.False(t, takeSeat(t, s, "w1", 1, time.Minute))
		require.NoError(t, s.KeepSeats(t.Context(), map[string][]spillway.MachineID{"linux": {"w1"}}, time.Minute), "who is there is there")
		require.NoError(t, s.LeaveSeat(t.Context(), "linux", "w2"))
		require.False(t, takeSeat(t, s, "w3", 1, time.Minute))
	}},
	{"many are kept at once", store.Options{}, func(t *testing.T, s *store.Store) {
		many := make([]spillway.MachineID, 2*store.MaxBatch+1)
		for i := range many {
			many[i] = spillway.MachineID(fmt.Sprint("w", i))
		}
		require.NoError(t, s.KeepSeats(t.Context(), map[string][]spillway.MachineID{"linux": many}, time.Minute))
		require.False(t, takeSeat(t, s, "another", len(many), time.Minute))
		require.True(t, takeSeat(t, s, "another", len(many)+1, time.Minute))
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		for _, bad := range []func() error{
			func() error { _, err := s.TakeSeat(t.Context(), "linux", "w1", 0, time.Minute); return err },
			func() error { _, err := s.TakeSeat(t.Context(), "Linux!", "w1", 1, time.Minute); return err },
			func() error {
				return s.KeepSeats(t.Context(), map[string][]spillway.MachineID{"linux": {"a b"}}, time.Minute)
			},
			func() error { return s.LeaveSeat(t.Context(), "linux", "") },
		} {
			require.ErrorIs(t, bad(), spillway.ErrInvalid)
		}
	}},
}

func takeSeat(t *testing.T, s *store.Store, machine spillway.MachineID, most int, ttl time.Duration) bool {
	t.Helper()
	taken, err := s.TakeSeat(t.Context(), "linux", machine, most, ttl)
	require.NoError(t, err)
	return taken
}
