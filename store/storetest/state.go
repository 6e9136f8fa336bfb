package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// briefTTL is so short that a test can wait for its end.
const briefTTL = 300 * time.Millisecond

func machine(pool, id string) router.Machine {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	return router.Machine{
		ID: spillway.MachineID(id), InstanceID: "i-" + id, Pool: pool, Version: "1.2.3", Capacity: 4, Busy: 1, Assigned: 2, Uses: 77,
		Draining: true, DrainAckedAt: at, HeardAt: at.Add(time.Second), HeartbeatAt: at.Add(2 * time.Second),
		RegisteredAt: at.Add(-time.Hour), LastUsedAt: at.Add(-time.Minute), Connected: true, Replica: "replica-1",
	}
}

func machines(t *testing.T, s *store.Store) []router.Machine {
	t.Helper()
	all, err := s.Machines(t.Context())
	require.NoError(t, err)
	slices.SortFunc(all, func(a, b router.Machine) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

var machineContract = []contract{
	{"of all pools, as they were put", store.Options{}, func(t *testing.T, s *store.Store) {
		require.Empty(t, machines(t, s))
		a, b, c := machine("blue", "a"), machine("green", "b"), router.Machine{ID: "c", Pool: "green"}
		require.NoError(t, s.PutMachines(t.Context(), []router.Machine{a, b, c}))
		require.Equal(t, []router.Machine{a, b, c}, machines(t, s))
		a.Busy, a.StoppingSince = 0, time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
		require.NoError(t, s.PutMachines(t.Context(), []router.Machine{a}))
		require.NoError(t, s.RemoveMachines(t.Context(), "green", []spillway.MachineID{"b", "none"}))
		require.Equal(t, []router.Machine{a, c}, machines(t, s))
	}},
	{"one of a pool", store.Options{MachineTTL: briefTTL}, func(t *testing.T, s *store.Store) {
		a := machine("blue", "a")
		var got router.Machine
		var live bool
		var err error
		quickly(t, briefTTL, func() {
			require.NoError(t, s.PutMachines(t.Context(), []router.Machine{a, machine("blue", "b")}))
			got, live, err = s.Machine(t.Context(), "blue", "a")
			require.NoError(t, err)
		})
		require.True(t, live)
		require.Equal(t, a, got)
		for _, where := range [][2]string{{"blue", "c"}, {"green", "a"}} {
			_, live, err = s.Machine(t.Context(), where[0], spillway.MachineID(where[1]))
			require.NoError(t, err)
			require.False(t, live)
		}
		_, _, err = s.Machine(t.Context(), "no pool", "a")
		require.ErrorIs(t, err, spillway.ErrInvalid)
		require.Eventually(t, func() bool {
			_, live, err := s.Machine(t.Context(), "blue", "a")
			return err == nil && !live
		}, within, every, "it expires")
	}},
	{"more than one batch", store.Options{}, func(t *testing.T, s *store.Store) {
		many := make([]router.Machine, store.MaxBatch+1)
		for i := range many {
			many[i] = machine("blue", fmt.Sprint(i))
		}
		require.NoError(t, s.PutMachines(t.Context(), many))
		require.Len(t, machines(t, s), len(many))
	}},
	{"each expires by itself", store.Options{MachineTTL: briefTTL}, func(t *testing.T, s *store.Store) {
		var both []router.Machine
		quickly(t, briefTTL, func() {
			require.NoError(t, s.PutMachines(t.Context(), []router.Machine{machine("blue", "a"), machine("blue", "b")}))
			both = machines(t, s)
		})
		require.Len(t, both, 2)
		require.Eventually(t, func() bool {
			require.NoError(t, s.PutMachines(t.Context(), []router.Machine{machine("blue", "b")}))
			return len(machines(t, s)) == 1
		}, within, every)
		require.Equal(t, spillway.MachineID("b"), machines(t, s)[0].ID)
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		for _, m := range []router.Machine{{Pool: "blue"}, {ID: "a", Pool: "{no}"}, {ID: "a", Pool: "blue", Version: strings.Repeat("x", 1025)}} {
			require.ErrorIs(t, s.PutMachines(t.Context(), []router.Machine{m}), spillway.ErrInvalid)
		}
	}},
	{"drain orders", store.Options{}, func(t *testing.T, s *store.Store) {
		orders := []router.DrainOrder{{Machine: "a", On: true, Terminate: true, Reason: "idle"}, {Machine: "b", On: true}}
		require.NoError(t, s.OrderDrain(t.Context(), "blue", orders))
		got, err := s.Drains(t.Context(), "blue")
		require.NoError(t, err)
		for i := range orders {
			orders[i].At = got[orders[i].Machine].At
			require.WithinDuration(t, time.Now(), orders[i].At, within)
		}
		require.Equal(t, map[spillway.MachineID]router.DrainOrder{"a": orders[0], "b": orders[1]}, got)
		one, found, err := s.Ordered(t.Context(), "blue", "a")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, orders[0], one)

		again := router.DrainOrder{Machine: "a", On: true, Reason: "still idle"}
		require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{again}))
		one, _, err = s.Ordered(t.Context(), "blue", "a")
		require.NoError(t, err)
		again.At = orders[0].At
		require.Equal(t, again, one, "a standing order keeps its time")
		require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{{Machine: "a"}}))
		_, found, err = s.Ordered(t.Context(), "blue", "a")
		require.NoError(t, err)
		require.False(t, found)
		require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{again}))
		one, _, err = s.Ordered(t.Context(), "blue", "a")
		require.NoError(t, err)
		require.True(t, one.At.After(again.At), "given anew, it has a new one")
		require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{{Machine: "a"}}))
		require.NoError(t, s.RemoveMachines(t.Context(), "blue", []spillway.MachineID{"b"}))
		got, err = s.Drains(t.Context(), "blue")
		require.NoError(t, err)
		require.Empty(t, got)
	}},
}

