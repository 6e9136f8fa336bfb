package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// receive waits for a value.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		require.True(t, ok, "the channel was closed")
		return v
	case <-time.After(within):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func closes[T any](t *testing.T, c <-chan T) {
	t.Helper()
	require.Eventually(t, func() bool {
		select {
		case _, ok := <-c:
			return !ok
		default:
			return false
		}
	}, within, every)
}

var eventContract = []contract{
	{"each change is told", store.Options{}, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		events, err := s.Subscribe(ctx)
		require.NoError(t, err)
		once := job("2", "a")
		once.NoRetry = true
		push(t, s, job("1", "a"), once)
		claimed := claim(t, s, 2, "a")
		require.NoError(t, apply(t, s, running(claimed[0].Ref)))
		require.NoError(t, apply(t, s, completed(claimed[0].Ref)))
		require.NoError(t, release(t, s, store.Release{Ref: claimed[1].Ref}))
		require.NoError(t, release(t, s, store.Release{Ref: claim(t, s, 1, "a")[0].Ref, Lost: true}))
		push(t, s, job("3", "a"))
		_, err = s.Cancel(t.Context(), []spillway.JobID{"3"}, "")
		require.NoError(t, err)
		told := map[spillway.JobID][]spillway.JobState{}
		for n := 0; n < 10; {
			batch := receive(t, events)
			require.False(t, batch.Lost)
			for _, e := range batch.Events {
				require.Empty(t, e.Record.Job.Script)
				require.Empty(t, e.Record.Job.Env)
				told[e.Record.Job.ID] = append(told[e.Record.Job.ID], e.Record.State)
				n++
			}
		}
		require.Equal(t, map[spillway.JobID][]spillway.JobState{
			"1": {spillway.Pending, spillway.Assigned, spillway.Running, spillway.Completed},
			"2": {spillway.Pending, spillway.Assigned, spillway.Pending, spillway.Assigned, spillway.Failed},
			"3": {spillway.Pending},
		}, told)
		require.Equal(t, spillway.Canceled, receive(t, events).Events[0].Record.State)
		cancel()
		closes(t, events)
	}},
	{"a slow reader is told that it lost some", store.Options{}, func(t *testing.T, s *store.Store) {
		events, err := s.Subscribe(t.Context())
		require.NoError(t, err)
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		for n, lost := 0, false; !lost; n++ {
			require.Less(t, n, 100, "nothing was ever lost")
			for i := range 300 {
				push(t, s, job(fmt.Sprint(n, "-", i), "a"))
			}
			receive(t, pokes)
			// What is on its way yet may find room when this is read.
			for more := true; more && !lost; {
				select {
				case batch := <-events:
					lost = batch.Lost
				default:
					more = false
				}
			}
		}
	}},
	{"waiting jobs poke", store.Options{}, func(t *testing.T, s *store.Store) {
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		push(t, s, job("1", "a"))
		receive(t, pokes)
		c := claim(t, s, 1, "a")
		require.NoError(t, release(t, s, store.Release{Ref: c[0].Ref}))
		receive(t, pokes)
	}},
	{"drain orders poke", store.Options{}, func(t *testing.T, s *store.Store) {
		pokes, err := s.DrainPokes(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{{Machine: "m", On: true}}))
		receive(t, pokes)
	}},
	{"the end of the store ends them", store.Options{}, func(t *testing.T, s *store.Store) {
		events, err := s.Subscribe(t.Context())
		require.NoError(t, err)
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Close())
		closes(t, events)
		closes(t, pokes)
	}},
}
