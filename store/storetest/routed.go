package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// routed returns a job that is begun now and stays open for longer than any test.
func routed(pool, machine, id string) store.RoutedJob {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return store.RoutedJob{ID: spillway.JobID(id), Pool: pool, Machine: spillway.MachineID(machine), Begun: now, Until: now.Add(time.Hour)}
}

// begin begins a job; want says whether that succeeds.
func begin(t *testing.T, s *store.Store, j store.RoutedJob, want bool) {
	t.Helper()
	begun, err := s.BeginRouted(t.Context(), j)
	require.NoError(t, err)
	require.Equal(t, want, begun, "job %s on machine %s", j.ID, j.Machine)
}

func end(t *testing.T, s *store.Store, id spillway.JobID, want bool) {
	t.Helper()
	ended, err := s.EndRouted(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, want, ended, "job %s", id)
}

// book returns the book of a machine.
func book(t *testing.T, s *store.Store, pool string, machine spillway.MachineID) (store.RoutedMachine, bool) {
	t.Helper()
	books, err := s.Routed(t.Context(), pool)
	require.NoError(t, err)
	b, ok := books[machine]
	return b, ok
}

func open(t *testing.T, s *store.Store, pool string, machine spillway.MachineID) []store.RoutedJob {
	t.Helper()
	b, _ := book(t, s, pool, machine)
	return b.Open
}

func order(t *testing.T, s *store.Store, pool string, machine spillway.MachineID, on bool) {
	t.Helper()
	require.NoError(t, s.OrderDrain(t.Context(), pool, []router.DrainOrder{{Machine: machine, On: on}}))
}

