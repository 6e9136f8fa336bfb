package store_test

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/store"
)

// leaseModel is who holds which name.
type leaseModel struct {
	s     *store.Store
	clock *clock
	held  map[string]store.Lease
	ever  []store.Lease // every lease there ever was
}

func leaseActions(s *store.Store, c *clock) actions {
	m := &leaseModel{s: s, clock: c, held: map[string]store.Lease{}}
	return actions{"acquire": m.acquire, "hold": m.hold, "renew": m.renew, "release": m.release}
}

// free reports whether a holder may have a name.
func (m *leaseModel) free(name, holder string) bool {
	l, ok := m.held[name]
	return !ok || l.Holder == holder || !l.Until.After(m.clock.now())
}

// took notes a lease. A new one has a higher epoch than any of that name before.
func (m *leaseModel) took(t *rapid.T, name, holder string, ttl time.Duration, got store.Lease) {
	before, ok := m.held[name]
	want := store.Lease{Name: name, Holder: holder, Epoch: got.Epoch, Until: m.clock.now().Add(ttl)}
	require.Equal(t, want, got)
	if ok && before.Holder == holder && before.Until.After(m.clock.now()) {
		require.Equal(t, before.Epoch, got.Epoch, "it is the same lease")
	} else {
		for _, l := range m.ever {
			require.False(t, l.Name == name && l.Epoch >= got.Epoch, "%v after %v", got, l)
		}
	}
	m.held[name] = got
	m.ever = append(m.ever, got)
}

func (m *leaseModel) acquire(t *rapid.T) {
	name, holder, ttl := letter(t, "name"), letter(t, "holder"), seconds(t, "ttl")
	got, err := m.s.Acquire(t.Context(), name, holder, ttl)
	if m.free(name, holder) {
		require.NoError(t, err)
		m.took(t, name, holder, ttl, got)
		return
	}
	var held *store.HeldError
	require.True(t, errors.As(err, &held))
	l := m.held[name]
	require.Equal(t, store.HeldError{Name: name, Holder: l.Holder, Rest: l.Until.Sub(m.clock.now())}, *held)
}

func (m *leaseModel) hold(t *rapid.T) {
	holder, ttl := letter(t, "holder"), seconds(t, "ttl")
	got, err := m.s.HoldLeases(t.Context(), []string{"a", "b", "c"}, holder, ttl)
	require.NoError(t, err)
	for _, name := range []string{"a", "b", "c"} {
		l, has := got[name]
		require.Equal(t, m.free(name, holder), has, "%s", name)
		if has {
			m.took(t, name, holder, ttl, l)
		}
	}
}

// anyLease is a lease that is or was.
func (m *leaseModel) anyLease(t *rapid.T) (l store.Lease, live bool) {
	if len(m.ever) == 0 {
		t.Skip("nobody has held one yet")
	}
	l = rapid.SampledFrom(m.ever).Draw(t, "lease")
	now, ok := m.held[l.Name]
	return l, ok && now.Holder == l.Holder && now.Epoch == l.Epoch && now.Until.After(m.clock.now())
}

func (m *leaseModel) renew(t *rapid.T) {
	ttl := seconds(t, "ttl")
	l, live := m.anyLease(t)
	got, err := m.s.RenewLease(t.Context(), l, ttl)
	if !live {
		require.ErrorIs(t, err, store.ErrLeaseLost)
		return
	}
	require.NoError(t, err)
	m.took(t, l.Name, l.Holder, ttl, got)
}

func (m *leaseModel) release(t *rapid.T) {
	l, live := m.anyLease(t)
	require.NoError(t, m.s.ReleaseLease(t.Context(), l))
	if live {
		delete(m.held, l.Name)
	}
}
