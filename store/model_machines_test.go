package store_test

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	modelMachineTTL   = 20 * time.Second
	modelViewInterval = 10 * time.Second
)

// machinesModel is the machines of pools and the orders to drain them.
type machinesModel struct {
	s        *store.Store
	clock    *clock
	machines map[place]modelMachine
	orders   map[place]router.DrainOrder
	forget   map[string]time.Time // when the orders of a pool are gone, all of them
}

type modelMachine struct {
	router.Machine
	until time.Time
}

func machinesActions(s *store.Store, c *clock) actions {
	m := &machinesModel{s: s, clock: c, machines: map[place]modelMachine{}, orders: map[place]router.DrainOrder{}, forget: map[string]time.Time{}}
	return actions{"put": m.put, "put again": m.put, "remove": m.remove, "order": m.order, "": m.check}
}

func anyMachine(t *rapid.T) place {
	return place{rapid.SampledFrom(routedPools).Draw(t, "pool"), rapid.SampledFrom(routedMachines).Draw(t, "machine")}
}

// tidy drops what has expired, as every change of a pool's machines does: the order of a
// machine goes with its record.
func (m *machinesModel) tidy(pool string) {
	for p, machine := range m.machines {
		if p.pool == pool && !machine.until.After(m.clock.now()) {
			m.drop(p)
		}
	}
}

func (m *machinesModel) drop(p place) {
	delete(m.machines, p)
	delete(m.orders, p)
}

func (m *machinesModel) put(t *rapid.T) {
	p := anyMachine(t)
	machine := router.Machine{
		ID: p.machine, Pool: p.pool, Capacity: rapid.IntRange(1, 4).Draw(t, "capacity"), Connected: rapid.Bool().Draw(t, "connected"),
	}
	require.NoError(t, m.s.PutMachines(t.Context(), []router.Machine{machine}))
	m.tidy(p.pool)
	m.machines[p] = modelMachine{machine, m.clock.now().Add(modelMachineTTL)}
}

func (m *machinesModel) remove(t *rapid.T) {
	p := anyMachine(t)
	require.NoError(t, m.s.RemoveMachines(t.Context(), p.pool, []spillway.MachineID{p.machine}))
	m.tidy(p.pool)
	m.drop(p)
}

func (m *machinesModel) order(t *rapid.T) {
	p := anyMachine(t)
	o := router.DrainOrder{Machine: p.machine, On: rapid.Bool().Draw(t, "on"), Terminate: rapid.Bool().Draw(t, "terminate"), Reason: letter(t, "reason")}
	require.NoError(t, m.s.OrderDrain(t.Context(), p.pool, []router.DrainOrder{o}))
	m.expireOrders(p.pool)
	if !o.On {
		delete(m.orders, p)
		return
	}
	o.At = m.clock.now().Truncate(time.Microsecond)
	if standing, ok := m.orders[p]; ok {
		o.At = standing.At
	}
	m.orders[p] = o
	m.forget[p.pool] = m.clock.now().Add(modelMachineTTL)
}

// expireOrders: nobody has ordered anything for a pool for too long.
func (m *machinesModel) expireOrders(pool string) {
	if until, ok := m.forget[pool]; ok && !until.After(m.clock.now()) {
		maps.DeleteFunc(m.orders, func(p place, _ router.DrainOrder) bool { return p.pool == pool })
	}
}

func (m *machinesModel) check(t *rapid.T) {
	var want []place
	for p, machine := range m.machines {
		if machine.until.After(m.clock.now()) {
			want = append(want, p)
		}
	}
	all, err := m.s.Machines(t.Context())
	require.NoError(t, err)
	var got []place
	for _, machine := range all {
		got = append(got, place{machine.Pool, machine.ID})
	}
	require.ElementsMatch(t, want, got)
	ordered, err := m.s.DrainsOf(t.Context(), routedPools)
	require.NoError(t, err)
	for _, pool := range routedPools {
		m.expireOrders(pool)
		orders, err := m.s.Drains(t.Context(), pool)
		require.NoError(t, err)
		require.Equal(t, orders, ordered[pool])
		for _, id := range routedMachines {
			m.checkMachine(t, place{pool, id}, slices.Contains(want, place{pool, id}), orders)
		}
	}
}

func (m *machinesModel) checkMachine(t *rapid.T, p place, lives bool, orders map[spillway.MachineID]router.DrainOrder) {
	machine, live, err := m.s.Machine(t.Context(), p.pool, p.machine)
	require.NoError(t, err)
	require.Equal(t, lives, live, "%v", p)
	if live {
		require.Equal(t, m.machines[p].Capacity, machine.Capacity)
		require.Equal(t, m.machines[p].Connected, machine.Connected)
	}
	want, ordered := m.orders[p]
	got, on, err := m.s.Ordered(t.Context(), p.pool, p.machine)
	require.NoError(t, err)
	require.Equal(t, ordered, on, "%v", p)
	listed, on := orders[p.machine]
	require.Equal(t, ordered, on, "%v", p)
	if ordered {
		require.Equal(t, want, got)
		require.Equal(t, want, listed)
	}
}