var routedContract = []contract{
	{"a job is in one machine's book until it ends", store.Options{}, func(t *testing.T, s *store.Store) {
		_, known := book(t, s, "blue", "m")
		require.False(t, known)
		a, b := routed("blue", "m", "1"), routed("blue", "m", "2")
		begin(t, s, a, true)
		begin(t, s, b, true)
		other := routed("green", "m", "3")
		begin(t, s, other, true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, []store.RoutedJob{a, b}, m.Open)
		require.Equal(t, 2, m.Uses)
		require.WithinDuration(t, time.Now(), m.LastUsedAt, within)

		end(t, s, "1", true)
		end(t, s, "1", false)
		end(t, s, "never", false)
		after, _ := book(t, s, "blue", "m")
		require.Equal(t, []store.RoutedJob{b}, after.Open)
		require.Equal(t, 2, after.Uses)
		require.False(t, after.LastUsedAt.Before(m.LastUsedAt))
		require.Equal(t, []store.RoutedJob{other}, open(t, s, "green", "m"))
		end(t, s, "3", true)
	}},
	{"none begins on a machine under an order", store.Options{}, func(t *testing.T, s *store.Store) {
		before := routed("blue", "m", "1")
		begin(t, s, before, true)
		order(t, s, "blue", "m", true)
		begin(t, s, routed("blue", "m", "2"), false)
		begin(t, s, routed("blue", "other", "2"), true)
		begin(t, s, before, true) // again: it was begun before the order
		require.Equal(t, []store.RoutedJob{before}, open(t, s, "blue", "m"))
		end(t, s, "1", true)
		begin(t, s, before, false)
		m, _ := book(t, s, "blue", "m")
		require.Empty(t, m.Open)
		require.Equal(t, 1, m.Uses)
		order(t, s, "blue", "m", false)
		begin(t, s, before, true)
	}},
	{"once more is once", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		begin(t, s, j, true)
		later := j
		later.Begun, later.Until = j.Begun.Add(time.Minute), j.Until.Add(time.Minute)
		begin(t, s, later, true)
		begin(t, s, j, true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
		j.Until = later.Until
		require.Equal(t, []store.RoutedJob{j}, m.Open, "its first begin, its last until")
	}},
	{"a job that is given out anew moves", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		begin(t, s, j, true)
		order(t, s, "blue", "no", true)
		j.Machine = "no"
		begin(t, s, j, false)
		require.Len(t, open(t, s, "blue", "m"), 1, "it stays where it is if it can't move")
		j.Machine = "n"
		begin(t, s, j, true)
		require.Empty(t, open(t, s, "blue", "m"))
		require.Len(t, open(t, s, "blue", "n"), 1)

		j.Pool, j.Begun = "green", j.Begun.Add(time.Microsecond)
		begin(t, s, j, true)
		require.Empty(t, open(t, s, "blue", "n"))
		require.Equal(t, []store.RoutedJob{j}, open(t, s, "green", "n"))
		j.Pool, j.Begun = "blue", j.Begun.Add(-time.Second)
		begin(t, s, j, true)
		require.Len(t, open(t, s, "green", "n"), 1, "a late word of an older begin strikes no newer one")
		end(t, s, "1", true)
		require.Empty(t, open(t, s, "green", "n"))
		require.Empty(t, open(t, s, "blue", "n"))
	}},
	{"it is open until its until", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		j.Until = time.Now().Add(300 * time.Millisecond)
		begin(t, s, j, true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 0 }, within, every)
		require.False(t, time.Now().Before(j.Until))
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
		end(t, s, "1", false)
		_, err := s.BeginRouted(t.Context(), j)
		require.ErrorIs(t, err, spillway.ErrInvalid, "it would not be in the book that the scaler reads")
	}},
	{"a machine that is removed has no book", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "m", "1"), true)
		begin(t, s, routed("blue", "n", "2"), true)
		require.NoError(t, s.RemoveMachines(t.Context(), "blue", []spillway.MachineID{"m"}))
		_, known := book(t, s, "blue", "m")
		require.False(t, known)
		end(t, s, "1", false)
		require.Len(t, open(t, s, "blue", "n"), 1)
		begin(t, s, routed("blue", "m", "3"), true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
	}},
	{"a book lives as long as the record, or the last open job", store.Options{MachineTTL: 300 * time.Millisecond}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "busy", "1"), true)
		begin(t, s, routed("blue", "kept", "2"), true)
		end(t, s, "2", true)
		begin(t, s, routed("blue", "gone", "3"), true)
		end(t, s, "3", true)
		require.Eventually(t, func() bool {
			require.NoError(t, s.PutMachines(t.Context(), []router.Machine{machine("blue", "kept")}))
			_, known := book(t, s, "blue", "gone")
			return !known
		}, within, every)
		kept, _ := book(t, s, "blue", "kept")
		require.Equal(t, 1, kept.Uses)
		require.Len(t, open(t, s, "blue", "busy"), 1)
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		good := routed("blue", strings.Repeat("m", 1024), strings.Repeat("1", spillway.MaxJobIDBytes))
		good.Until = good.Begun.Add(store.MaxRoutedFor)
		begin(t, s, good, true)
		for name, change := range map[string]func(*store.RoutedJob){
			"no id":        func(j *store.RoutedJob) { j.ID = "" },
			"long id":      func(j *store.RoutedJob) { j.ID += "1" },
			"blank":        func(j *store.RoutedJob) { j.ID = "1 2" },
			"pool":         func(j *store.RoutedJob) { j.Pool = "{no}" },
			"no machine":   func(j *store.RoutedJob) { j.Machine = "" },
			"long machine": func(j *store.RoutedJob) { j.Machine += "m" },
			"never begun":  func(j *store.RoutedJob) { j.Begun = time.Time{} },
			"ends first":   func(j *store.RoutedJob) { j.Until = j.Begun },
			"too long":     func(j *store.RoutedJob) { j.Until = j.Until.Add(1) },
		} {
			j := good
			change(&j)
			_, err := s.BeginRouted(t.Context(), j)
			require.ErrorIs(t, err, spillway.ErrInvalid, name)
		}
		_, err := s.EndRouted(t.Context(), "")
		require.ErrorIs(t, err, spillway.ErrInvalid)
	}},
}
