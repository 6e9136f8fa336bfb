package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

var workContract = []contract{
	{"what a worker was given stays until it is given something else, or it is dropped", store.Options{}, func(t *testing.T, s *store.Store) {
		_, ok, err := s.Work(t.Context(), "w1")
		require.NoError(t, err)
		require.False(t, ok)
		first := store.Work{Machine: "w1", Pool: "linux", Job: "a", Attempt: 1, Replica: "one", By: "ci (DNS:w1)"}
		require.NoError(t, s.PutWork(t.Context(), first, time.Minute))
		requireWork(t, s, first)
		again := store.Work{Machine: "w1", Pool: "linux", Job: "a", Attempt: 2, Replica: "two"}
		require.NoError(t, s.PutWork(t.Context(), again, time.Minute))
		requireWork(t, s, again)
		require.NoError(t, s.DropWork(t.Context(), first)) // another attempt by now
		requireWork(t, s, again)
		require.NoError(t, s.DropWork(t.Context(), again))
		require.NoError(t, s.DropWork(t.Context(), again))
		_, ok, err = s.Work(t.Context(), "w1")
		require.NoError(t, err)
		require.False(t, ok)
	}},
	{"no longer than is said", store.Options{}, func(t *testing.T, s *store.Store) {
		w := store.Work{Machine: "w1", Pool: "linux", Job: "a", Attempt: 1}
		require.NoError(t, s.PutWork(t.Context(), w, 50*time.Millisecond))
		require.Eventually(t, func() bool {
			_, ok, err := s.Work(t.Context(), "w1")
			return err == nil && !ok
		}, within, every)
	}},
	{"bad work is refused", store.Options{}, func(t *testing.T, s *store.Store) {
		for _, change := range []func(*store.Work){
			func(w *store.Work) { w.Machine = "" },
			func(w *store.Work) { w.Machine = "a b" },
			func(w *store.Work) { w.Machine = spillway.MachineID(strings.Repeat("m", 129)) },
			func(w *store.Work) { w.Job = "" },
			func(w *store.Work) { w.Job = spillway.JobID(strings.Repeat("j", spillway.MaxJobIDBytes+1)) },
			func(w *store.Work) { w.Pool = "No pool" },
			func(w *store.Work) { w.Attempt = 0 },
			func(w *store.Work) { w.By = strings.Repeat("b", 1025) },
		} {
			w := store.Work{Machine: "w1", Pool: "linux", Job: "a", Attempt: 1}
			require.NoError(t, s.PutWork(t.Context(), w, time.Minute))
			change(&w)
			require.ErrorIs(t, s.PutWork(t.Context(), w, time.Minute), spillway.ErrInvalid)
			require.ErrorIs(t, s.DropWork(t.Context(), w), spillway.ErrInvalid)
		}
		w := store.Work{Machine: "w1", Pool: "linux", Job: "a", Attempt: 1}
		require.ErrorIs(t, s.PutWork(t.Context(), w, 0), spillway.ErrInvalid)
		require.ErrorIs(t, s.PutWork(t.Context(), w, store.MaxWorkTTL+1), spillway.ErrInvalid)
		require.NoError(t, s.PutWork(t.Context(), w, store.MaxWorkTTL))
	}},
}

func requireWork(t *testing.T, s *store.Store, want store.Work) {
	t.Helper()
	got, ok, err := s.Work(t.Context(), want.Machine)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
}
