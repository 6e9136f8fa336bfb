package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// routed returns a job that is begun now and stays open for longer than any test.
func routed(pool, machine, id string) store.RoutedJob {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return store.RoutedJob{ID: spillway.JobID(id), Pool: pool, Machine: spillway.MachineID(machine), Begun: now, Until: now.Add(time.Hour)}
}

// begin begins a job; want says whether that succeeds.
func begin(t *testing.T, s *store.Store, j store.RoutedJob, want bool) {
	t.Helper()
	begun, err := s.BeginRouted(t.Context(), j)
	require.NoError(t, err)
	require.Equal(t, want, begun, "job %s on machine %s", j.ID, j.Machine)
}

// toConfirm returns a job that is to be confirmed within some time.
func toConfirm(machine, id string, within time.Duration) store.RoutedJob {
	j := routed("blue", machine, id)
	j.ConfirmWithin = within
	return j
}

func confirm(t *testing.T, s *store.Store, id spillway.JobID, want store.Confirmation) {
	t.Helper()
	got, err := s.ConfirmRouted(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, want, got, "job %s", id)
}

func end(t *testing.T, s *store.Store, id spillway.JobID, want bool) {
	t.Helper()
	ended, err := s.EndRouted(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, want, ended, "job %s", id)
}

// book returns the book of a machine.
func book(t *testing.T, s *store.Store, pool string, machine spillway.MachineID) (store.RoutedMachine, bool) {
	t.Helper()
	books, err := s.Routed(t.Context(), pool, true)
	require.NoError(t, err)
	b, ok := books.Machines[machine]
	return b, ok
}

func open(t *testing.T, s *store.Store, pool string, machine spillway.MachineID) []store.RoutedJob {
	t.Helper()
	b, _ := book(t, s, pool, machine)
	return b.Open
}

func order(t *testing.T, s *store.Store, machine spillway.MachineID, on bool) {
	t.Helper()
	require.NoError(t, s.OrderDrain(t.Context(), "blue", []router.DrainOrder{{Machine: machine, On: on}}))
}

