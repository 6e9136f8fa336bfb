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
	jobs     []entered
	uses     int
	heard    bool // it has confirmed a job
	lastUsed time.Time
}

// entered is a job in a book.
type entered struct {
	store.RoutedJob
	by time.Time // it is to be confirmed by then; zero = it need not
}

// open reports whether a job counts at a time.
func (b *book) open(j entered, now time.Time) bool {
	late := b.heard && !j.by.IsZero() && !j.by.After(now)
	return now.Before(j.Until) && !late
}

// find returns where a job is, −1 for nowhere.
func (b *book) find(id spillway.JobID) int {
	return slices.IndexFunc(b.jobs, func(j entered) bool { return j.ID == id })
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
	if b.find(j.ID) < 0 {
		next := entered{RoutedJob: j}
		if j.ConfirmWithin > 0 {
			next.by = s.clock().Add(j.ConfirmWithin)
		}
		next.ConfirmWithin = 0
		b.jobs = append(b.jobs, next)
		b.uses++
		b.lastUsed = s.clock()
	}
	return true, nil
}

// ConfirmRouted notes that the machine which has a job has said so.
func (s *Store) ConfirmRouted(id spillway.JobID) (store.Confirmation, error) {
	if err := s.canWrite(); err != nil {
		return store.Unbooked, err
	}
	for _, b := range s.books {
		at := b.find(id)
		switch {
		case at < 0:
		case !b.open(b.jobs[at], s.clock()):
			return store.TooLate, nil
		default:
			b.jobs[at].by, b.heard = time.Time{}, true
			return store.Confirmed, nil
		}
	}
	return store.Unbooked, nil
}

// EndRouted strikes a job, whoever has it.
func (s *Store) EndRouted(id spillway.JobID) (ended bool, err error) {
	if err := s.canWrite(); err != nil {
		return false, err
	}
	for _, b := range s.books {
		if at := b.find(id); at >= 0 {
			if b.open(b.jobs[at], s.clock()) {
				b.lastUsed, ended = s.clock(), true
			}
			b.jobs = slices.Delete(b.jobs, at, at+1)
		}
	}
	return ended, nil
}

// Routed returns the book of a pool, which begins when it is first read.
func (s *Store) Routed(_ context.Context, pool string, _ bool) (store.RoutedBook, error) {
	if err := s.canRead(); err != nil {
		return store.RoutedBook{}, err
	}
	now := s.clock()
	if _, known := s.bookSince[pool]; !known {
		s.bookSince[pool] = now
	}
	out := store.RoutedBook{Since: s.bookSince[pool], At: now, Machines: make(map[spillway.MachineID]store.RoutedMachine)}
	for id, b := range s.books {
		if b.pool != pool {
			continue
		}
		m := store.RoutedMachine{Uses: b.uses, LastUsedAt: b.lastUsed}
		for _, j := range b.jobs {
			if b.open(j, now) {
				m.Open = append(m.Open, j.RoutedJob)
			}
		}
		out.Machines[id] = m
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
