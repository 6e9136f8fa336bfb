package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Limits and times of contacts.
const (
	// MaxContactsPerPool bounds the machines of one pool that are kept [machines]. Twice
	// the largest pool, because a replaced machine stays for a while beside its successor;
	// more can only be made up, by somebody who has a runner token.
	MaxContactsPerPool = 2 * spillway.MaxInstancesPerPool
	// writeEvery is how often contacts go to the registry. A machine is silent after 45 s
	// without a word, so that several writes may fail before one seems to be.
	writeEvery = 5 * time.Second
	// writeGap is the least time between two writes: a fleet that starts at once makes
	// thousands of first contacts in a second.
	writeGap = 250 * time.Millisecond
	// retryAfter is how long a failed write rests.
	retryAfter = time.Second
	// writeTimeout bounds one write with its look.
	writeTimeout = 10 * time.Second
	// lookEvery is how often the registry is compared with what is known here, so that
	// a system_id that two machines use at two replicas is found.
	lookEvery = time.Minute
	// forgetAfter is how long a machine that says nothing is kept here. The registry
	// keeps it for longer.
	forgetAfter = time.Hour
)

// Why a machine is not to be given a job.
var (
	// ErrSharedSystem: two instances use the same system_id, as those do that were made
	// from an image with a runner's .runner_system_id in it. A job would be booked on one
	// of them and might run on the other, which would then look idle.
	ErrSharedSystem = errors.New("two instances use the same system_id")
	// ErrTooManyMachines: the pool has MaxContactsPerPool machines already, and one that
	// isn't registered would look as if it had never come up.
	ErrTooManyMachines = errors.New("too many machines in the pool")
)

// Registry is where the replicas share what they know of machines.
type Registry interface {
	PutMachines(ctx context.Context, machines []router.Machine) error
	// Machines returns those of all pools, whole or an error.
	Machines(ctx context.Context) ([]router.Machine, error)
}

// Events tells what happens to contacts. Each func may be nil; none may block.
type Events struct {
	First  func(router.Machine)           // a machine was heard for the first time by this replica
	Shared func(SharedSystem)             // at most once in lookEvery for each system_id
	Full   func(pool string)              // a machine was turned away; at most once in lookEvery for each pool
	Failed func(machines int, err error)  // a write of so many machines failed; it will be repeated
	Wrote  func(machines int, firsts int) // so many were written, and so many of them for the first time
}

// SharedSystem is a system_id that two instances use.
type SharedSystem struct {
	Pool         string
	System       spillway.MachineID
	Kept, Turned string // the instance that is registered, and the one that isn't given jobs
}

// String is for people.
func (s SharedSystem) String() string {
	return fmt.Sprintf("system_id %s of pool %s is used by the instances %s and %s: the second one gets no jobs; remove .runner_system_id from the image",
		s.System, s.Pool, s.Kept, s.Turned)
}

// Contacts keeps the registry's entries of machines that ask for jobs through us as
// fresh as their last contact. Only Run writes; the others may be called from anywhere.
type Contacts struct {
	registry Registry
	replica  string
	events   Events
	poke     chan struct{} // 1 slot: a first contact waits to be written
	every    time.Duration
	lookedAt time.Time // Run's alone

	mu struct {
		sync.Mutex
		pools map[string]*poolContacts
	}
}

// poolContacts is the machines of one pool.
type poolContacts struct {
	machines map[spillway.MachineID]*contact
	sweptAt  time.Time // when room was last looked for
}

// contact is a machine as it was last heard.
type contact struct {
	machine router.Machine
	token   string // hash
	waiting int    // questions for a job that are open: it is heard as long as there is one
	dirty   bool   // to be written
	fresh   bool   // never compared with the registry
	written bool   // the registry has it from here
	leaves  bool   // dropped once it is written
	toldAt  time.Time
}

// NewContacts returns contacts of the replica with this name. They are kept from the
// start and written as long as Run runs.
func NewContacts(registry Registry, replica string, events Events) *Contacts {
	c := &Contacts{registry: registry, replica: replica, events: events, poke: make(chan struct{}, 1), every: writeEvery}
	c.mu.pools = map[string]*poolContacts{}
	return c
}

// missedWrites is how many writes may fail before a machine seems to be silent.
const missedWrites = 9

// SilentAfter has contacts written so often that a machine that asks does not count as
// silent after this time, for want of a write. It is called before Run.
func (c *Contacts) SilentAfter(d time.Duration) { c.every = min(writeEvery, d/missedWrites) }

// Heard notes that who said something at this time.
func (c *Contacts) Heard(who Caller, at time.Time) { _ = c.Admit(who, at) }

// Admit is Heard, and tells whether the machine may be given a job: ErrSharedSystem,
// ErrTooManyMachines or nil.
func (c *Contacts) Admit(who Caller, at time.Time) error {
	_, err := c.hear(who, at, 0)
	return err
}

