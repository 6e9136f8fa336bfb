package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// book is what was handed to one machine.
type book struct {
	pool     string
	open     []store.RoutedJob
	uses     int
	lastUsed time.Time
}

// BeginRouted books a job on a machine, unless that is ordered to drain.
func (s *Store) BeginRouted(j store.RoutedJob) (begun bool, err error) {
	if err := s.canWrite(); err != nil {
		return false, err
	}
	if _, ordered := s.drains[j.Machine]; ordered {
		return false, nil
	}
	b := s.books[j.Machine]
	if b == nil {
		b = &book{pool: j.Pool}
		s.books[j.Machine] = b
	}
	if !slices.ContainsFunc(b.open, func(o store.RoutedJob) bool { return o.ID == j.ID }) {
		b.open = append(b.open, j)
		b.uses++
		b.lastUsed = s.clock()
	}
	return true, nil
}

// EndRouted strikes a job, whoever has it.
func (s *Store) EndRouted(id spillway.JobID) (ended bool, err error) {
	if err := s.canWrite(); err != nil {
		return false, err
	}
	for _, b := range s.books {
		if at := slices.IndexFunc(b.open, func(o store.RoutedJob) bool { return o.ID == id }); at >= 0 {
			b.open = slices.Delete(b.open, at, at+1)
			b.lastUsed, ended = s.clock(), true
		}
	}
	return ended, nil
}

// Routed returns the books of a pool's machines.
func (s *Store) Routed(_ context.Context, pool string) (map[spillway.MachineID]store.RoutedMachine, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	out := make(map[spillway.MachineID]store.RoutedMachine)
	for id, b := range s.books {
		if b.pool != pool {
			continue
		}
		open := slices.DeleteFunc(slices.Clone(b.open), func(j store.RoutedJob) bool { return !s.clock().Before(j.Until) })
		out[id] = store.RoutedMachine{Open: open, Uses: b.uses, LastUsedAt: b.lastUsed}
	}
	return out, nil
}

// Drains returns the orders in force. Machines have names of their own over all pools.
func (s *Store) Drains(context.Context, string) (map[spillway.MachineID]router.DrainOrder, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	out := make(map[spillway.MachineID]router.DrainOrder, len(s.drains))
	for id, o := range s.drains {
		out[id] = o
	}
	return out, nil
}

// board is a document that is shown for a while.
type board struct {
	epoch uint64
	data  []byte
	until time.Time
}

// PutBoard shows a document until ttl has passed.
func (s *Store) PutBoard(_ context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if s.boards[name].epoch > epoch {
		return store.ErrStaleEpoch
	}
	s.boards[name] = board{epoch: epoch, data: slices.Clone(data), until: s.clock().Add(ttl)}
	return nil
}

// Board returns what PutBoard last showed.
func (s *Store) Board(_ context.Context, name string) (data []byte, found bool, err error) {
	if err := s.canRead(); err != nil {
		return nil, false, err
	}
	b := s.boards[name]
	if !s.clock().Before(b.until) {
		return nil, false, nil
	}
	return b.data, true, nil
}
