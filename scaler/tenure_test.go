package scaler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
)

// slowWorld is a world whose provider takes its time.
type slowWorld struct {
	*world

	status, set time.Duration
}

func (w *slowWorld) Status(ctx context.Context) (pluginsdk.GroupStatus, error) {
	time.Sleep(w.status)
	return w.world.Status(ctx)
}

func (w *slowWorld) SetDesired(ctx context.Context, target, expected int) (int, error) {
	time.Sleep(w.set)
	return w.world.SetDesired(ctx, target, expected)
}

// lastTenure ends at a time, whenever it is asked for, unless another epoch has begun.
type lastTenure struct {
	epoch uint64
	ends  time.Time
}

func (l *lastTenure) Hold(_ string, now time.Time) (uint64, time.Time, bool) {
	return l.epoch, l.ends, now.Before(l.ends)
}

// What a tick asks first may take longer than the rest of its lease: the look at the
// group, or the write before. The next write could arrive when another replica has the
// pool.
func TestI8_NoWriteIsSentWhenTheCallsBeforeItHaveTakenTheTenure(t *testing.T) {
	for name, c := range map[string]struct {
		status, set time.Duration
		asked       []string
	}{
		"neither":               {0, 0, []string{"set2|1", "complete[i-0]"}},
		"the look":              {7 * time.Second, 0, nil},
		"the write before":      {0, 7 * time.Second, []string{"set2|1"}},
		"nearly, and just once": {6 * time.Second, time.Second, []string{"set2|1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &slowWorld{world: newWorld()}
				w.world.status.Desired, w.list = 1, []pluginsdk.Instance{{ID: "i-0", State: pluginsdk.StateRunning}}
				w.machines = []router.Machine{{
					ID: "m-0", InstanceID: "i-0", Pool: "linux", Capacity: 1, Busy: 1, Connected: true,
					HeardAt: t0, HeartbeatAt: t0, RegisteredAt: t0, LastUsedAt: t0,
				}}
				tenure := &lastTenure{epoch: 1, ends: t0.Add(time.Hour)}
				var ledger []LedgerEntry
				events := &Events{Decided: func(e LedgerEntry) { ledger = append(ledger, e) }}
				fleet := NewFleet(w, w, 5*time.Second, spillway.SilentAfter, events)
				pool := NewPool(config(w.world), w, w, w, tenure, events)
				tick := func(now time.Time) {
					pool.Tick(t.Context(), now, fleet.Observe(t.Context(), now, []*Pool{pool}))
				}
				tick(t0)
				require.Empty(t, w.taken())

				w.pend(1)
				w.list[0].Hook = pluginsdk.LaunchHook
				w.status, w.set = c.status, c.set
				tenure.ends = t0.Add(5*time.Second + LeaseTTL)
				tick(t0.Add(5 * time.Second))
				require.Equal(t, c.asked, w.taken())
				require.NotEmpty(t, ledger)
				require.Zero(t, pool.state.CoolOff.Until, "the provider has refused nothing")

				w.status, w.set = 0, 0
				tenure.ends = t0.Add(time.Hour)
				tick(t0.Add(10 * time.Second))
				require.ElementsMatch(t, []string{"set2|1", "complete[i-0]"}, append(c.asked, w.taken()...), "each of them once")
			})
		})
	}
}

// A renewal that came meanwhile is as good as a longer lease, and the tenure of somebody
// else is none.
func TestI8_TheTenureCountsAsItIsWhenAWriteIsSent(t *testing.T) {
	w := newWorld()
	tenure := &lastTenure{epoch: 1, ends: t0.Add(LeaseTTL)}
	pool := NewPool(config(w), w, w, w, tenure, &Events{})
	pool.now = w.clock
	pool.tickedAt, pool.began, pool.epoch = t0, pool.now(), 1
	require.NoError(t, pool.mayWrite())
	tenure.epoch = 2
	require.ErrorIs(t, pool.mayWrite(), errTenure)
	tenure.epoch, tenure.ends = 1, t0.Add(WriteDeadline)
	require.ErrorIs(t, pool.mayWrite(), errTenure)
	pool.tickedAt = t0.Add(-time.Hour)
	pool.began = pool.now().Add(-time.Hour)
	tenure.ends = t0.Add(LeaseTTL)
	require.NoError(t, pool.mayWrite())
}

// fencedLedger remembers by which epochs the ledger was written.
type fencedLedger struct {
	*world

	epochs []uint64
}

func (l *fencedLedger) AppendLedger(_ context.Context, _ string, epoch uint64, _ []byte) error {
	l.epochs = append(l.epochs, epoch)
	return nil
}

// A decision that was carried out in part is on record like any other, though the pool is
// taken over afresh then.
func TestADecisionWhoseDrainCannotBeOrderedIsOnRecord(t *testing.T) {
	r := newRig(newWorld())
	ledger := &fencedLedger{world: r.world}
	r.pool.memory = ledger
	r.pend(1)
	r.tick()
	r.boot()
	r.classes = nil
	r.pass(5 * time.Second)
	r.tick()
	for range 60 { // until it is idle for long enough
		r.pass(10 * time.Second)
		r.tick()
	}
	require.Contains(t, r.taken(), "drainmi-0=true")
	r.fail["drain"] = errors.New("the store is away")
	ledger.epochs = nil
	for range 4 { // not acknowledged: it is taken back
		r.pass(10 * time.Second)
		r.tick()
	}
	require.Contains(t, r.taken(), "drainmi-0=false")
	require.NotEmpty(t, ledger.epochs)
	require.NotContains(t, ledger.epochs, uint64(0))
}

// partialStore answers for some leases only.
type partialStore struct {
	leaseStore

	answers map[string]bool
}

func (s *partialStore) HoldLeases(ctx context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error) {
	held, err := s.leaseStore.HoldLeases(ctx, names, holder, ttl)
	for name := range held {
		if !s.answers[name] {
			delete(held, name)
			err = errors.New("a part of the store is away")
		}
	}
	return held, err
}

// A store of several parts may have lost one. The pools whose leases are in the others
// are scaled on.
func TestALeaseThatTheStoreAnsweredForIsRenewedWhateverBecameOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partialStore{answers: map[string]bool{"pool/a": true, "pool/b": true}}
		l := NewLeases(s, "me", []string{"a", "b"}, &Events{})
		l.Renew(t.Context(), time.Now())
		s.answers["pool/b"] = false
		time.Sleep(LeaseTTL - time.Second)
		l.Renew(t.Context(), time.Now())
		_, _, ok := l.Hold("b", time.Now())
		require.True(t, ok, "until it ends")
		time.Sleep(time.Second)
		_, _, ok = l.Hold("b", time.Now())
		require.False(t, ok)
		_, _, ok = l.Hold("a", time.Now())
		require.True(t, ok)
	})
}

// A replica that stops may still have a write under way. Who takes its pools over must not
// find that arrive later.
func TestI8_LeasesAreGivenBackWhenNothingIsUnderWayAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseStore{}
		l := NewLeases(s, "me", []string{"a"}, &Events{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(2 * LeaseTTL)
			})
		}()
		synctest.Wait()
		cancel()
		time.Sleep(2*LeaseTTL - time.Second)
		synctest.Wait()
		require.Empty(t, s.released)
		_, _, ok := l.Hold("a", time.Now())
		require.True(t, ok, "it is renewed until then")
		<-done
		require.Equal(t, []string{"pool/a"}, s.released)
		_, _, ok = l.Hold("a", time.Now())
		require.False(t, ok)
	})
}
