package store_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// The book of routed jobs is done random things to, and so is a model of it that is
// small enough to be seen to be right. On a real server the clock can't be moved, so
// that there nothing ends by itself.
func TestRoutedModelEmbedded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		clock := newClock()
		s, err := store.OpenEmbeddedAt(clock.now, store.Options{MachineTTL: time.Hour})
		require.NoError(rt, err)
		defer func() { require.NoError(rt, s.Close()) }()
		m := newRoutedModel(s, clock.now)
		actions := m.actions()
		actions["wait"] = func(t *rapid.T) {
			clock.advance(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
			m.pass()
		}
		rt.Repeat(actions)
	})
}

func TestRoutedModelRedis(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	rapid.Check(t, func(rt *rapid.T) {
		s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Prefix: fmt.Sprintf("t%d", prefixes.Add(1)), Timeout: patiently})
		require.NoError(rt, err)
		defer func() { require.NoError(rt, s.Close()) }()
		m := newRoutedModel(s, time.Now)
		m.atLeast = 10 * time.Hour
		rt.Repeat(m.actions())
	})
}

var (
	routedPools    = []string{"p", "q"}
	routedMachines = []spillway.MachineID{"m1", "m2", "m3"}
)

// place is a machine of a pool.
type place struct {
	pool    string
	machine spillway.MachineID
}

// modelBook is what is known of a machine.
type modelBook struct {
	uses    int
	heard   bool // it has confirmed a job
	expires time.Time
}

// bookedJob is a job in a book.
type bookedJob struct {
	store.RoutedJob
	by time.Time // it is to be confirmed by then; zero = it need not
}

type routedModel struct {
	s       *store.Store
	now     func() time.Time
	atLeast time.Duration // that a job stays open
	jobs    map[spillway.JobID]bookedJob
	ordered map[place]bool
	books   map[place]modelBook
}

func newRoutedModel(s *store.Store, now func() time.Time) *routedModel {
	return &routedModel{
		s: s, now: now, atLeast: time.Minute, jobs: map[spillway.JobID]bookedJob{},
		ordered: map[place]bool{}, books: map[place]modelBook{},
	}
}

func (m *routedModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin": m.begin, "begin again": m.begin, "confirm": m.confirm, "end": m.end, "order": m.order, "remove": m.remove, "": m.check,
	}
}

func (m *routedModel) anyPlace(t *rapid.T) place {
	return place{rapid.SampledFrom(routedPools).Draw(t, "pool"), rapid.SampledFrom(routedMachines).Draw(t, "machine")}
}

func anyRoutedID(t *rapid.T) spillway.JobID {
	return spillway.JobID(fmt.Sprint(rapid.IntRange(1, 8).Draw(t, "id")))
}

// pass ends what is past.
func (m *routedModel) pass() {
	for id, j := range m.jobs {
		if !j.Until.After(m.now()) {
			delete(m.jobs, id)
		}
	}
	for p, b := range m.books {
		if !b.expires.After(m.now()) && m.open(p) == 0 {
			m.drop(p)
		}
	}
}

// drop forgets a book and what was in it.
func (m *routedModel) drop(p place) {
	maps.DeleteFunc(m.jobs, func(_ spillway.JobID, j bookedJob) bool { return place{j.Pool, j.Machine} == p })
	delete(m.books, p)
}

func (m *routedModel) open(p place) (n int) {
	for _, j := range m.jobs {
		if (place{j.Pool, j.Machine}) == p && !m.lapsed(j) {
			n++
		}
	}
	return n
}

// lapsed is a job that was not confirmed in time.
func (m *routedModel) lapsed(j bookedJob) bool {
	return !j.by.IsZero() && !j.by.After(m.now()) && m.books[place{j.Pool, j.Machine}].heard
}

