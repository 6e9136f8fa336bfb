package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

type rig struct {
	*memstore.Store
	now time.Time
}

func newRig() *rig {
	r := &rig{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.Store = memstore.New(func() time.Time { return r.now })
	return r
}

var need = spillway.Requirement{Tags: []string{"docker"}}

func (r *rig) push(t require.TestingT, id string, priority int) {
	out, err := r.Push(spillway.Job{ID: spillway.JobID(id), Requirement: need, Priority: priority, SubmittedAt: r.now})
	require.NoError(t, err)
	require.Equal(t, store.Accepted, out)
}

func (r *rig) claim(t require.TestingT, n int) []router.Claimed {
	got, err := r.Claim("a", []router.ClaimWant{{Class: need.Class(), Pool: "p", N: n}})
	require.NoError(t, err)
	return got
}

func ids(got []router.Claimed) (out []string) {
	for _, c := range got {
		out = append(out, string(c.Job.ID))
	}
	return out
}

func TestClaimsGoByPriorityThenAge(t *testing.T) {
	r := newRig()
	r.push(t, "late", 1)
	r.now = r.now.Add(time.Second)
	r.push(t, "urgent", 0)
	r.push(t, "urgent-too", 0)
	counts, err := r.Counts()
	require.NoError(t, err)
	require.Equal(t, []router.ClassCount{{
		Class: need.Class(), Requirement: need.Normalize(), Pending: 3, Priority: 0, Oldest: r.now.Add(-time.Second),
	}}, counts)
	require.Equal(t, []string{"urgent", "urgent-too"}, ids(r.claim(t, 2)))
	require.Equal(t, []string{"late"}, ids(r.claim(t, 5)))
}

func TestDuplicatesAndConflicts(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	out, err := r.Push(spillway.Job{ID: "j", Requirement: need})
	require.NoError(t, err)
	require.Equal(t, store.Duplicate, out)
	out, err = r.Push(spillway.Job{ID: "j", Requirement: spillway.Requirement{Tags: []string{"other"}}})
	require.NoError(t, err)
	require.Equal(t, store.Conflict, out)
}

func TestI10_AnOlderAttemptIsRefused(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	first := r.claim(t, 1)[0].Ref
	requeued, err := r.Release(store.Release{Ref: first})
	require.NoError(t, err)
	require.True(t, requeued)
	second := r.claim(t, 1)[0].Ref
	require.Equal(t, first.Attempt+1, second.Attempt)
	done := spillway.JobResult{State: spillway.Completed}
	require.ErrorIs(t, r.Apply(store.Transition{Ref: first, To: spillway.Completed, Result: done}), store.ErrStaleAttempt)
	require.NoError(t, r.Apply(store.Transition{Ref: second, To: spillway.Running}))
	require.NoError(t, r.Apply(store.Transition{Ref: second, To: spillway.Completed, Result: done}))
	require.ErrorIs(t, r.Apply(store.Transition{Ref: second, To: spillway.Completed, Result: done}), store.ErrStaleAttempt)
	require.ErrorIs(t, r.Apply(store.Transition{Ref: router.JobRef{ID: "other"}}), store.ErrUnknownJob)
}

func TestAJobThatIsLostTooOftenFails(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	for i := range spillway.DefaultMaxAttempts {
		requeued, err := r.Release(store.Release{Ref: r.claim(t, 1)[0].Ref, Lost: true})
		require.NoError(t, err)
		require.Equal(t, i+1 < spillway.DefaultMaxAttempts, requeued)
	}
	rec, err := r.Job("j")
	require.NoError(t, err)
	require.Equal(t, spillway.RunnerSystemFailure, rec.Result.Reason)
}

func TestClaimsEndUnlessTheyAreRenewed(t *testing.T) {
	r := newRig()
	r.push(t, "kept", 0)
	r.push(t, "dropped", 0)
	got := r.claim(t, 2)
	r.now = r.now.Add(memstore.DefaultClaimTTL - time.Second)
	stale, err := r.Renew([]router.JobRef{got[0].Ref, {ID: "kept", Class: got[0].Ref.Class, Attempt: 7}}, memstore.DefaultClaimTTL)
	require.NoError(t, err)
	require.Equal(t, []router.JobRef{{ID: "kept", Class: got[0].Ref.Class, Attempt: 7}}, stale)
	_, err = r.Renew([]router.JobRef{got[0].Ref}, time.Second)
	require.NoError(t, err, "a claim is never made shorter")
	r.now = r.now.Add(time.Second)
	require.NoError(t, r.Reap())
	require.Equal(t, []string{"dropped"}, ids(r.claim(t, 5)))
}

func TestAMachinesAttemptIsAdopted(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	got := r.claim(t, 1)[0]
	require.NoError(t, r.Adopt("b", got.Job, got.Ref, "p", "m"))
	r.Wipe()
	_, err := r.Job("j")
	require.ErrorIs(t, err, store.ErrUnknownJob)
	require.NoError(t, r.Adopt("b", got.Job, got.Ref, "p", "m"), "a heartbeat tells it again")
	rec, err := r.Job("j")
	require.NoError(t, err)
	require.Equal(t, spillway.Running, rec.State)
	old := got.Ref
	old.Attempt--
	require.ErrorIs(t, r.Adopt("b", got.Job, old, "p", "m"), store.ErrStaleAttempt)
}

func TestFaults(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	r.Fault = memstore.Readonly
	_, err := r.Counts()
	require.NoError(t, err)
	_, err = r.Cancel("j")
	require.ErrorIs(t, err, store.ErrUnavailable)
	r.Fault = memstore.Down
	_, err = r.Counts()
	require.ErrorIs(t, err, store.ErrUnavailable)
	_, err = r.Machines(t.Context())
	require.ErrorIs(t, err, store.ErrUnavailable)
	r.Fault = memstore.Healthy
	was, err := r.Cancel("j")
	require.NoError(t, err)
	require.Equal(t, spillway.Pending, was.State)
}

func TestI8_LeasesAndEpochs(t *testing.T) {
	r := newRig()
	ctx := t.Context()
	held, err := r.HoldLeases(ctx, []string{"x"}, "a", 15*time.Second)
	require.NoError(t, err)
	first := held["x"]
	held, err = r.HoldLeases(ctx, []string{"x"}, "b", 15*time.Second)
	require.NoError(t, err)
	require.Empty(t, held)
	r.now = r.now.Add(15 * time.Second)
	require.Empty(t, r.Holder("x"))
	held, err = r.HoldLeases(ctx, []string{"x"}, "b", 15*time.Second)
	require.NoError(t, err)
	second := held["x"]
	require.Greater(t, second.Epoch, first.Epoch)
	require.ErrorIs(t, r.ReleaseLease(ctx, first), store.ErrLeaseLost)
	require.NoError(t, r.SavePoolState(ctx, "p", second.Epoch, []byte("s")))
	require.ErrorIs(t, r.SavePoolState(ctx, "p", first.Epoch, nil), store.ErrStaleEpoch)
	require.ErrorIs(t, r.AppendLedger(ctx, "p", first.Epoch, nil), store.ErrStaleEpoch)
	r.Wipe()
	r.now = r.now.Add(time.Second)
	held, err = r.HoldLeases(ctx, []string{"x"}, "a", 15*time.Second)
	require.NoError(t, err)
	require.Greater(t, held["x"].Epoch, second.Epoch, "losing everything does not set epochs back")
}

func TestDrainsAreKeptUntilTheyAreTakenBack(t *testing.T) {
	r := newRig()
	told := 0
	r.Ordered = func() { told++ }
	require.NoError(t, r.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m", On: true}}))
	order, ok := r.Drain("m")
	require.True(t, ok && order.On)
	require.NoError(t, r.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m"}}))
	_, ok = r.Drain("m")
	require.False(t, ok)
	require.Equal(t, 2, told)
}

// Whatever is done: the counts agree with the records, and each job is in one place.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig()
		var refs []router.JobRef
		pushed := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			pick := func() router.JobRef { return refs[rapid.IntRange(0, len(refs)-1).Draw(rt, "ref")] }
			switch op := rapid.IntRange(0, 5).Draw(rt, "op"); {
			case op == 0 || len(refs) == 0:
				r.push(rt, fmt.Sprintf("j%d", pushed), rapid.IntRange(0, 2).Draw(rt, "priority"))
				pushed++
				for _, c := range r.claim(rt, rapid.IntRange(0, 2).Draw(rt, "claims")) {
					refs = append(refs, c.Ref)
				}
			case op == 1:
				_, _ = r.Release(store.Release{Ref: pick(), Lost: rapid.Bool().Draw(rt, "lost")})
			case op == 2:
				_ = r.Apply(store.Transition{Ref: pick(), To: spillway.Completed, Result: spillway.JobResult{State: spillway.Completed}})
			case op == 3:
				_, _ = r.Cancel(pick().ID)
			case op == 4:
				_, _ = r.Renew([]router.JobRef{pick()}, memstore.DefaultClaimTTL)
			default:
				_ = r.Reap()
			}
			states := map[spillway.JobState]int{}
			for i := range pushed {
				rec, err := r.Job(spillway.JobID(fmt.Sprintf("j%d", i)))
				require.NoError(rt, err)
				states[rec.State]++
			}
			counts, err := r.Counts()
			require.NoError(rt, err)
			var pending, claimed int
			for _, c := range counts {
				pending, claimed = pending+c.Pending, claimed+c.Claimed
			}
			require.Equal(rt, states[spillway.Pending], pending)
			require.Equal(rt, states[spillway.Assigned]+states[spillway.Running], claimed)
			require.Len(rt, r.Pending(), pending)
		}
	})
}