var routedContract = []contract{
	{"a job is in one machine's book until it ends", store.Options{}, func(t *testing.T, s *store.Store) {
		_, known := book(t, s, "blue", "m")
		require.False(t, known)
		a, b := routed("blue", "m", "1"), routed("blue", "m", "2")
		begin(t, s, a, true)
		begin(t, s, b, true)
		other := routed("green", "m", "3")
		begin(t, s, other, true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, []store.RoutedJob{a, b}, m.Open)
		require.Equal(t, 2, m.Uses)
		require.WithinDuration(t, time.Now(), m.LastUsedAt, within)

		end(t, s, "1", true)
		end(t, s, "1", false)
		end(t, s, "never", false)
		after, _ := book(t, s, "blue", "m")
		require.Equal(t, []store.RoutedJob{b}, after.Open)
		require.Equal(t, 2, after.Uses)
		require.False(t, after.LastUsedAt.Before(m.LastUsedAt))
		require.Equal(t, []store.RoutedJob{other}, open(t, s, "green", "m"))
		end(t, s, "3", true)
	}},
	{"none begins on a machine under an order", store.Options{}, func(t *testing.T, s *store.Store) {
		before := routed("blue", "m", "1")
		begin(t, s, before, true)
		order(t, s, "m", true)
		begin(t, s, routed("blue", "m", "2"), false)
		begin(t, s, routed("blue", "other", "2"), true)
		begin(t, s, before, true) // again: it was begun before the order
		require.Equal(t, []store.RoutedJob{before}, open(t, s, "blue", "m"))
		end(t, s, "1", true)
		begin(t, s, before, false)
		m, _ := book(t, s, "blue", "m")
		require.Empty(t, m.Open)
		require.Equal(t, 1, m.Uses)
		order(t, s, "m", false)
		begin(t, s, before, true)
	}},
	{"once more is once", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		begin(t, s, j, true)
		later := j
		later.Begun, later.Until = j.Begun.Add(time.Minute), j.Until.Add(time.Minute)
		begin(t, s, later, true)
		begin(t, s, j, true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
		j.Until = later.Until
		require.Equal(t, []store.RoutedJob{j}, m.Open, "its first begin, its last until")
	}},
	{"a job that is given out anew moves", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		begin(t, s, j, true)
		order(t, s, "no", true)
		j.Machine = "no"
		begin(t, s, j, false)
		require.Len(t, open(t, s, "blue", "m"), 1, "it stays where it is if it can't move")
		j.Machine = "n"
		begin(t, s, j, true)
		require.Empty(t, open(t, s, "blue", "m"))
		require.Len(t, open(t, s, "blue", "n"), 1)

		j.Pool, j.Begun = "green", j.Begun.Add(time.Microsecond)
		begin(t, s, j, true)
		require.Empty(t, open(t, s, "blue", "n"))
		require.Equal(t, []store.RoutedJob{j}, open(t, s, "green", "n"))
		j.Pool, j.Begun = "blue", j.Begun.Add(-time.Second)
		begin(t, s, j, true)
		require.Len(t, open(t, s, "green", "n"), 1, "a late word of an older begin strikes no newer one")
		end(t, s, "1", true)
		require.Empty(t, open(t, s, "green", "n"))
		require.Empty(t, open(t, s, "blue", "n"))
	}},
	{"it is open until its until", store.Options{}, func(t *testing.T, s *store.Store) {
		j := routed("blue", "m", "1")
		for short := 300 * time.Millisecond; ; short *= 3 {
			j.Until = time.Now().Add(short)
			begun, err := s.BeginRouted(t.Context(), j)
			if err == nil {
				require.True(t, begun)
				break
			}
			require.ErrorIs(t, err, spillway.ErrInvalid, "it may be over when it comes there")
			require.Less(t, short, within)
		}
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 0 }, within, every)
		require.False(t, time.Now().Before(j.Until))
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
		end(t, s, "1", false)
		_, err := s.BeginRouted(t.Context(), j)
		require.ErrorIs(t, err, spillway.ErrInvalid, "it would not be in the book that the scaler reads")
	}},
	{"a machine that is removed has no book", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "m", "1"), true)
		begin(t, s, routed("blue", "n", "2"), true)
		require.NoError(t, s.RemoveMachines(t.Context(), "blue", []spillway.MachineID{"m"}))
		_, known := book(t, s, "blue", "m")
		require.False(t, known)
		end(t, s, "1", false)
		require.Len(t, open(t, s, "blue", "n"), 1)
		begin(t, s, routed("blue", "m", "3"), true)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 1, m.Uses)
	}},
	{"a book lives as long as the record, or the last open job", store.Options{MachineTTL: briefTTL}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "busy", "1"), true)
		var uses int
		for number, inTime := 2, false; !inTime; number += 2 {
			require.Less(t, number, 200, "this machine is too slow to keep a record")
			uses, inTime = keepOneOfTwo(t, s, number)
		}
		require.Equal(t, 1, uses)
		require.Len(t, open(t, s, "blue", "busy"), 1)
	}},
	{"a book says since when it has every job", store.Options{}, func(t *testing.T, s *store.Store) {
		before := time.Now()
		first, err := s.Routed(t.Context(), "blue", true)
		require.NoError(t, err)
		require.WithinRange(t, first.Since, before.Add(-within), time.Now().Add(within))
		require.Equal(t, first.At, first.Since, "it is young when it is first read")
		begin(t, s, routed("blue", "m", "1"), true)
		require.NoError(t, s.RemoveMachines(t.Context(), "blue", []spillway.MachineID{"m"}))
		require.NoError(t, s.PutMachines(t.Context(), []router.Machine{machine("blue", "n")}))
		again, err := s.Routed(t.Context(), "blue", true)
		require.NoError(t, err)
		require.Equal(t, first.Since, again.Since)
		require.True(t, again.At.After(first.At))
		require.Empty(t, again.Machines)
		other, err := s.Routed(t.Context(), "green", true)
		require.NoError(t, err)
		require.True(t, other.Since.After(first.Since), "each pool's has its own time")
	}},
	{"a book that missed jobs begins anew when it is whole again", store.Options{}, func(t *testing.T, s *store.Store) {
		first, err := s.Routed(t.Context(), "blue", true)
		require.NoError(t, err)
		for range 2 { // jobs reach the machines in another way, too
			missing, err := s.Routed(t.Context(), "blue", false)
			require.NoError(t, err)
			require.True(t, missing.Since.After(first.Since))
		}
		whole, err := s.Routed(t.Context(), "blue", true)
		require.NoError(t, err)
		require.Equal(t, whole.At, whole.Since)
		again, err := s.Routed(t.Context(), "blue", true)
		require.NoError(t, err)
		require.Equal(t, whole.Since, again.Since)
	}},
	{"a job that is confirmed is open until its until", store.Options{}, func(t *testing.T, s *store.Store) {
		confirm(t, s, "1", store.Unbooked)
		j := toConfirm("m", "1", 200*time.Millisecond)
		begin(t, s, j, true)
		confirm(t, s, "1", store.Confirmed)
		confirm(t, s, "1", store.Confirmed)
		late := toConfirm("m", "2", 200*time.Millisecond)
		begin(t, s, late, true)
		j.ConfirmWithin = 0
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 1 }, within, every)
		require.Equal(t, []store.RoutedJob{j}, open(t, s, "blue", "m"))
		end(t, s, "1", true)
		confirm(t, s, "1", store.Unbooked)
	}},
	{"one that was not confirmed in time can't be any more", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "m", "0"), true)
		confirm(t, s, "0", store.Confirmed)
		end(t, s, "0", true)
		begin(t, s, toConfirm("m", "1", time.Minute), true)
		require.Len(t, open(t, s, "blue", "m"), 1)
		begin(t, s, toConfirm("m", "1", time.Millisecond), true) // once more
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 0 }, within, every)
		confirm(t, s, "1", store.TooLate)
		begin(t, s, routed("blue", "m", "2"), true) // changes the book, and keeps what is known of it
		confirm(t, s, "1", store.TooLate)
		require.Len(t, open(t, s, "blue", "m"), 1)

		// It is begun once more only where no order stands, and is as good as new then.
		order(t, s, "m", true)
		begin(t, s, toConfirm("m", "1", time.Minute), false)
		order(t, s, "m", false)
		begin(t, s, toConfirm("m", "1", time.Minute), true)
		confirm(t, s, "1", store.Confirmed)
		require.Len(t, open(t, s, "blue", "m"), 2)
		m, _ := book(t, s, "blue", "m")
		require.Equal(t, 4, m.Uses)
	}},
	{"the end of one that was not confirmed in time is its end", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "m", "0"), true)
		confirm(t, s, "0", store.Confirmed)
		begin(t, s, toConfirm("m", "1", time.Millisecond), true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 1 }, within, every)
		end(t, s, "1", false)
		confirm(t, s, "1", store.Unbooked)
		begin(t, s, toConfirm("m", "2", time.Millisecond), true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 1 }, within, every)
		begin(t, s, routed("green", "n", "2"), true) // GitLab has given it out anew
		confirm(t, s, "2", store.Confirmed)
		require.Len(t, open(t, s, "green", "n"), 1)
	}},
	{"who never confirms has its jobs until their until", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, toConfirm("m", "1", time.Millisecond), true)
		begin(t, s, toConfirm("other", "2", time.Minute), true)
		confirm(t, s, "2", store.Confirmed)
		begin(t, s, toConfirm("other", "3", time.Millisecond), true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "other")) == 1 }, within, every)
		require.Len(t, open(t, s, "blue", "m"), 1, "its words may go to GitLab without us")
		confirm(t, s, "1", store.Confirmed) // so they do not
		begin(t, s, toConfirm("m", "4", time.Millisecond), true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 1 }, within, every)
	}},
	{"once more gives once more the time to confirm", store.Options{}, func(t *testing.T, s *store.Store) {
		begin(t, s, routed("blue", "m", "0"), true)
		confirm(t, s, "0", store.Confirmed)
		j := toConfirm("m", "1", time.Minute)
		begin(t, s, j, true)
		j.ConfirmWithin = time.Millisecond
		begin(t, s, j, true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 1 }, within, every)
		j = toConfirm("m", "2", time.Minute)
		begin(t, s, j, true)
		confirm(t, s, "2", store.Confirmed)
		j.ConfirmWithin = time.Millisecond
		begin(t, s, j, true) // a late repetition
		begin(t, s, toConfirm("m", "3", time.Millisecond), true)
		require.Eventually(t, func() bool { return len(open(t, s, "blue", "m")) == 2 }, within, every)
		confirm(t, s, "2", store.Confirmed)
	}},
	{"bad ones are refused", store.Options{}, func(t *testing.T, s *store.Store) {
		good := routed("blue", strings.Repeat("m", 1024), strings.Repeat("1", spillway.MaxJobIDBytes))
		good.Until = good.Begun.Add(store.MaxRoutedFor)
		begin(t, s, good, true)
		for name, change := range map[string]func(*store.RoutedJob){
			"no id":        func(j *store.RoutedJob) { j.ID = "" },
			"long id":      func(j *store.RoutedJob) { j.ID += "1" },
			"blank":        func(j *store.RoutedJob) { j.ID = "1 2" },
			"pool":         func(j *store.RoutedJob) { j.Pool = "{no}" },
			"no machine":   func(j *store.RoutedJob) { j.Machine = "" },
			"long machine": func(j *store.RoutedJob) { j.Machine += "m" },
			"never begun":  func(j *store.RoutedJob) { j.Begun = time.Time{} },
			"ends first":   func(j *store.RoutedJob) { j.Until = j.Begun },
			"too long":     func(j *store.RoutedJob) { j.Until = j.Until.Add(1) },
			"confirmed":    func(j *store.RoutedJob) { j.ConfirmWithin = -1 },
			"forever":      func(j *store.RoutedJob) { j.ConfirmWithin = store.MaxRoutedFor + 1 },
		} {
			j := good
			change(&j)
			_, err := s.BeginRouted(t.Context(), j)
			require.ErrorIs(t, err, spillway.ErrInvalid, name)
		}
		_, err := s.EndRouted(t.Context(), "")
		require.ErrorIs(t, err, spillway.ErrInvalid)
		_, err = s.ConfirmRouted(t.Context(), "1 2")
		require.ErrorIs(t, err, spillway.ErrInvalid)
	}},
}

