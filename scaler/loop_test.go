package scaler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// hung is a group whose provider never answers.
type hung struct{ *world }

func (h hung) SetDesired(ctx context.Context, _, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// idle has no machines; it is safe for concurrent use.
type idle struct{}

func (idle) Machines(context.Context) ([]router.Machine, error) { return nil, nil }

func (idle) RemoveMachines(context.Context, string, []spillway.MachineID) error { return nil }

func (idle) OrderDrain(context.Context, string, []router.DrainOrder) error { return nil }

// waiting is a fixed demand.
type waiting []demand.Class

func (w waiting) Demand(context.Context) (demand.View, error) {
	return demand.View{Classes: w, At: time.Now()}, nil
}

func job(tag string, at time.Time) demand.Class {
	return demand.Class{ID: spillway.JobClass(tag), Requirement: spillway.Requirement{Tags: []string{tag}}, Pending: 1, Oldest: at}
}

func poolFor(w *world, g Group, name string, events *Events) *Pool {
	cfg := config(w)
	cfg.Pool.Name, cfg.Pool.Capability.Tags = name, []string{name}
	return NewPool(cfg, g, idle{}, w, w, events)
}

func TestC43_AHungProviderDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newWorld(), newWorld()
		began := time.Now()
		called := make(chan CallInfo, 10)
		ticks := make(chan time.Time, 1000)
		events := &Events{
			Called: func(c CallInfo) { called <- c },
			Ticked: func(s Status) {
				if s.Pool == "b" {
					ticks <- time.Now()
				}
			},
		}
		pools := []*Pool{poolFor(a, hung{a}, "a", events), poolFor(b, b, "b", events)}
		fleet := NewFleet(waiting{job("a", began), job("b", began)}, idle{}, 5*time.Second, spillway.SilentAfter, events)
		loop := NewLoop(fleet, pools, 5*time.Second, 5*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); loop.Run(ctx) }()

		call := <-called
		require.Equal(t, "b", call.Pool)
		require.Equal(t, 5*time.Millisecond, call.Sent.Sub(began), "as soon as it is known what there is")
		time.Sleep(61 * time.Second) // of the bubble's clock
		synctest.Wait()
		require.GreaterOrEqual(t, len(ticks), 13, "b ticks on")
		cancel()
		<-done
	})
}

func TestAPokeIsAnsweredWithinTheDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		called := make(chan CallInfo, 10)
		events := &Events{Called: func(c CallInfo) { called <- c }}
		source := &late{}
		fleet := NewFleet(source, idle{}, 5*time.Second, spillway.SilentAfter, events)
		loop := NewLoop(fleet, []*Pool{poolFor(w, w, "a", events)}, 5*time.Second, 5*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); loop.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		pushed := time.Now()
		source.classes.Store(&[]demand.Class{job("a", pushed)})
		for range 100 {
			loop.Poke() // a push of many jobs is one look
		}
		call := <-called
		require.Equal(t, 5*time.Millisecond, call.Sent.Sub(pushed))
		require.Equal(t, pushed, call.OldestJob)
		cancel()
		<-done
		require.Empty(t, called)
	})
}

// late is a demand that a test sets later.
type late struct {
	classes atomic.Pointer[[]demand.Class]
}

func (l *late) Demand(context.Context) (demand.View, error) {
	view := demand.View{At: time.Now()}
	if c := l.classes.Load(); c != nil {
		view.Classes = *c
	}
	return view, nil
}

// leaseStore grants everything until it fails.
type leaseStore struct {
	away     atomic.Bool
	released []string
}

func (s *leaseStore) HoldLeases(_ context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error) {
	if s.away.Load() {
		return nil, errors.New("away")
	}
	held := map[string]spillway.Lease{}
	for _, n := range names {
		held[n] = spillway.Lease{Name: n, Holder: holder, Epoch: 7, Until: time.Now().Add(ttl)}
	}
	return held, nil
}

func (s *leaseStore) ReleaseLease(_ context.Context, l spillway.Lease) error {
	s.released = append(s.released, l.Name)
	return nil
}

func TestALeaseEndsByTheLocalClockWhenTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseStore{}
		l := NewLeases(s, "me", []string{"a"}, &Events{})
		_, _, ok := l.Hold("a", time.Now())
		require.False(t, ok, "nothing was acquired yet")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
		synctest.Wait()
		epoch, until, ok := l.Hold("a", time.Now())
		require.True(t, ok)
		require.EqualValues(t, 7, epoch)
		require.Equal(t, LeaseTTL, time.Until(until))
		_, _, ok = l.Hold("b", time.Now())
		require.False(t, ok)

		s.away.Store(true)
		time.Sleep(LeaseTTL - time.Second)
		_, _, ok = l.Hold("a", time.Now())
		require.True(t, ok)
		time.Sleep(time.Second)
		_, _, ok = l.Hold("a", time.Now())
		require.False(t, ok)

		s.away.Store(false)
		time.Sleep(LeaseRenew)
		synctest.Wait()
		_, _, ok = l.Hold("a", time.Now())
		require.True(t, ok, "I7")
		cancel()
		<-done
		require.Equal(t, []string{"pool/a"}, s.released)
	})
}