func (m *routedModel) begin(t *rapid.T) {
	p, id := m.anyPlace(t), anyRoutedID(t)
	begun := m.now().UTC().Truncate(time.Microsecond)
	j := store.RoutedJob{ID: id, Pool: p.pool, Machine: p.machine, Begun: begun}
	j.Until = begun.Add(m.atLeast + time.Duration(rapid.IntRange(0, 100).Draw(t, "minutes"))*time.Minute)
	if rapid.Bool().Draw(t, "to be confirmed") {
		j.ConfirmWithin = m.atLeast + time.Duration(rapid.IntRange(0, 50).Draw(t, "within"))*time.Minute
	}
	old, booked := m.jobs[id]
	lapsed := booked && m.lapsed(old)
	if booked && !begun.After(old.Begun) && old.Pool != j.Pool {
		return // who moves between pools does so later: the contract has the other case
	}
	got, err := m.s.BeginRouted(t.Context(), j)
	require.NoError(t, err)
	next := bookedJob{RoutedJob: j}
	next.ConfirmWithin = 0
	if j.ConfirmWithin > 0 {
		next.by = begun.Add(j.ConfirmWithin)
	}
	switch here := booked && (place{old.Pool, old.Machine}) == p; {
	case here && !lapsed:
		require.True(t, got)
		if j.Until.After(old.Until) {
			old.Until = j.Until
		}
		if !old.by.IsZero() {
			old.by = next.by
		}
		m.jobs[id] = old
	case m.ordered[p]:
		require.False(t, got)
	default:
		require.True(t, got)
		if booked && !lapsed {
			m.touch(place{old.Pool, old.Machine})
		}
		m.jobs[id] = next
		b := m.books[p]
		b.uses++
		m.books[p] = b
		m.touch(p)
	}
}

// touch keeps a book for another TTL.
func (m *routedModel) touch(p place) {
	b := m.books[p]
	if until := m.now().Add(time.Hour); until.After(b.expires) {
		b.expires = until
	}
	m.books[p] = b
}

func (m *routedModel) end(t *rapid.T) {
	id := anyRoutedID(t)
	j, booked := m.jobs[id]
	open := booked && !m.lapsed(j)
	got, err := m.s.EndRouted(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, open, got)
	delete(m.jobs, id)
	if open {
		m.touch(place{j.Pool, j.Machine})
	}
}

func (m *routedModel) confirm(t *rapid.T) {
	id := anyRoutedID(t)
	j, booked := m.jobs[id]
	got, err := m.s.ConfirmRouted(t.Context(), id)
	require.NoError(t, err)
	switch {
	case !booked: // it may have been open in a book that has expired, and is not tidied up
		require.NotEqual(t, store.Confirmed, got)
	case m.lapsed(j):
		require.Equal(t, store.TooLate, got)
	default:
		require.Equal(t, store.Confirmed, got)
		j.by = time.Time{}
		m.jobs[id] = j
		p := place{j.Pool, j.Machine}
		b := m.books[p]
		b.heard = true
		m.books[p] = b
	}
}

func (m *routedModel) order(t *rapid.T) {
	p, on := m.anyPlace(t), rapid.Bool().Draw(t, "on")
	// An order that stands is given again with each, so that none of them expires here.
	orders := []router.DrainOrder{{Machine: p.machine, On: on}}
	m.ordered[p] = on
	require.NoError(t, m.s.OrderDrain(t.Context(), p.pool, orders))
}

func (m *routedModel) remove(t *rapid.T) {
	p := m.anyPlace(t)
	require.NoError(t, m.s.RemoveMachines(t.Context(), p.pool, []spillway.MachineID{p.machine}))
	m.drop(p)
	delete(m.ordered, p)
	m.expireOrders(t, p.pool)
}

// expireOrders takes over which orders are left: a change of a pool's machines drops
// those of machines whose record has expired.
func (m *routedModel) expireOrders(t *rapid.T, pool string) {
	left, err := m.s.Drains(t.Context(), pool)
	require.NoError(t, err)
	for _, machine := range routedMachines {
		_, on := left[machine]
		require.False(t, on && !m.ordered[place{pool, machine}], "an order that nobody gave")
		m.ordered[place{pool, machine}] = on
	}
}

