package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

var (
	_ scaler.Machines   = (*store.Store)(nil)
	_ scaler.Memory     = (*store.Store)(nil)
	_ scaler.LeaseStore = (*store.Store)(nil)
	_ collect.Counter   = (*store.Store)(nil)
)

func TestContractEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o store.Options) *store.Store {
		s, err := store.OpenEmbeddedAt(nil, o)
		require.NoError(t, err)
		return closeAtEnd(t, s)
	})
}

func TestContractRedis(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	storetest.Run(t, func(t *testing.T, o store.Options) *store.Store {
		o.Addrs = []string{addr}
		return openIsolated(t, o)
	})
}

// A Cluster refuses scripts and commands whose keys are in several slots.
func TestContractCluster(t *testing.T) {
	t.Parallel()
	addrs := storetest.StartCluster(t)
	storetest.Run(t, func(t *testing.T, o store.Options) *store.Store {
		o.Addrs, o.Cluster = addrs, true
		return openIsolated(t, o)
	})
}

var prefixes atomic.Int64

// openIsolated gives each store keys of its own on a shared server.
func openIsolated(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	o.Prefix = fmt.Sprintf("t%d", prefixes.Add(1))
	s, err := store.Open(t.Context(), o)
	require.NoError(t, err)
	return closeAtEnd(t, s)
}

func closeAtEnd(t *testing.T, s *store.Store) *store.Store {
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
