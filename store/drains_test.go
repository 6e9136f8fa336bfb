package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// A pool that can't be read is left out, and keeps nobody from knowing the others'.
func TestDrainsOfManyPools(t *testing.T) {
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	none, err := s.DrainsOf(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)

	var pools []string
	for i := range store.DrainsPipeline + 1 {
		pools = append(pools, fmt.Sprint("pool-", i))
	}
	last := pools[len(pools)-1]
	order := []router.DrainOrder{{Machine: "m", On: true, Reason: "idle"}}
	require.NoError(t, s.OrderDrain(t.Context(), last, order))
	all, err := s.DrainsOf(t.Context(), pools)
	require.NoError(t, err)
	require.Len(t, all, len(pools))
	require.Empty(t, all[pools[0]])
	require.Contains(t, all[last], spillway.MachineID("m"))

	store.BreakDrains(t, s, pools[0])
	some, err := s.DrainsOf(t.Context(), pools)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorContains(t, err, pools[0])
	require.NotContains(t, some, pools[0], "what was ordered there is not known")
	require.Len(t, some, len(pools)-1)
	require.Equal(t, all[last], some[last])
}
