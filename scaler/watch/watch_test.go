package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/store"
)

func TestWhatIsNotWatchedIsTheRegistrys(t *testing.T) {
	w := newWorld()
	w.records = []router.Machine{{ID: "a", Pool: "other"}, {ID: "m-1", Pool: "p", InstanceID: "i-1", HeartbeatAt: t0}}
	w.scrapes["i-2"] = evidence.Scrape{At: t0, FirstAt: t0}
	w.list(t, "i-1", "i-2")
	got := look(t, w.watch(observed()))
	require.Equal(t, w.records[0], got["a"])
	require.Equal(t, w.records[1], got["m-1"], "a sidecar of the pool")
	require.Equal(t, "i-2", got["i-2"].InstanceID, "what only metrics speak of")
	require.Len(t, got, 3)
}

func TestAnOrderCountsFromWhenItWasFirstSeenInForce(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	m := w.watch(observed())
	seen := func() router.Machine {
		w.scrapes["i-1"] = evidence.Scrape{At: w.now, FirstAt: t0.Add(-time.Hour), Systems: []string{"s-1"}}
		w.runners[7] = collect.RunnerState{At: w.now, Whole: true, Systems: []string{"s-1"}}
		return look(t, m)["i-1"]
	}
	require.NoError(t, m.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "i-1", On: true}}))
	w.now = w.now.Add(time.Second)
	require.Equal(t, w.now, seen().DrainAckedAt, "by our clock, though the store's is an hour ahead")
	first := w.now
	w.now = w.now.Add(5 * time.Second)
	require.Equal(t, first, seen().DrainAckedAt)
	require.True(t, seen().HeartbeatAt.After(first), "both facts are newer")

	require.NoError(t, m.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "i-1"}}))
	require.False(t, seen().Draining)
	w.now = w.now.Add(5 * time.Second)
	require.NoError(t, m.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "i-1", On: true}}))
	require.Equal(t, w.now, seen().DrainAckedAt, "another order, another time")
}

func TestTheBookIsReadAfterTheOrders(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	look(t, w.watch(routed()))
	require.Equal(t, []string{"machines", "drains", "routed", "put machines/p"}, w.calls)
}

func TestABookThatWasLostProvesNothingOfBefore(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.records = []router.Machine{{ID: "s-1", InstanceID: "i-1", Pool: "p", Connected: true, HeardAt: t0, RegisteredAt: t0.Add(-time.Hour)}}
	m := w.watch(routed())
	require.Zero(t, look(t, m)["s-1"].HeartbeatAt, "the instance is older than the book: it may have a job from before")
	require.NotEmpty(t, m.CannotDrain("p"))

	w.bookOf(3 * time.Hour)
	require.Equal(t, t0, look(t, m)["s-1"].HeartbeatAt, "the book has every job that it ever had")
	require.Equal(t, scaler.Limits{}, m.Limits("p"))
	w.now = t0.Add(2 * time.Hour)
	w.records[0].HeardAt = w.now
	require.Equal(t, w.now, look(t, m)["s-1"].HeartbeatAt)

	w.bookOf(0) // the pool's part of the store was lost, and the book with it
	require.Zero(t, look(t, m)["s-1"].HeartbeatAt)
}

func TestTheAgeOfTheBookIsByOurClock(t *testing.T) {
	var mem memory
	since, at := t0.Add(time.Hour), t0.Add(time.Hour+10*time.Minute) // the store's is an hour off
	require.Equal(t, t0.Add(time.Second), mem.since(since, at, t0.Add(10*time.Minute+time.Second)), "the answer took a second")
	require.Equal(t, t0.Add(time.Second), mem.since(since, at.Add(time.Minute), t0.Add(11*time.Minute)), "the same book, the same time")
	require.Equal(t, t0.Add(20*time.Minute), mem.since(at.Add(10*time.Minute), at.Add(10*time.Minute), t0.Add(20*time.Minute)))
}

func TestAMachineAtItsLimitIsKeptByItsBook(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.bookOf(3 * time.Hour)
	w.records = []router.Machine{{ID: "s-1", InstanceID: "i-1", Pool: "p", Connected: true, HeardAt: t0, RegisteredAt: t0.Add(-time.Hour)}}
	w.books["s-1"] = store.RoutedMachine{Open: []store.RoutedJob{{ID: "1", Begun: t0}}, Uses: 1, LastUsedAt: t0}
	w.books["s-9"] = store.RoutedMachine{Uses: 4}
	m := w.watch(routed())
	look(t, m)
	w.records, w.now = nil, t0.Add(10*time.Minute) // it has not asked for anything
	got := look(t, m)
	require.Len(t, got, 1)
	require.Equal(t, "i-1", got["s-1"].InstanceID)
	require.Equal(t, 1, got["s-1"].Assigned)
	require.Equal(t, w.now, got["s-1"].HeardAt)

	other := look(t, w.watch(routed())) // which has never seen it
	require.Equal(t, 1, other["s-1"].Assigned)
	require.Empty(t, other["s-1"].InstanceID)
	w.books["s-1"] = store.RoutedMachine{Uses: 1}
	require.Empty(t, look(t, m))
}