var leaseContract = []contract{
	{"one holder at a time", store.Options{}, func(t *testing.T, s *store.Store) {
		before := time.Now()
		a, err := s.Acquire(t.Context(), "pool/blue", "a", time.Minute)
		require.NoError(t, err)
		require.Equal(t, "a", a.Holder)
		require.WithinRange(t, a.Until, before.Add(time.Minute-time.Millisecond), time.Now().Add(time.Minute))
		require.GreaterOrEqual(t, a.Epoch, uint64(before.Add(-within).UnixMilli())<<10)
		require.Less(t, a.Epoch, uint64(1)<<53)
		_, err = s.Acquire(t.Context(), "pool/blue", "b", time.Minute)
		var held *store.HeldError
		require.ErrorAs(t, err, &held)
		require.ErrorIs(t, err, store.ErrLeaseHeld)
		require.Equal(t, "a", held.Holder)
		require.Positive(t, held.Rest)
		again, err := s.Acquire(t.Context(), "pool/blue", "a", time.Minute)
		require.NoError(t, err)
		require.Equal(t, a.Epoch, again.Epoch)
		renewed, err := s.RenewLease(t.Context(), a, time.Minute)
		require.NoError(t, err)
		require.Equal(t, a.Epoch, renewed.Epoch)
		require.NoError(t, s.ReleaseLease(t.Context(), a))
		b, err := s.Acquire(t.Context(), "pool/blue", "b", time.Minute)
		require.NoError(t, err)
		require.Greater(t, b.Epoch, a.Epoch)
		_, err = s.RenewLease(t.Context(), a, time.Minute)
		require.ErrorIs(t, err, store.ErrLeaseLost)
		require.NoError(t, s.ReleaseLease(t.Context(), a)) // not a's any more: left alone
		_, err = s.Acquire(t.Context(), "pool/blue", "a", time.Minute)
		require.ErrorIs(t, err, store.ErrLeaseHeld)
	}},
	{"it ends by itself, and can't be renewed then", store.Options{}, func(t *testing.T, s *store.Store) {
		a, err := s.Acquire(t.Context(), "x", "a", 5*time.Millisecond)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err = s.Acquire(t.Context(), "x", "b", 5*time.Millisecond)
			return err == nil
		}, within, every)
		require.Eventually(t, func() bool {
			young, err := s.Acquire(t.Context(), "x", "a", time.Minute)
			return err == nil && young.Epoch > a.Epoch
		}, within, every)
		_, err = s.RenewLease(t.Context(), a, time.Minute) // the holder has a newer epoch now
		require.ErrorIs(t, err, store.ErrLeaseLost)
	}},
	{"many at once", store.Options{}, func(t *testing.T, s *store.Store) {
		names := make([]string, 200)
		for i := range names {
			names[i] = fmt.Sprintf("pool-%d", i)
		}
		_, err := s.Acquire(t.Context(), names[7], "other", time.Minute)
		require.NoError(t, err)
		held, err := s.HoldLeases(t.Context(), names, "me", time.Minute)
		require.NoError(t, err)
		require.Len(t, held, 199)
		require.NotContains(t, held, names[7])
		again, err := s.HoldLeases(t.Context(), names[:5], "me", time.Minute)
		require.NoError(t, err)
		for name, l := range again {
			require.Equal(t, held[name].Epoch, l.Epoch)
			require.Equal(t, name, l.Name)
		}
	}},
}