// keepOneOfTwo has the record of one machine kept until the book of another one is gone, and
// returns how many uses the first one's has. inTime is whether it never was too late.
func keepOneOfTwo(t *testing.T, s *store.Store, number int) (uses int, inTime bool) {
	t.Helper()
	kept, gone := fmt.Sprint("kept-", number), fmt.Sprint("gone-", number)
	inTime = true
	touched := time.Now()
	touch := func(f func()) {
		before := time.Now()
		f()
		inTime = inTime && time.Since(touched) < briefTTL
		touched = before
	}
	touch(func() { begin(t, s, routed("blue", kept, fmt.Sprint(number)), true) })
	touch(func() { end(t, s, spillway.JobID(fmt.Sprint(number)), true) })
	begin(t, s, routed("blue", gone, fmt.Sprint(number+1)), true)
	end(t, s, spillway.JobID(fmt.Sprint(number+1)), true)
	for known, end := true, time.Now().Add(within); known; {
		require.True(t, time.Now().Before(end), "the other's book is kept")
		touch(func() { require.NoError(t, s.PutMachines(t.Context(), []router.Machine{machine("blue", kept)})) })
		_, known = book(t, s, "blue", spillway.MachineID(gone))
	}
	touch(func() {
		b, _ := book(t, s, "blue", spillway.MachineID(kept))
		uses = b.Uses
	})
	return uses, inTime
}
