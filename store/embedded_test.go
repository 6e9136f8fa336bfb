package store_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// clock is moved by hand.
type clock struct {
	mu struct {
		sync.Mutex
		at time.Time
	}
}

func newClock() *clock {
	c := &clock{}
	c.mu.at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return c
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.at = c.mu.at.Add(d)
}

func openAt(t *testing.T, c *clock, o store.Options) *store.Store {
	t.Helper()
	s, err := store.OpenEmbeddedAt(c.now, o)
	require.NoError(t, err)
	return closeAtEnd(t, s)
}

func simpleJob(id, tag string) spillway.Job {
	return spillway.Job{ID: spillway.JobID(id), Script: "true", Requirement: spillway.Requirement{Tags: []string{tag}}}
}

func TestEmbeddedFollowsItsClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, c, store.Options{MachineTTL: time.Hour})
	lease, err := s.Acquire(t.Context(), "l", "a", 15*time.Second)
	require.NoError(t, err)
	require.Equal(t, c.now().Add(15*time.Second), lease.Until)
	require.Equal(t, uint64(c.now().UnixMilli())<<10, lease.Epoch)
	require.NoError(t, s.PutMachines(t.Context(), []router.Machine{{ID: "m", Pool: "p"}}))
	require.NoError(t, s.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m", On: true}}))

	c.advance(15*time.Second - time.Millisecond)
	_, err = s.Acquire(t.Context(), "l", "b", 15*time.Second)
	require.ErrorIs(t, err, store.ErrLeaseHeld)
	c.advance(time.Millisecond)
	_, err = s.RenewLease(t.Context(), lease, 15*time.Second)
	require.ErrorIs(t, err, store.ErrLeaseLost)
	_, err = s.Acquire(t.Context(), "l", "b", 15*time.Second)
	require.NoError(t, err)

	c.advance(time.Hour)
	machines, err := s.Machines(t.Context())
	require.NoError(t, err)
	require.Empty(t, machines)
	drains, err := s.Drains(t.Context(), "p")
	require.NoError(t, err)
	require.Empty(t, drains)
}

func TestSubmissionIsTheServersTime(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, c, store.Options{})
	_, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a"), simpleJob("2", "a")})
	require.NoError(t, err)
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, c.now(), counts[0].Oldest)
	second, err := s.Get(t.Context(), "2")
	require.NoError(t, err)
	require.Equal(t, c.now().Add(time.Microsecond), second.Job.SubmittedAt) // equal times keep their order
}

// An epoch is read by its number, so that a manual clock shows exactly which.
func TestViewEpochs(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Second
	c := newClock()
	s := openAt(t, c, store.Options{})
	write := func(replica string, n int) {
		require.NoError(t, s.WriteView(t.Context(), "src", replica, interval, map[spillway.JobClass][]spillway.JobID{"a": numberIDs(n)}))
	}
	read := func(expected ...string) store.ViewCounts {
		v, err := s.ReadView(t.Context(), "src", interval, expected)
		require.NoError(t, err)
		return v
	}
	c.advance(interval - c.now().Sub(c.now().Truncate(interval)))
	first := c.now()
	write("r1", 900)
	write("r2", 1000)
	require.Empty(t, read("r1").Jobs, "the epoch is not over")
	c.advance(interval)
	v := read("r1", "r2")
	require.Equal(t, store.ViewCounts{
		Epoch: first.UnixMilli() / interval.Milliseconds(), Jobs: map[spillway.JobClass]int{"a": 1000}, Whole: true, At: first,
	}, v)
	write("r1", 3)
	v = read("r1", "r2", "r3")
	require.False(t, v.Whole)
	require.Equal(t, []string{"r3"}, v.Missing)
	c.advance(interval - time.Millisecond)
	require.Equal(t, 1000, read().Jobs["a"], "until the last moment")
	c.advance(time.Millisecond)
	v = read("r1", "r2")
	require.Equal(t, map[spillway.JobClass]int{"a": 3}, v.Jobs)
	require.Equal(t, []string{"r2"}, v.Missing)
	require.False(t, v.Whole)
	c.advance(interval)
	require.Empty(t, read().Jobs)
}

func numberIDs(n int) []spillway.JobID {
	jobs := make([]spillway.JobID, n)
	for i := range jobs {
		jobs[i] = spillway.JobID(numberID(i))
	}
	return jobs
}

// The embedded store needs neither sockets nor real time.
func TestEmbeddedInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		_, err = s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
		require.NoError(t, err)
		<-pokes
		class := spillway.Requirement{Tags: []string{"a"}}.Class()
		_, err = s.Claim(t.Context(), "r", []router.ClaimWant{{Class: class, Pool: "p", N: 1}}, time.Hour)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		records, err := s.Reap(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.NoError(t, s.Close())
	})
}

// A long pipeline on a connection without a buffer must not block for ever.
func TestEmbeddedLongPipeline(t *testing.T) {
	t.Parallel()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	closeAtEnd(t, s)
	names := make([]string, 500) // some 100 KB
	for i := range names {
		names[i] = numberID(i)
	}
	held, err := s.HoldLeases(t.Context(), names, "me", time.Minute)
	require.NoError(t, err)
	require.Len(t, held, len(names))
}

func TestIdleClassesAreForgotten(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, c, store.Options{FinishedTTL: time.Minute})
	_, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a"), simpleJob("2", "b")})
	require.NoError(t, err)
	class := spillway.Requirement{Tags: []string{"a"}}.Class()
	claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{{Class: class, Pool: "p", N: 1}}, time.Minute)
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), []store.Transition{{Ref: claimed[0].Ref, To: spillway.Completed}})
	require.NoError(t, err)
	for range 3 {
		c.advance(45 * time.Minute)
		_, err = s.Reap(t.Context(), 10)
		require.NoError(t, err)
	}
	require.Equal(t, []spillway.JobClass{spillway.Requirement{Tags: []string{"b"}}.Class()}, store.RegisteredClasses(t, s))
	_, err = s.Push(t.Context(), []spillway.Job{simpleJob("3", "a")})
	require.NoError(t, err)
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Len(t, counts, 2)
}