var memoryContract = []contract{
	{"state", store.Options{}, func(t *testing.T, s *store.Store) {
		_, found, err := s.LoadPoolState(t.Context(), "blue")
		require.NoError(t, err)
		require.False(t, found)
		require.NoError(t, s.SavePoolState(t.Context(), "blue", 1<<52, []byte("one\x00")))
		require.NoError(t, s.SavePoolState(t.Context(), "blue", 1<<52, []byte("two")))
		require.ErrorIs(t, s.SavePoolState(t.Context(), "blue", 1<<52-1, []byte("old")), store.ErrStaleEpoch)
		require.ErrorIs(t, s.AppendLedger(t.Context(), "blue", 1<<52-1, []byte("old")), store.ErrStaleEpoch)
		state, found, err := s.LoadPoolState(t.Context(), "blue")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "two", string(state))
		require.NoError(t, s.SavePoolState(t.Context(), "green", 1, nil))
		require.ErrorIs(t, s.SavePoolState(t.Context(), "blue", 1<<52, make([]byte, store.MaxStateBytes+1)), spillway.ErrInvalid)
		require.NoError(t, s.SavePoolState(t.Context(), "blue", 1<<52, make([]byte, store.MaxStateBytes)))
	}},
	{"ledger", store.Options{}, func(t *testing.T, s *store.Store) {
		for i := range store.LedgerEntries + 3 {
			require.NoError(t, s.AppendLedger(t.Context(), "blue", 5, fmt.Appendf(nil, "%d", i)))
		}
		all, err := s.Ledger(t.Context(), "blue", 2*store.LedgerEntries)
		require.NoError(t, err)
		require.Len(t, all, store.LedgerEntries)
		require.Equal(t, fmt.Sprint(store.LedgerEntries+2), string(all[0]))
		some, err := s.Ledger(t.Context(), "blue", 2)
		require.NoError(t, err)
		require.Equal(t, all[:2], some)
		none, err := s.Ledger(t.Context(), "green", 2)
		require.NoError(t, err)
		require.Empty(t, none)
		require.ErrorIs(t, s.AppendLedger(t.Context(), "blue", 5, make([]byte, store.MaxEntryBytes+1)), spillway.ErrInvalid)
	}},
}

// viewInterval is long enough for a busy machine to write within one; a test waits
// for up to three of them.
const viewInterval = 2 * store.MinViewInterval

