package watch

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/store"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is all that machines are watched by, as a test moves it. The store's clock is an
// hour off: nothing may depend on that.
type world struct {
	now         time.Time
	records     []router.Machine
	drains      map[spillway.MachineID]router.DrainOrder
	books       map[spillway.MachineID]store.RoutedMachine
	since       time.Time // of the book, by the store's clock
	readAsWhole []bool    // how the book was read
	boards      map[string][]byte
	scrapes     map[string]evidence.Scrape
	runners     map[int64]collect.RunnerState
	fail        map[string]error
	holds       bool
	calls       []string
	troubles    []string
	lists       *Lists
	group       []pluginsdk.Instance
}

func newWorld() *world {
	w := &world{
		now: t0, since: t0.Add(time.Hour), holds: true, fail: map[string]error{}, boards: map[string][]byte{},
		drains: map[spillway.MachineID]router.DrainOrder{}, books: map[spillway.MachineID]store.RoutedMachine{},
		scrapes: map[string]evidence.Scrape{}, runners: map[int64]collect.RunnerState{},
	}
	w.lists = NewLists(w.clock, nil)
	return w
}

func (w *world) clock() time.Time { return w.now }

func (w *world) serverTime() time.Time { return w.now.Add(time.Hour) }

func (w *world) do(op string) error {
	w.calls = append(w.calls, op)
	return w.fail[op]
}

func (w *world) Machines(context.Context) ([]router.Machine, error) {
	return w.records, w.do("machines")
}

func (w *world) OrderDrain(_ context.Context, _ string, orders []router.DrainOrder) error {
	for _, o := range orders {
		o.At = w.serverTime()
		w.drains[o.Machine] = o
		if !o.On {
			delete(w.drains, o.Machine)
		}
	}
	return w.do("order")
}

func (w *world) RemoveMachines(context.Context, string, []spillway.MachineID) error {
	return w.do("remove")
}

func (w *world) Drains(context.Context, string) (map[spillway.MachineID]router.DrainOrder, error) {
	return w.drains, w.do("drains")
}

func (w *world) Routed(_ context.Context, _ string, whole bool) (store.RoutedBook, error) {
	w.readAsWhole = append(w.readAsWhole, whole)
	return store.RoutedBook{Machines: maps.Clone(w.books), Since: w.since, At: w.serverTime()}, w.do("routed")
}

// bookOf is a book that is so old.
func (w *world) bookOf(age time.Duration) { w.since = w.serverTime().Add(-age) }

func (w *world) PutBoard(_ context.Context, name string, _ uint64, data []byte, _ time.Duration) error {
	if err := w.do("put " + name); err != nil {
		return err
	}
	w.boards[name] = data
	return nil
}

func (w *world) Board(_ context.Context, name string) ([]byte, bool, error) {
	data, found := w.boards[name]
	return data, found, w.do("board " + name)
}

func (w *world) Runners(context.Context) (map[int64]collect.RunnerState, error) {
	return w.runners, w.do("runners")
}

func (w *world) Scrapes(string) map[string]evidence.Scrape { return w.scrapes }

func (w *world) Hold(string, time.Time) (uint64, time.Time, bool) {
	return 7, w.now.Add(time.Minute), w.holds
}

// Group, as far as it is asked.
type group struct {
	scaler.Group
	world *world
}

func (g group) ListInstances(context.Context) ([]pluginsdk.Instance, error) {
	return g.world.group, g.world.fail["list"]
}

// list is the owner's look at the group.
func (w *world) list(t *testing.T, ids ...string) {
	t.Helper()
	w.group = nil
	for _, id := range ids {
		w.group = append(w.group, pluginsdk.Instance{ID: id, State: pluginsdk.StateRunning, LaunchedAt: t0.Add(-time.Hour)})
	}
	_, err := w.lists.Of("p", group{world: w}).ListInstances(t.Context())
	require.NoError(t, err)
}

func (w *world) watch(pools ...Pool) *Machines {
	return New(Options{
		Registry: w, Boards: w, Tenure: w, Lists: w.lists, GitLab: w, Metrics: w, Now: w.clock,
		HookVerified: func(string) bool { return true },
		Trouble:      func(_ string, err error) { w.troubles = append(w.troubles, err.Error()) },
	}, pools)
}

func look(t *testing.T, m *Machines) map[spillway.MachineID]router.Machine {
	t.Helper()
	all, err := m.Machines(t.Context())
	require.NoError(t, err)
	out := map[spillway.MachineID]router.Machine{}
	for _, x := range all {
		out[x.ID] = x
	}
	require.Len(t, out, len(all))
	return out
}

var errAway = errors.New("away")

func observed() Pool {
	return Pool{Name: "p", Mode: evidence.Observe, Capacity: 1, Drain: evidence.DrainHook, Scraped: true, Runners: []int64{7}}
}

func routed() Pool { return Pool{Name: "p", Mode: evidence.RouteFront, Capacity: 1} }