// check compares everything that can be seen.
func (m *routedModel) check(t *rapid.T) {
	m.pass()
	for _, pool := range routedPools {
		m.expireOrders(t, pool)
		got, err := m.s.Routed(t.Context(), pool, true)
		require.NoError(t, err)
		for _, machine := range routedMachines {
			p := place{pool, machine}
			want, known := m.books[p]
			b, found := got.Machines[machine]
			require.Equal(t, known, found, "%v", p)
			if known {
				require.Equal(t, want.uses, b.Uses, "%v", p)
				require.False(t, b.LastUsedAt.IsZero())
			}
			require.Len(t, b.Open, m.open(p), "%v", p)
			for _, j := range b.Open {
				require.Equal(t, m.jobs[j.ID].RoutedJob, j)
			}
		}
	}
}

// Invariant I1 hangs on this: whoever orders a machine to drain and then reads its
// book sees every job that it was given and will be given, whichever replica asks.
func TestNoRoutedJobBeginsAfterAnOrder(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	rounds := map[string]int{"redis": 10, "embedded": 3} // to write a book is slow there
	for name, open := range map[string]func(t *testing.T) [2]*store.Store{
		"redis": func(t *testing.T) [2]*store.Store {
			var replicas [2]*store.Store
			for i := range replicas {
				s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: patiently})
				require.NoError(t, err)
				replicas[i] = closeAtEnd(t, s)
			}
			return replicas
		},
		"embedded": func(t *testing.T) [2]*store.Store {
			s, err := store.OpenEmbedded()
			require.NoError(t, err)
			closeAtEnd(t, s)
			return [2]*store.Store{s, s}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := open(t)
			for round := range rounds[name] {
				orderWhileJobsBegin(t, replicas, spillway.MachineID(fmt.Sprintf("m%d", round)), 1000*round)
			}
		})
	}
}

func orderWhileJobsBegin(t *testing.T, replicas [2]*store.Store, machine spillway.MachineID, firstID int) {
	t.Helper()
	const beginners, perBeginner = 8, 25
	var begun sync.Map
	var wg sync.WaitGroup
	halfWay := make(chan struct{}, beginners)
	for i := range beginners {
		wg.Go(func() {
			for n := range perBeginner {
				if n == perBeginner/2 {
					halfWay <- struct{}{}
				}
				id := spillway.JobID(fmt.Sprint(firstID + perBeginner*i + n))
				now := time.Now()
				ok, err := replicas[i%2].BeginRouted(t.Context(), store.RoutedJob{ID: id, Pool: "p", Machine: machine, Begun: now, Until: now.Add(time.Hour)})
				if err != nil {
					t.Errorf("job %s: %v", id, err)
				}
				if ok {
					begun.Store(id, true)
				}
			}
		})
	}
	<-halfWay
	require.NoError(t, replicas[0].OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: machine, On: true}}))
	books, err := replicas[1].Routed(t.Context(), "p", true)
	require.NoError(t, err)
	wg.Wait()

	seen := map[any]bool{}
	for _, j := range books.Machines[machine].Open {
		seen[j.ID] = true
	}
	given := map[any]bool{}
	begun.Range(func(id, _ any) bool {
		given[id] = true
		return true
	})
	require.Equal(t, given, seen, "what was in the book after the order is all that was ever begun")
	require.NotEmpty(t, given)
	require.Less(t, len(given), beginners*perBeginner, "the order came in between")
}

