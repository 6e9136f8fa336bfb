package jobrouter

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// fakeBook is a store's book, and its drain orders.
type fakeBook struct {
	mu struct {
		sync.Mutex
		on      map[spillway.JobID]store.RoutedJob
		ordered map[spillway.MachineID]bool
		fail    func(verb string) error // nil error: it works
		begins  []store.RoutedJob
		wrong   []string // begins on a machine that is ordered to drain: there must be none
	}
}

func newFakeBook() *fakeBook {
	b := &fakeBook{}
	b.mu.on, b.mu.ordered = map[spillway.JobID]store.RoutedJob{}, map[spillway.MachineID]bool{}
	return b
}

func (b *fakeBook) failWith(f func(verb string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.fail = f
}

func (b *fakeBook) order(id spillway.MachineID, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.ordered[id] = on
}

func (b *fakeBook) has(id int64) (spillway.MachineID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.mu.on[spillway.JobID(strconv.FormatInt(id, 10))]
	return j.Machine, ok
}

func (b *fakeBook) BeginRouted(_ context.Context, j store.RoutedJob) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail != nil {
		if err := b.mu.fail("begin"); err != nil {
			return false, err
		}
	}
	if old, ok := b.mu.on[j.ID]; ok && old.Machine == j.Machine {
		return true, nil
	}
	if b.mu.ordered[j.Machine] {
		return false, nil
	}
	b.mu.on[j.ID] = j
	b.mu.begins = append(b.mu.begins, j)
	return true, nil
}

func (b *fakeBook) EndRouted(_ context.Context, id spillway.JobID) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail != nil {
		if err := b.mu.fail("end"); err != nil {
			return false, err
		}
	}
	_, ok := b.mu.on[id]
	delete(b.mu.on, id)
	return ok, nil
}

func (b *fakeBook) Ordered(_ context.Context, _ string, id spillway.MachineID) (router.DrainOrder, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail != nil {
		if err := b.mu.fail("ordered"); err != nil {
			return router.DrainOrder{}, false, err
		}
	}
	on, known := b.mu.ordered[id]
	return router.DrainOrder{Machine: id, On: on}, known, nil
}

// fakeLeases are leases by the clock of the process, as a store's are by its own.
type fakeLeases struct {
	mu struct {
		sync.Mutex
		held  map[string]spillway.Lease
		epoch uint64
		fail  func(holder string) bool
	}
}

func newFakeLeases() *fakeLeases {
	l := &fakeLeases{}
	l.mu.held = map[string]spillway.Lease{}
	return l
}

func (l *fakeLeases) failFor(f func(holder string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.fail = f
}

func (l *fakeLeases) Acquire(_ context.Context, name, holder string, ttl time.Duration) (spillway.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.fail != nil && l.mu.fail(holder) {
		return spillway.Lease{}, errAway
	}
	now := time.Now()
	old, ok := l.mu.held[name]
	if ok && old.Rest(now) > 0 && old.Holder != holder {
		return spillway.Lease{}, &store.HeldError{Name: name, Holder: old.Holder, Rest: old.Rest(now)}
	}
	if !ok || old.Holder != holder || old.Rest(now) <= 0 {
		l.mu.epoch++
	}
	lease := spillway.Lease{Name: name, Holder: holder, Epoch: l.mu.epoch, Until: now.Add(ttl)}
	l.mu.held[name] = lease
	return lease, nil
}

func (l *fakeLeases) ReleaseLease(_ context.Context, lease spillway.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.fail != nil && l.mu.fail(lease.Holder) {
		return errAway
	}
	if l.mu.held[lease.Name].Holder == lease.Holder {
		delete(l.mu.held, lease.Name)
	}
	return nil
}

func (l *fakeLeases) holder(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.mu.held[name]; lease.Rest(time.Now()) > 0 {
		return lease.Holder
	}
	return ""
}

// fakeContacts counts the questions that are open.
type fakeContacts struct {
	mu struct {
		sync.Mutex
		open  map[spillway.MachineID]int
		admit error
	}
}

func (c *fakeContacts) Admit(route.Caller, time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.admit
}

func (c *fakeContacts) refuse(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.admit = why
}

func (c *fakeContacts) Waiting(who route.Caller) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.open == nil {
		c.mu.open = map[spillway.MachineID]int{}
	}
	c.mu.open[who.System]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.open[who.System]--
	}
}

func (c *fakeContacts) waiting(id spillway.MachineID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.open[id]
}

func routedTo(machine spillway.MachineID) store.RoutedJob { return store.RoutedJob{Machine: machine} }