func TestTheBookOfRoutedJobs(t *testing.T) {
	r := newRig()
	job := func(id, machine string) store.RoutedJob {
		return store.RoutedJob{ID: spillway.JobID(id), Pool: "p", Machine: spillway.MachineID(machine), Begun: r.now, Until: r.now.Add(time.Hour)}
	}
	for range 2 { // repeating it is harmless
		begun, err := r.BeginRouted(job("1", "m"))
		require.NoError(t, err)
		require.True(t, begun)
	}
	books, err := r.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.Len(t, books.Machines["m"].Open, 1)
	require.Equal(t, 1, books.Machines["m"].Uses)
	ended, err := r.EndRouted("1")
	require.NoError(t, err)
	require.True(t, ended)
	ended, err = r.EndRouted("1")
	require.NoError(t, err)
	require.False(t, ended)

	at := r.now
	require.NoError(t, r.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m", On: true}}))
	r.now = r.now.Add(time.Minute)
	require.NoError(t, r.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m", On: true}}))
	orders, err := r.Drains(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, at, orders["m"].At, "an order that stands keeps its time")
	begun, err := r.BeginRouted(job("2", "m"))
	require.NoError(t, err)
	require.False(t, begun, "nothing begins on a machine that is ordered to drain")

	_, err = r.BeginRouted(job("3", "other"))
	require.NoError(t, err)
	r.now = r.now.Add(time.Hour)
	books, err = r.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.Empty(t, books.Machines["other"].Open, "past its Until")
	require.NoError(t, r.RemoveMachines(t.Context(), "p", []spillway.MachineID{"other"}))
	books, err = r.Routed(t.Context(), "p", true)
	require.NoError(t, err)
	require.NotContains(t, books.Machines, spillway.MachineID("other"))
}

func TestJobsAreConfirmedInTimeOrNotAtAll(t *testing.T) {
	r := newRig()
	begin := func(id string, within time.Duration) {
		begun, err := r.BeginRouted(store.RoutedJob{ID: spillway.JobID(id), Pool: "p", Machine: "m", Begun: r.now, Until: r.now.Add(time.Hour), ConfirmWithin: within})
		require.NoError(t, err)
		require.True(t, begun)
	}
	confirm := func(id spillway.JobID, want store.Confirmation) {
		got, err := r.ConfirmRouted(id)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	open := func() int {
		book, err := r.Routed(t.Context(), "p", true)
		require.NoError(t, err)
		return len(book.Machines["m"].Open)
	}
	begin("1", time.Minute)
	r.now = r.now.Add(time.Minute)
	require.Equal(t, 1, open(), "nothing shows that its words pass us")
	confirm("1", store.Confirmed)
	begin("2", time.Minute)
	require.Equal(t, 2, open())
	r.now = r.now.Add(time.Minute)
	require.Equal(t, 1, open())
	confirm("2", store.TooLate)
	ended, err := r.EndRouted("2")
	require.NoError(t, err)
	require.False(t, ended)
	confirm("2", store.Unbooked)
	confirm("1", store.Confirmed)
}

func TestABookBeginsWhenItIsFirstRead(t *testing.T) {
	r := newRig()
	since := func() time.Time {
		book, err := r.Routed(t.Context(), "p", true)
		require.NoError(t, err)
		require.Equal(t, r.now, book.At)
		return book.Since
	}
	first := since()
	require.Equal(t, r.now, first)
	r.now = r.now.Add(time.Hour)
	require.Equal(t, first, since())
	r.Wipe()
	require.Equal(t, r.now, since())
}

func TestBoardsAreShownForAWhile(t *testing.T) {
	r := newRig()
	require.NoError(t, r.PutBoard(t.Context(), "b", 2, []byte("x"), time.Minute))
	require.ErrorIs(t, r.PutBoard(t.Context(), "b", 1, []byte("y"), time.Minute), store.ErrStaleEpoch)
	data, found, err := r.Board(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "x", string(data))
	r.now = r.now.Add(time.Minute)
	_, found, err = r.Board(t.Context(), "b")
	require.NoError(t, err)
	require.False(t, found)
}