func ids(from, to int, format string) []spillway.JobID {
	var list []spillway.JobID
	for i := from; i < to; i++ {
		list = append(list, spillway.JobID(fmt.Sprintf(format, i)))
	}
	return list
}

// inOneEpoch has views of a source written within one epoch, and reads that when it is
// over. A machine that is too busy for either does it again, with another source.
func inOneEpoch(t *testing.T, s *store.Store, write func(source string), expected ...string) (source string, v store.ViewCounts) {
	t.Helper()
	epoch := func() int64 { return time.Now().UnixMilli() / viewInterval.Milliseconds() }
	for try := range 20 {
		source = fmt.Sprint("gitlab-", try)
		require.Eventually(t, func() bool { return time.Now().UnixMilli()%viewInterval.Milliseconds() < 300 }, within, time.Millisecond)
		written := epoch()
		if write(source); epoch() != written {
			continue
		}
		require.Eventually(t, func() bool { return epoch() > written }, within, time.Millisecond)
		for epoch() == written+1 {
			var err error
			v, err = s.ReadView(t.Context(), source, viewInterval, expected)
			require.NoError(t, err)
			if len(v.Jobs) > 0 {
				return source, v
			}
		}
	}
	require.FailNow(t, "no job is in any epoch")
	return source, v
}

var viewContract = []contract{
	{"views of several replicas count each id once", store.Options{}, func(t *testing.T, s *store.Store) {
		v, err := s.ReadView(t.Context(), "gitlab", viewInterval, []string{"r1"})
		require.NoError(t, err)
		require.False(t, v.Whole)
		require.Empty(t, v.Jobs)
		source, v := inOneEpoch(t, s, func(source string) {
			write := func(replica string, jobs map[spillway.JobClass][]spillway.JobID) {
				require.NoError(t, s.WriteView(t.Context(), source, replica, viewInterval, jobs))
			}
			write("r1", map[spillway.JobClass][]spillway.JobID{"a": ids(0, 1500, "%d"), "b": ids(0, 3, "%d"), "c": nil})
			write("r2", map[spillway.JobClass][]spillway.JobID{"a": append(ids(1000, 2000, "%d"), ids(0, 700, "w-%d")...), "b": ids(0, 2, "w%d")})
			write("r2", map[spillway.JobClass][]spillway.JobID{"a": ids(1000, 2000, "%d"), "d": ids(5, 6, "%d")})
		}, "r1", "r2", "r3")
		require.Equal(t, map[spillway.JobClass]int{"a": 2700, "b": 5, "d": 1}, v.Jobs)
		require.False(t, v.Whole)
		require.Equal(t, []string{"r3"}, v.Missing)
		v, err = s.ReadView(t.Context(), source, viewInterval, []string{"r2", "r1"})
		require.NoError(t, err)
		if len(v.Jobs) > 0 { // unless an epoch ended in between
			require.True(t, v.Whole)
			require.Empty(t, v.Missing)
			require.Equal(t, v.Epoch*viewInterval.Milliseconds(), v.At.UnixMilli())
		}
		require.Eventually(t, func() bool { // it is forgotten as a whole
			v, err = s.ReadView(t.Context(), source, viewInterval, nil)
			require.NoError(t, err)
			return len(v.Jobs) == 0
		}, within, every)
		other, err := s.ReadView(t.Context(), "other", viewInterval, nil)
		require.NoError(t, err)
		require.Empty(t, other.Jobs)
		require.True(t, other.Whole)
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		require.ErrorIs(t, s.WriteView(t.Context(), "{x}", "r", viewInterval, nil), spillway.ErrInvalid)
		require.ErrorIs(t, s.WriteView(t.Context(), "x", "r", time.Millisecond, nil), spillway.ErrInvalid)
		_, err := s.ReadView(t.Context(), "x", 0, nil)
		require.ErrorIs(t, err, spillway.ErrInvalid)
	}},
}
