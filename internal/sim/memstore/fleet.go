package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// lease is who holds a name, until when.
type lease struct {
	holder string
	epoch  uint64
	until  time.Time
}

// memory is what a pool's loop has saved.
type memory struct {
	epoch uint64
	state []byte
}

// PutMachine records a machine.
func (s *Store) PutMachine(m router.Machine) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	s.machines[m.ID] = m
	return nil
}

// DropMachine forgets a machine and the orders to it.
func (s *Store) DropMachine(id spillway.MachineID) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	delete(s.machines, id)
	delete(s.drains, id)
	return nil
}

// Machine returns one machine's record.
func (s *Store) Machine(id spillway.MachineID) (router.Machine, bool) {
	m, ok := s.machines[id]
	return m, ok
}

// Machines implements scaler.Machines.
func (s *Store) Machines(context.Context) ([]router.Machine, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(s.machines), func(a, b router.Machine) int { return cmp.Compare(a.ID, b.ID) }), nil
}

// OrderDrain implements scaler.Machines. The order is on record when it returns;
// the replica that has the machine's stream carries it out.
func (s *Store) OrderDrain(_ context.Context, _ string, orders []router.DrainOrder) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	for _, o := range orders {
		if o.On {
			o.At = s.clock()
			if before, stands := s.drains[o.Machine]; stands {
				o.At = before.At
			}
			s.drains[o.Machine] = o
		} else {
			delete(s.drains, o.Machine)
		}
	}
	if s.Ordered != nil {
		s.Ordered()
	}
	return nil
}

// RemoveMachines implements scaler.Machines.
func (s *Store) RemoveMachines(_ context.Context, _ string, ids []spillway.MachineID) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	for _, id := range ids {
		delete(s.machines, id)
		delete(s.drains, id)
		delete(s.books, id)
	}
	return nil
}

// Drain is the order to one machine, if there is one.
func (s *Store) Drain(id spillway.MachineID) (router.DrainOrder, bool) {
	o, ok := s.drains[id]
	return o, ok
}

// HoldLeases implements scaler.LeaseStore.
func (s *Store) HoldLeases(_ context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error) {
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	now := s.clock()
	held := make(map[string]spillway.Lease)
	for _, name := range names {
		l := s.leases[name]
		switch {
		case l.holder == holder && now.Before(l.until):
		case now.Before(l.until):
			continue
		default:
			// Like a hybrid clock: it grows even if everything was forgotten.
			l.epoch = max(l.epoch+1, uint64(now.UnixMilli())<<10)
		}
		l.holder, l.until = holder, now.Add(ttl)
		s.leases[name] = l
		held[name] = spillway.Lease{Name: name, Holder: holder, Epoch: l.epoch, Until: l.until}
	}
	return held, nil
}

// ReleaseLease implements scaler.LeaseStore.
func (s *Store) ReleaseLease(_ context.Context, l spillway.Lease) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if have := s.leases[l.Name]; have.holder != l.Holder || have.epoch != l.Epoch {
		return store.ErrLeaseLost
	}
	have := s.leases[l.Name]
	have.until = s.clock()
	s.leases[l.Name] = have
	return nil
}

// Holder is who holds a name now; empty = nobody.
func (s *Store) Holder(name string) string {
	l := s.leases[name]
	if !s.clock().Before(l.until) {
		return ""
	}
	return l.holder
}

// SavePoolState implements scaler.Memory.
func (s *Store) SavePoolState(_ context.Context, pool string, epoch uint64, state []byte) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if s.memory[pool].epoch > epoch {
		return store.ErrStaleEpoch
	}
	s.memory[pool] = memory{epoch: epoch, state: slices.Clone(state)}
	return nil
}

// LoadPoolState implements scaler.Memory.
func (s *Store) LoadPoolState(_ context.Context, pool string) (state []byte, found bool, err error) {
	if err := s.canRead(); err != nil {
		return nil, false, err
	}
	m, ok := s.memory[pool]
	return m.state, ok, nil
}

// AppendLedger implements scaler.Memory.
func (s *Store) AppendLedger(_ context.Context, pool string, epoch uint64, data []byte) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if s.memory[pool].epoch > epoch {
		return store.ErrStaleEpoch
	}
	s.ledger = append(s.ledger, LedgerEntry{Pool: pool, Entry: slices.Clone(data)})
	return nil
}

// Ledger is every entry, the oldest first.
func (s *Store) Ledger() []LedgerEntry { return s.ledger }
