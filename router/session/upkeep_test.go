package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// newBook returns a dispatcher that does not run, with a machine that it knows.
func newBook(t *testing.T, now time.Time, s Store) (*Dispatcher, *spillway.Pool) {
	t.Helper()
	pool := spillway.Pool{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 1}
	d, err := NewDispatcher(s, Options{Replica: "r", Pools: []spillway.Pool{pool}})
	require.NoError(t, err)
	d.ctx = t.Context()
	d.engine.Connect(now, router.Machine{ID: "m1", Pool: "linux", Capacity: 1}, nil)
	return d, &pool
}

// Every machine ends drained, one day: what is remembered of a drained one must go with
// it.
func TestNothingIsKeptOfAMachineThatIsForgotten(t *testing.T) {
	now := time.Now()
	d, _ := newBook(t, now, nil)
	d.records.heartbeat("m1", true, true)
	d.upkeep.gone["m1"], d.upkeep.ended["m1"] = now, now
	require.NotEmpty(t, d.records.acked)
	d.forget(now, []spillway.MachineID{"m1"}, nil)
	require.Empty(t, d.records.acked)
	require.Empty(t, d.upkeep.gone)
	require.Empty(t, d.upkeep.ended)
	_, known := d.engine.Machine("m1")
	require.False(t, known)
}

// A machine whose stream breaks again before it was taken in, as while the store is away,
// is without a stream for as long as before: it must be given up some time.
func TestAMachineThatIsNotTakenInIsStillGone(t *testing.T) {
	now := time.Now()
	d, pool := newBook(t, now, nil)
	first := &stream{machine: "m1", pool: pool, registered: true}
	d.streams["m1"] = first
	d.closed(now, first, nil)
	require.Contains(t, d.upkeep.gone, spillway.MachineID("m1"))

	again := &stream{machine: "m1", pool: pool}
	d.streams["m1"] = again
	later := now.Add(time.Hour)
	d.giveUpLost(later)
	require.False(t, d.upkeep.lookOut, "it may be back in a moment")
	d.closed(later, again, nil)
	require.Equal(t, map[spillway.MachineID]time.Time{"m1": now}, d.upkeep.gone)
}

// The answer to a claim may be there, and the dispatcher end before it looks at it. Its
// jobs are for others then, at once and with all their attempts.
func TestWhatWasClaimedAtTheEndIsGivenBack(t *testing.T) {
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	d, pool := newBook(t, time.Now(), s)
	need := spillway.Requirement{Tags: pool.Capability.Tags}
	_, err = s.Push(t.Context(), []spillway.Job{{ID: "j1", Requirement: need, Script: "true"}})
	require.NoError(t, err)
	d.claim([]router.ClaimWant{{Class: need.Class(), Pool: "linux", N: 1}})
	d.calls.Wait()
	record, err := s.Get(t.Context(), "j1")
	require.NoError(t, err)
	require.Equal(t, spillway.Assigned, record.State)
	d.shutDown()
	record, err = s.Get(t.Context(), "j1")
	require.NoError(t, err)
	require.Equal(t, spillway.Pending, record.State)
}