func TestSidecarsHaveHeartbeatsAndWhoAsksHasNone(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	p := routed()
	p.Mode = evidence.RouteOne
	w.records = []router.Machine{
		{ID: "s-1", InstanceID: "i-1", Pool: "p", Connected: true, HeardAt: t0, RegisteredAt: t0.Add(-time.Hour)},
		{ID: "side", InstanceID: "i-1", Pool: "p", Connected: true, HeardAt: t0, HeartbeatAt: t0, RegisteredAt: t0.Add(-time.Hour), Busy: 1},
	}
	got := look(t, w.watch(p))
	require.Len(t, got, 1)
	require.Equal(t, 1, got["s-1"].Busy, "by its sidecar")
}

func TestTheOthersSeeWhatTheOwnerFound(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.scrapes["i-1"] = evidence.Scrape{At: t0, FirstAt: t0, Jobs: 1}
	p := observed()
	p.Drain = evidence.DrainNone
	owner := w.watch(p)
	found := look(t, owner)
	require.NotEmpty(t, owner.CannotDrain("p"))

	w.holds, w.lists, w.scrapes = false, NewLists(w.clock, nil), nil
	follower := w.watch(p)
	require.Equal(t, found, look(t, follower))
	require.Equal(t, owner.Limits("p"), follower.Limits("p"))
	require.Equal(t, found, look(t, follower), "the same once more")

	w.holds = true // it takes the pool over, and hasn't listed the group yet
	require.Equal(t, found, look(t, follower))
	w.list(t, "i-1")
	require.Empty(t, look(t, follower), "its own look from then on")

	w.holds = false
	clear(w.boards)
	w.records = []router.Machine{{ID: "m", Pool: "p"}}
	require.Equal(t, w.records[0], look(t, follower)["m"], "nobody shows anything: the records are all there is")
	w.boards[showName("p")] = []byte("{")
	_, err := follower.Machines(t.Context())
	require.ErrorContains(t, err, "pool p")
}

