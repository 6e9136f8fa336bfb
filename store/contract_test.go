package store_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

var (
	_ scaler.Machines   = (*store.Store)(nil)
	_ scaler.Memory     = (*store.Store)(nil)
	_ scaler.LeaseStore = (*store.Store)(nil)
	_ collect.Counter   = (*store.Store)(nil)
	_ collect.Store     = (*store.Store)(nil)
)

func TestContractEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o store.Options) *store.Store {
		s, err := store.OpenEmbeddedAt(nil, o)
		require.NoError(t, err)
		return closeAtEnd(t, s)
	})
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	losePool(t, closeAtEnd(t, s))
}

func TestContractRedis(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	storetest.Run(t, func(t *testing.T, o store.Options) *store.Store {
		o.Addrs = []string{addr}
		return openIsolated(t, o)
	})
	losePool(t, openIsolated(t, store.Options{Addrs: []string{addr}}))
}

// A Cluster refuses scripts and commands whose keys are in several slots. It counts
// the refusals itself, also those that a caller would have overlooked; and every
// script that there is has been run on it.
func TestX10_ContractCluster(t *testing.T) {
	t.Parallel()
	addrs := storetest.StartCluster(t)
	open := func(t *testing.T, o store.Options) *store.Store {
		o.Addrs, o.Cluster = addrs, true
		return openIsolated(t, o)
	}
	storetest.Run(t, open)
	forgetAClass(t, open(t, store.Options{FinishedTTL: time.Millisecond}))
	losePool(t, open(t, store.Options{}))

	require.Zero(t, refusals(t, addrs))
	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // only some of the contract was to run
	}
	shas := store.ScriptSHAs()
	require.ElementsMatch(t, store.ScriptNames(t), slices.Collect(maps.Keys(shas)))
	for name, sha := range shas {
		known := func(addr string) bool {
			answer, err := storetest.Command(addr, "SCRIPT", "EXISTS", sha)
			require.NoError(t, err)
			return answer == "1"
		}
		require.True(t, slices.ContainsFunc(addrs, known), "%s was never run", name)
	}

	_, err := storetest.Command(addrs[0], "MGET", "one", "two") // so that a count of zero means something
	require.ErrorContains(t, err, "CROSSSLOT")
	require.Equal(t, 1, refusals(t, addrs))
}

// forgetAClass has a class dropped: it is idle for an hour before, which no contract
// on a real server waits for.
func forgetAClass(t *testing.T, s *store.Store) {
	t.Helper()
	_, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.NoError(t, err)
	claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{{Class: classA(), Pool: "p", N: 1}}, time.Minute)
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), []store.Transition{{Ref: claimed[0].Ref, To: spillway.Completed}})
	require.NoError(t, err)
	store.AgeClasses(t, s, 2*time.Hour)
	require.Eventually(t, func() bool {
		_, err := s.Reap(t.Context(), 10)
		return err == nil && len(store.RegisteredClasses(t, s)) == 0
	}, soon, 10*time.Millisecond)
}

// losePool has the slot of a pool lost, and nothing else: the book of the pool begins
// anew, which it says itself, and no other pool's does.
func losePool(t *testing.T, s *store.Store) {
	t.Helper()
	since := func(pool string) time.Time {
		book, err := s.Routed(t.Context(), pool, true)
		require.NoError(t, err)
		return book.Since
	}
	blue, green := since("blue"), since("green")
	now := time.Now()
	begun, err := s.BeginRouted(t.Context(), store.RoutedJob{ID: "1", Pool: "blue", Machine: "m", Begun: now, Until: now.Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, begun)
	require.Equal(t, blue, since("blue"), "what is added to a book makes it no younger")

	store.LosePool(t, s, "blue")
	book, err := s.Routed(t.Context(), "blue", true)
	require.NoError(t, err)
	require.Empty(t, book.Machines)
	require.True(t, book.Since.After(blue), "%s was %s", book.Since, blue)
	require.Equal(t, book.Since, since("blue"))
	require.Equal(t, green, since("green"))
}

// refusals counts what the servers refused because of slots, for whatever reason the
// keys were not where they should be.
func refusals(t *testing.T, addrs []string) (n int) {
	t.Helper()
	for _, addr := range addrs {
		info, err := storetest.Command(addr, "INFO", "errorstats")
		require.NoError(t, err)
		for line := range strings.Lines(info) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line), "errorstat_CROSSSLOT:count="); ok {
				one, err := strconv.Atoi(count)
				require.NoError(t, err)
				n += one
			}
		}
	}
	return n
}

var prefixes atomic.Int64

// openIsolated gives each store keys of its own on a shared server.
func openIsolated(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	o.Prefix, o.Timeout = fmt.Sprintf("t%d", prefixes.Add(1)), patiently
	s, err := store.Open(t.Context(), o)
	require.NoError(t, err)
	return closeAtEnd(t, s)
}

func closeAtEnd(t *testing.T, s *store.Store) *store.Store {
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