// Waiting notes that who has a question for a job open, which counts as being heard
// until done is called. Calling done twice does no harm.
func (c *Contacts) Waiting(who Caller) (done func()) {
	m, err := c.hear(who, time.Now(), 1)
	if err != nil {
		return func() {}
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		m.waiting--
		m.heard(time.Now())
	})
}

// Forget is told when a machine was taken off GitLab's list: it is written as not
// connected once more and then left to expire, unless it is heard again. What is booked
// on it stays booked, since a runner that is unregistered ends its jobs first.
func (c *Contacts) Forget(tokenHash string, system spillway.MachineID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pool := range c.mu.pools {
		if m, ok := pool.machines[system]; ok && m.token == tokenHash {
			m.machine.Connected, m.dirty, m.leaves = false, true, true
		}
	}
}

// hear notes a contact, and opens so many questions with it.
func (c *Contacts) hear(who Caller, at time.Time, questions int) (*contact, error) {
	m, tell, err := c.note(who, at, questions)
	for _, f := range tell {
		f()
	}
	return m, err
}

// note is hear without telling of it, which must not happen under the lock.
func (c *Contacts) note(who Caller, at time.Time, questions int) (m *contact, tell []func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := c.mu.pools[who.Pool.Name]
	if pool == nil {
		pool = &poolContacts{machines: map[spillway.MachineID]*contact{}}
		c.mu.pools[who.Pool.Name] = pool
	}
	m, known := pool.machines[who.System]
	if !known {
		if room, first := pool.room(at); !room {
			if first && c.events.Full != nil {
				tell = append(tell, func() { c.events.Full(who.Pool.Name) })
			}
			return nil, tell, ErrTooManyMachines
		}
		m = &contact{fresh: true, machine: router.Machine{
			ID: who.System, InstanceID: who.InstanceID, Pool: who.Pool.Name, RegisteredAt: at, LastUsedAt: at,
		}}
		pool.machines[who.System] = m
		if machine := m.update(who, c.replica, at); c.events.First != nil {
			tell = append(tell, func() { c.events.First(machine) })
		}
		c.wake()
	} else if m.claimedBy(who.InstanceID, at) {
		return nil, append(tell, c.shared(m, who.InstanceID, at)...), ErrSharedSystem
	}
	m.waiting += questions
	m.update(who, c.replica, at)
	return m, tell, nil
}

// wake has the first contacts written at once.
func (c *Contacts) wake() {
	select {
	case c.poke <- struct{}{}:
	default: // Run will come anyway
	}
}

// shared is what there is to tell of an instance that uses m's system_id too.
func (c *Contacts) shared(m *contact, instance string, at time.Time) []func() {
	if c.events.Shared == nil || (!m.toldAt.IsZero() && at.Sub(m.toldAt) < lookEvery) {
		return nil
	}
	m.toldAt = at
	e := SharedSystem{Pool: m.machine.Pool, System: m.machine.ID, Kept: m.machine.InstanceID, Turned: instance}
	return []func(){func() { c.events.Shared(e) }}
}

// room reports whether one more machine fits; it makes room at most once in lookEvery,
// and first says that this call was the one to look.
func (p *poolContacts) room(at time.Time) (room, first bool) {
	if len(p.machines) < MaxContactsPerPool {
		return true, false
	}
	if at.Sub(p.sweptAt) < lookEvery {
		return false, false
	}
	p.sweptAt = at
	p.drop(at.Add(-spillway.SilentAfter))
	return len(p.machines) < MaxContactsPerPool, true
}

// drop forgets the machines that are on record and were not heard since.
func (p *poolContacts) drop(since time.Time) {
	for id, m := range p.machines {
		if m.waiting == 0 && !m.dirty && m.machine.HeardAt.Before(since) {
			delete(p.machines, id)
		}
	}
}

// claimedBy reports whether the instance can't be the one that is registered, because
// that one is alive. An instance that took over from a silent one is taken over to.
func (m *contact) claimedBy(instance string, at time.Time) bool {
	known := m.machine.InstanceID
	if instance == "" || known == "" || instance == known {
		return false
	}
	if m.waiting > 0 || at.Sub(m.machine.HeardAt) < spillway.SilentAfter {
		return true
	}
	m.machine.RegisteredAt, m.machine.LastUsedAt = at, at // another machine, by the same name
	return false
}

// update takes over what a contact says, and returns the machine.
func (m *contact) update(who Caller, replica string, at time.Time) router.Machine {
	if who.Token != "" { // a job's update doesn't tell it
		m.token = who.Token
	}
	if who.InstanceID != "" {
		m.machine.InstanceID = who.InstanceID
	}
	if who.Version != "" {
		m.machine.Version = who.Version
	}
	m.machine.Capacity = who.Pool.CapacityPerInstance
	m.machine.Connected, m.machine.Replica, m.leaves = true, replica, false
	m.heard(at)
	return m.machine
}

// heard moves the last contact on: contacts may be told out of order.
func (m *contact) heard(at time.Time) {
	if at.After(m.machine.HeardAt) {
		m.machine.HeardAt = at
	}
	m.dirty = true
}