func TestShowingIsNotRepeatedForNothing(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	m := w.watch(observed())
	shows := func(after time.Duration) int {
		w.now, w.calls = w.now.Add(after), nil
		look(t, m)
		n := 0
		for _, c := range w.calls {
			if c == "put machines/p" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, shows(0))
	require.Equal(t, 0, shows(5*time.Second), "it is the same")
	require.Equal(t, 1, shows(10*time.Second), "it would be forgotten")
	w.scrapes["i-1"] = evidence.Scrape{At: w.now, FirstAt: w.now}
	require.Equal(t, 0, shows(time.Second), "too soon")
	require.Equal(t, 1, shows(time.Second))
	w.fail["put machines/p"] = errAway
	w.scrapes["i-1"] = evidence.Scrape{At: w.now, FirstAt: w.now, Jobs: 1}
	require.Equal(t, 1, shows(3*time.Second))
	require.Equal(t, []string{"showing the machines to the other replicas: away"}, w.troubles, "the owner goes on")
}

func TestWhatCantBeReadIsAnErrorAndNotNothing(t *testing.T) {
	for _, op := range []string{"machines", "drains", "routed"} {
		w := newWorld()
		w.list(t, "i-1")
		w.fail[op] = errAway
		_, err := w.watch(routed()).Machines(t.Context())
		require.ErrorIs(t, err, errAway, op)
	}
	w := newWorld()
	w.list(t, "i-1")
	w.scrapes["i-1"] = evidence.Scrape{At: t0, FirstAt: t0}
	w.runners[7] = collect.RunnerState{At: t0, Whole: true}
	m := w.watch(observed())
	require.Equal(t, t0, look(t, m)["i-1"].HeartbeatAt)
	w.fail["runners"] = errAway
	require.Zero(t, look(t, m)["i-1"].HeartbeatAt, "without GitLab's word nothing is idle")
	require.Equal(t, []string{"reading GitLab's runners: away"}, w.troubles)
}

func TestAStateWithAProblemProvesNothing(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.scrapes["i-1"] = evidence.Scrape{At: t0, FirstAt: t0}
	w.runners[7] = collect.RunnerState{At: t0, Whole: true, Problem: "403"}
	require.Zero(t, look(t, w.watch(observed()))["i-1"].HeartbeatAt)
}

func TestC20_TheMachinesOfADeletedRunnerAreRemembered(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1", "i-2")
	w.scrapes["i-1"] = evidence.Scrape{At: t0, FirstAt: t0, Systems: []string{"s-1"}}
	w.scrapes["i-2"] = evidence.Scrape{At: t0, FirstAt: t0, Systems: []string{"s-2"}}
	w.runners[7] = collect.RunnerState{At: t0, Whole: true, Systems: []string{"s-1"}}
	w.runners[8] = collect.RunnerState{At: t0, Whole: true, Systems: []string{"s-2"}}
	p := observed()
	p.Runners = []int64{7, 8}
	m := w.watch(p)
	look(t, m)
	w.runners[7] = collect.RunnerState{At: t0, Deleted: true}
	for range 2 {
		got := look(t, m)
		require.NotEmpty(t, got["i-1"].Unhealthy)
		require.Empty(t, got["i-2"].Unhealthy)
	}
}

func TestUseIsRemembered(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.records = []router.Machine{{ID: "m", InstanceID: "i-1", Pool: "p", Connected: true, HeardAt: t0, HeartbeatAt: t0, RegisteredAt: t0, LastUsedAt: t0}}
	m := w.watch(observed())
	look(t, m)
	require.Zero(t, m.Begun("p", t0.Add(-time.Hour)))
	w.now = t0.Add(time.Minute)
	w.records[0].Busy, w.records[0].HeartbeatAt = 1, w.now
	require.Equal(t, w.now, look(t, m)["m"].LastUsedAt)
	require.Equal(t, 1, m.Begun("p", t0), "since the list was made")
	require.Zero(t, m.Begun("p", w.now), "the list has it")
	busy := w.now
	w.now = t0.Add(2 * time.Minute)
	w.records[0].Busy, w.records[0].HeartbeatAt = 0, w.now
	require.Equal(t, busy, look(t, m)["m"].LastUsedAt, "a sidecar's record has no other")
	w.now = t0.Add(3 * time.Minute)
	look(t, m)
	require.Zero(t, m.Begun("p", t0))

	p := observed()
	p.Hooked = true
	hooked := w.watch(p)
	look(t, hooked)
	w.records[0].Busy = 1
	look(t, hooked)
	require.Zero(t, hooked.Begun("p", t0), "the webhook has taken it off the list")
}

func TestPoolsComeAndGo(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	w.records = []router.Machine{{ID: "m", Pool: "p"}}
	p := observed()
	p.Drain = evidence.DrainNone
	m := w.watch(p)
	look(t, m)
	require.NotEmpty(t, m.CannotDrain("p"))
	m.SetPools(nil)
	require.Equal(t, w.records[0], look(t, m)["m"])
	require.Empty(t, m.CannotDrain("p"))
	require.True(t, w.lists.of("p").at.IsZero())
}

func TestListsAreRememberedAndTold(t *testing.T) {
	w := newWorld()
	var told []string
	lists := NewLists(w.clock, func(pool string, list []pluginsdk.Instance) {
		for _, in := range list {
			told = append(told, pool+"/"+in.ID)
		}
	})
	g := lists.Of("p", group{world: w})
	w.group = []pluginsdk.Instance{{ID: "i-1"}}
	_, err := g.ListInstances(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"p/i-1"}, told)
	w.fail["list"] = errAway
	w.group = nil
	_, err = g.ListInstances(t.Context())
	require.ErrorIs(t, err, errAway)
	require.Len(t, lists.of("p").instances, 1, "what could not be listed is not empty")
}

func TestAJobThatNoMachineTellsOfIsBelievedForAWhile(t *testing.T) {
	w := newWorld()
	w.list(t, "i-1")
	m := w.watch(observed())
	unseen := func(after time.Duration, running int) int {
		w.now = w.now.Add(after)
		w.runners[7] = collect.RunnerState{At: w.now, Whole: true, Running: running}
		look(t, m)
		return m.Unseen("p")
	}
	require.Equal(t, 0, unseen(0, 0))
	require.Equal(t, 2, unseen(time.Second, 2))
	require.Equal(t, 3, unseen(44*time.Second, 3))
	require.Equal(t, 0, unseen(time.Second, 3), "it runs somewhere else")
	require.Equal(t, 0, unseen(time.Second, 0))
	require.Equal(t, 1, unseen(time.Second, 1))
	w.runners[7] = collect.RunnerState{At: w.now, Running: 1}
	look(t, m)
	require.Zero(t, m.Unseen("p"), "a list that isn't whole says nothing")
}

// A pool that was observed, or had jobs that did not pass through us, must not be proven
// idle by its book when a front comes before it.
func TestABookIsWholeOnlyBehindAFront(t *testing.T) {
	one := routed()
	one.Mode = evidence.RouteOne
	for _, tt := range []struct {
		pool Pool
		want []bool
	}{
		{routed(), []bool{true, true, true}},
		{one, []bool{false, false, false}},
		{observed(), []bool{false, false}}, // again after an hour
	} {
		w := newWorld()
		m := w.watch(tt.pool)
		for range 3 {
			w.list(t)
			look(t, m)
			w.now = w.now.Add(40 * time.Minute)
		}
		require.Equal(t, tt.want, w.readAsWhole, tt.pool.Mode)
	}
}