func TestOpenJobsOfAMachineAreBounded(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{storetest.StartRedis(t)}, Timeout: patiently})
	require.NoError(t, err)
	closeAtEnd(t, s)
	now := time.Now().UTC().Truncate(time.Microsecond)
	j := store.RoutedJob{ID: "0", Pool: "p", Machine: "m", Begun: now, Until: now.Add(time.Hour)}
	store.FillBook(t, s, j, store.MaxRoutedOpen-1)
	begin := func(id spillway.JobID) error {
		j.ID = id
		_, err := s.BeginRouted(t.Context(), j)
		return err
	}
	require.NoError(t, begin("last"))
	require.ErrorIs(t, begin("more"), store.ErrBookFull)
	require.NoError(t, begin("7"), "again")
	ended, err := s.EndRouted(t.Context(), "7")
	require.NoError(t, err)
	require.True(t, ended)
	require.NoError(t, begin("more"))
	books, err := s.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.Len(t, books.Machines["m"].Open, store.MaxRoutedOpen)

	require.NoError(t, s.RemoveMachines(t.Context(), "p", []spillway.MachineID{"m"}))
	books, err = s.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.Empty(t, books.Machines)
	ended, err = s.EndRouted(t.Context(), "last")
	require.NoError(t, err)
	require.False(t, ended)
}

// Jobs that were not confirmed are remembered, but not without a bound.
func TestUnconfirmedJobsOfAMachineAreBounded(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s, err := store.OpenEmbeddedAt(clock.now, store.Options{})
	require.NoError(t, err)
	closeAtEnd(t, s)
	job := func(id int) store.RoutedJob {
		now := clock.now()
		return store.RoutedJob{
			ID: spillway.JobID(fmt.Sprint(id)), Pool: "p", Machine: "m", Begun: now, Until: now.Add(time.Hour), ConfirmWithin: time.Minute,
		}
	}
	begin := func(id int) {
		begun, err := s.BeginRouted(t.Context(), job(id))
		require.NoError(t, err)
		require.True(t, begun)
	}
	confirm := func(id int) store.Confirmation {
		got, err := s.ConfirmRouted(t.Context(), spillway.JobID(fmt.Sprint(id)))
		require.NoError(t, err)
		return got
	}
	const last = store.MaxRoutedOpen - 1
	store.FillBook(t, s, job(0), last) // one begin after the other takes minutes on a busy machine
	begin(last)
	require.Equal(t, store.Confirmed, confirm(0), "it speaks through us")
	clock.advance(time.Minute)
	begin(store.MaxRoutedOpen) // in the place of the first of those that were lost
	require.Equal(t, store.Unbooked, confirm(1))
	require.Equal(t, store.TooLate, confirm(2))
	require.Equal(t, store.Confirmed, confirm(store.MaxRoutedOpen))
	books, err := s.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.Len(t, books.Machines["m"].Open, 2)
}

// Who has not read a book for a day may have had jobs handed out without us since.
func TestABookThatNobodyReadsBeginsAnew(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s, err := store.OpenEmbeddedAt(clock.now, store.Options{})
	require.NoError(t, err)
	closeAtEnd(t, s)
	since := func() time.Time {
		book, err := s.Routed(t.Context(), "p", true)
		require.NoError(t, err)
		require.True(t, book.At.Equal(clock.now()))
		return book.Since
	}
	first := since()
	for range 3 {
		clock.advance(23 * time.Hour)
		require.Equal(t, first, since())
	}
	clock.advance(25 * time.Hour)
	require.True(t, since().Equal(clock.now()))
}

func FuzzDecodeBook(f *testing.F) {
	f.Add("2 1700000000000000\n7 1 9000000000000000")
	f.Add("2 1700000000000000 1\n7 1 9000000000000000 900")
	f.Add("x")
	f.Add("0 0\n7 1 -2")
	f.Fuzz(func(t *testing.T, text string) {
		now := time.UnixMicro(1000)
		b, err := store.DecodeBook("p", "m", text, now)
		if err != nil {
			require.ErrorIs(t, err, store.ErrContent)
			return
		}
		require.GreaterOrEqual(t, b.Uses, 0)
		for _, j := range b.Open {
			require.True(t, j.Until.After(now))
		}
	})
}