// viewModel is the jobs that replicas have seen in each epoch.
type viewModel struct {
	s      *store.Store
	clock  *clock
	seen   map[int64]map[spillway.JobClass]map[spillway.JobID]bool
	signed map[int64]map[string]bool
}

func viewActions(s *store.Store, c *clock) actions {
	m := &viewModel{s: s, clock: c, seen: map[int64]map[spillway.JobClass]map[spillway.JobID]bool{}, signed: map[int64]map[string]bool{}}
	return actions{"write": m.write, "": m.check}
}

func (m *viewModel) epoch() int64 {
	return m.clock.now().UnixMilli() / modelViewInterval.Milliseconds()
}

func (m *viewModel) write(t *rapid.T) {
	replica, epoch := letter(t, "replica"), m.epoch()
	if m.seen[epoch] == nil {
		m.seen[epoch], m.signed[epoch] = map[spillway.JobClass]map[spillway.JobID]bool{}, map[string]bool{}
	}
	view := map[spillway.JobClass][]spillway.JobID{}
	for _, class := range []spillway.JobClass{"x", "y"} {
		for range rapid.IntRange(0, 4).Draw(t, "jobs") {
			id := anyRoutedID(t)
			if rapid.IntRange(0, 3).Draw(t, "of the API") == 0 {
				id = "j-" + id // no number
			}
			view[class] = append(view[class], id)
			if m.seen[epoch][class] == nil {
				m.seen[epoch][class] = map[spillway.JobID]bool{}
			}
			m.seen[epoch][class][id] = true
		}
	}
	require.NoError(t, m.s.WriteView(t.Context(), "src", replica, modelViewInterval, view))
	m.signed[epoch][replica] = true
}

func (m *viewModel) check(t *rapid.T) {
	expected := []string{"a", "b"}
	got, err := m.s.ReadView(t.Context(), "src", modelViewInterval, expected)
	require.NoError(t, err)
	last := m.epoch() - 1
	want := store.ViewCounts{Epoch: last, Jobs: map[spillway.JobClass]int{}, At: time.UnixMilli(last * modelViewInterval.Milliseconds()).UTC()}
	for class, ids := range m.seen[last] {
		want.Jobs[class] = len(ids)
	}
	for _, replica := range expected {
		if !m.signed[last][replica] {
			want.Missing = append(want.Missing, replica)
		}
	}
	want.Whole = len(want.Missing) == 0
	require.Equal(t, want, got)
}

// seatsModel is who has a seat in a pool, and until when.
type seatsModel struct {
	s     *store.Store
	clock *clock
	taken map[place]time.Time
}

func seatsActions(s *store.Store, c *clock) actions {
	m := &seatsModel{s: s, clock: c, taken: map[place]time.Time{}}
	return actions{"take": m.take, "take another": m.take, "keep": m.keep, "leave": m.leave}
}

// seats counts those of a pool, and drops what is past.
func (m *seatsModel) seats(pool string) (n int) {
	for p, until := range m.taken {
		if !until.After(m.clock.now()) {
			delete(m.taken, p)
		} else if p.pool == pool {
			n++
		}
	}
	return n
}

func (m *seatsModel) sit(p place, ttl time.Duration) {
	if until := m.clock.now().Add(ttl); until.After(m.taken[p]) {
		m.taken[p] = until
	}
}

func (m *seatsModel) take(t *rapid.T) {
	p, most, ttl := anyMachine(t), rapid.IntRange(1, 3).Draw(t, "most"), seconds(t, "ttl")
	got, err := m.s.TakeSeat(t.Context(), p.pool, p.machine, most, ttl)
	require.NoError(t, err)
	n := m.seats(p.pool)
	_, has := m.taken[p]
	require.Equal(t, has || n < most, got, "%v, %d of %d taken", p, n, most)
	if got {
		m.sit(p, ttl)
	}
}

func (m *seatsModel) keep(t *rapid.T) {
	p, ttl := anyMachine(t), seconds(t, "ttl")
	require.NoError(t, m.s.KeepSeats(t.Context(), map[string][]spillway.MachineID{p.pool: {p.machine}}, ttl))
	m.seats(p.pool)
	m.sit(p, ttl)
}

func (m *seatsModel) leave(t *rapid.T) {
	p := anyMachine(t)
	require.NoError(t, m.s.LeaveSeat(t.Context(), p.pool, p.machine))
	delete(m.taken, p)
}
