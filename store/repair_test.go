package store_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// What a crash between two scripts leaves behind is repaired by pushing again.
func TestInterruptedPush(t *testing.T) {
	t.Parallel()
	s := openPatiently(t, storetest.StartRedis(t))
	push := func(j spillway.Job) store.PushOutcome {
		outcomes, err := s.Push(t.Context(), []spillway.Job{j})
		require.NoError(t, err)
		return outcomes[0]
	}
	require.Equal(t, store.Accepted, push(simpleJob("1", "a")))
	store.LoseClass(t, s, classA())
	_, err := s.Get(t.Context(), "1")
	require.ErrorIs(t, err, store.ErrUnknownJob)
	require.Equal(t, store.Accepted, push(simpleJob("1", "a")))
	store.LoseIndex(t, s, "1")
	require.Equal(t, store.Duplicate, push(simpleJob("1", "a")))
	r, err := s.Get(t.Context(), "1")
	require.NoError(t, err)
	require.Equal(t, spillway.Pending, r.State)
	// The entry of a lost job is too young to be taken over by another class.
	store.LoseClass(t, s, classA())
	require.Equal(t, store.Conflict, push(simpleJob("1", "b")))
}

// A class whose needs are not known must not look like one that needs nothing.
func TestLostRequirements(t *testing.T) {
	t.Parallel()
	s := openPatiently(t, storetest.StartRedis(t))
	_, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.NoError(t, err)
	store.LoseRequirements(t, s)
	_, err = s.Counts(t.Context())
	require.ErrorIs(t, err, store.ErrUnavailable)
	_, err = s.Push(t.Context(), []spillway.Job{simpleJob("2", "a")})
	require.NoError(t, err)
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, counts[0].Pending)
	require.Equal(t, []string{"a"}, counts[0].Requirement.Tags)
}

// Several replicas at once: each job is run once, though some are given back.
func TestReplicasShareTheQueue(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	const replicas, jobs = 4, 3_000
	first := openPatiently(t, addr)
	all := make([]spillway.Job, jobs)
	for i := range all {
		all[i] = simpleJob(numberID(i), strconv.Itoa(i%3))
	}
	_, err := first.Push(t.Context(), all)
	require.NoError(t, err)
	var wants []router.ClaimWant
	for tag := range 3 {
		class := spillway.Requirement{Tags: []string{strconv.Itoa(tag)}}.Class()
		wants = append(wants, router.ClaimWant{Class: class, Pool: "p", N: 7})
	}
	var ended atomic.Int64
	var wg sync.WaitGroup
	for r := range replicas {
		s := openPatiently(t, addr)
		wg.Go(func() {
			for n := 0; ended.Load() < jobs; n++ {
				claimed, err := s.Claim(context.Background(), strconv.Itoa(r), wants, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				ended.Add(finishMost(t, s, claimed, n))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, jobs, ended.Load())
	counts, err := first.Counts(t.Context())
	require.NoError(t, err)
	require.Empty(t, counts)
}

// finishMost ends all jobs but one, which it gives back, and returns how many ended.
func finishMost(t *testing.T, s *store.Store, claimed []router.Claimed, n int) int64 {
	var ends []store.Transition
	var back []store.Release
	for i, c := range claimed {
		if i == n%8 {
			back = append(back, store.Release{Ref: c.Ref})
		} else {
			ends = append(ends, store.Transition{Ref: c.Ref, To: spillway.Completed})
		}
	}
	errs, err := s.Apply(context.Background(), ends)
	moreErrs, moreErr := s.Release(context.Background(), back)
	if err := errors.Join(append(append(errs, moreErrs...), err, moreErr)...); err != nil {
		t.Error(err)
	}
	return int64(len(ends))
}

func TestLeftoversOfTheIndex(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, c, store.Options{})
	for _, id := range []string{"1", "2"} {
		_, err := s.Push(t.Context(), []spillway.Job{simpleJob(id, "a")})
		require.NoError(t, err)
	}
	_, err := s.Push(t.Context(), []spillway.Job{simpleJob("3", "b")})
	require.NoError(t, err)
	store.LoseClass(t, s, classA())
	c.advance(2 * time.Minute)
	outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "b")})
	require.NoError(t, err)
	require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes, "an old entry without a job is taken over")
	for range 32 { // once around all shards
		_, err := s.Reap(t.Context(), 1)
		require.NoError(t, err)
	}
	require.True(t, store.Indexed(t, s, "1"))
	require.False(t, store.Indexed(t, s, "2"))
	require.True(t, store.Indexed(t, s, "3"))
}
