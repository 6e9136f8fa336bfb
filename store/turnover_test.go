package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/store"
)

// turnover is a fleet whose control planes and machines are replaced again and again,
// none of them saying goodbye.
type turnover struct {
	t        *testing.T
	clock    *clock
	store    *store.Store
	pools    []*scaler.Pool
	machines [][]router.Machine // by replica
	tenures  []*scaler.Leases   // by replica
}

const (
	turnoverReplicas = 3
	turnoverMachines = 8 // of each replica
)

func newTurnover(t *testing.T) *turnover {
	f := &turnover{t: t, clock: newClock()}
	f.store = openAt(t, f.clock, store.Options{MachineTTL: time.Hour})
	for _, name := range []string{"blue", "green"} {
		cfg := scaler.PoolConfig{Pool: spillway.Pool{Name: name, Capability: spillway.Capability{Tags: []string{name}}, CapacityPerInstance: 1}}
		f.pools = append(f.pools, scaler.NewPool(cfg, nil, f.store, f.store, nil, &scaler.Events{}))
	}
	f.machines = make([][]router.Machine, turnoverReplicas)
	f.tenures = make([]*scaler.Leases, turnoverReplicas)
	for r := range turnoverReplicas {
		f.restart(r, 0)
	}
	return f
}

// restart puts another process in a replica's place, and other machines in the place
// of half of its own; the other half connect to it again.
func (f *turnover) restart(r, round int) {
	name := fmt.Sprintf("replica-%d-%d", r, round)
	f.tenures[r] = scaler.NewLeases(f.store, name, []string{"blue", "green"}, &scaler.Events{})
	kept := f.machines[r]
	if len(kept) > 0 {
		kept = kept[turnoverMachines/2:]
	}
	f.machines[r] = kept
	for i := len(kept); i < turnoverMachines; i++ {
		id := fmt.Sprintf("m-%d-%d-%d", r, round, i)
		m := router.Machine{ID: spillway.MachineID(id), InstanceID: "i-" + id, Pool: []string{"blue", "green"}[i%2], Capacity: 1, Connected: true}
		f.machines[r] = append(f.machines[r], m)
	}
	for i := range f.machines[r] {
		f.machines[r][i].Replica = name
	}
}

// pass lets time pass in which everybody who is alive shows it.
func (f *turnover) pass(d time.Duration) {
	f.t.Helper()
	for ; d > 0; d -= scaler.LeaseRenew {
		f.clock.advance(scaler.LeaseRenew)
		for r, machines := range f.machines {
			for i := range machines {
				machines[i].HeardAt = f.clock.now()
			}
			require.NoError(f.t, f.store.PutMachines(f.t.Context(), machines))
			f.tenures[r].Renew(f.t.Context(), f.clock.now())
		}
	}
}

// live are the machines that serve each pool, as the demand signals count them.
func (f *turnover) live() (total int) {
	f.t.Helper()
	fleet := scaler.NewFleet(noJobs{f.clock}, f.store, 5*time.Second, spillway.SilentAfter, &scaler.Events{})
	for _, s := range fleet.Observe(f.t.Context(), f.clock.now(), f.pools).Signals {
		total += s.TotalRunners
	}
	return total
}

// holders counts the replicas that may write for each pool.
func (f *turnover) holders() map[string]int {
	held := map[string]int{}
	for _, p := range f.pools {
		for _, l := range f.tenures {
			if _, _, ok := l.Hold(p.Name(), f.clock.now()); ok {
				held[p.Name()]++
			}
		}
	}
	return held
}

type noJobs struct{ *clock }

func (n noJobs) Demand(context.Context) (demand.View, error) { return demand.View{At: n.now()}, nil }

// Fifty times every control plane and half of all machines are replaced, one after
// the other, without a word. What counts as alive is derived from what was heard
// lately: after the silence of those that are gone it is exactly those that are there,
// each pool has one owner, and what is left of the dead goes away with its time.
func TestX12_FiftyRollingRestarts(t *testing.T) {
	t.Parallel()
	f := newTurnover(t)
	f.pass(spillway.SilentAfter)
	for round := range 50 {
		for r := range turnoverReplicas {
			f.restart(r, round+1)
			f.pass(10 * time.Second)
			require.LessOrEqual(t, f.holders()["blue"], 1)
			require.LessOrEqual(t, f.holders()["green"], 1)
		}
		f.pass(spillway.SilentAfter)
		require.Equal(t, turnoverReplicas*turnoverMachines, f.live(), "round %d", round)
		require.Equal(t, map[string]int{"blue": 1, "green": 1}, f.holders(), "round %d", round)
	}
	f.pass(time.Hour)
	left, err := f.store.Machines(t.Context())
	require.NoError(t, err)
	require.Len(t, left, turnoverReplicas*turnoverMachines)
}
