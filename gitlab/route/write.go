package route

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Run writes contacts to the registry until ctx ends: a first contact at once, the others
// every few seconds. A write that failed is told and repeated, so that nothing is lost as
// long as this process lives.
func (c *Contacts) Run(ctx context.Context) error {
	ticks := time.NewTicker(c.every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
		case <-c.poke:
		}
		gap := writeGap
		if n, err := c.write(ctx); err != nil && ctx.Err() == nil {
			if c.events.Failed != nil {
				c.events.Failed(n, err)
			}
			gap = retryAfter
			c.wake()
		}
		if !rest(ctx, gap) {
			return context.Cause(ctx)
		}
	}
}

// rest waits, unless ctx ends.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// write puts what has changed into the registry, and returns how many machines that
// were. What was not written stays to be.
func (c *Contacts) write(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now := time.Now()
	if c.lookDue(now) {
		if err := c.look(ctx, now); err != nil {
			return c.pending(), err
		}
	}
	batch, machines, firsts := c.collect(now)
	if len(batch) == 0 {
		return 0, nil
	}
	err := c.registry.PutMachines(ctx, machines)
	c.settle(batch, err == nil)
	if err != nil {
		return len(batch), fmt.Errorf("write contacts: %w", err)
	}
	if c.events.Wrote != nil {
		c.events.Wrote(len(batch), firsts)
	}
	return len(batch), nil
}

// lookDue reports whether the registry is to be read: where a contact is new, and from
// time to time.
func (c *Contacts) lookDue(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := false
	for _, pool := range c.mu.pools {
		for _, m := range pool.machines {
			if m.fresh {
				return true
			}
			some = true
		}
	}
	return some && now.Sub(c.lookedAt) >= lookEvery
}

// look compares what is known here with the registry, where other replicas, and this
// one in an earlier life, have written: since when a machine is known and idle, and
// whether another instance has its system_id.
func (c *Contacts) look(ctx context.Context, now time.Time) error {
	known, err := c.registry.Machines(ctx)
	if err != nil {
		return fmt.Errorf("read the registry before writing contacts: %w", err)
	}
	c.lookedAt = now
	for _, f := range c.compare(known) {
		f()
	}
	return nil
}

func (c *Contacts) compare(known []router.Machine) (tell []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range known {
		pool := c.mu.pools[known[i].Pool]
		if pool == nil {
			continue
		}
		if m, ok := pool.machines[known[i].ID]; ok {
			tell = append(tell, c.merge(m, &known[i])...)
		}
	}
	for _, pool := range c.mu.pools {
		for _, m := range pool.machines {
			m.fresh = false
		}
	}
	return tell
}

// merge takes over what the registry knows of m. Of two instances with one system_id
// the one that was registered first keeps it, at every replica.
func (c *Contacts) merge(m *contact, known *router.Machine) (tell []func()) {
	ours, theirs := m.machine.InstanceID, known.InstanceID
	earlier := !known.RegisteredAt.IsZero() && known.RegisteredAt.Before(m.machine.RegisteredAt)
	switch {
	case ours == "" || theirs == "" || ours == theirs:
		m.machine.InstanceID, m.machine.Version = cmp.Or(ours, theirs), cmp.Or(m.machine.Version, known.Version)
		if earlier {
			m.machine.RegisteredAt, m.machine.LastUsedAt = known.RegisteredAt, known.LastUsedAt
		}
	case m.machine.HeardAt.Sub(known.HeardAt) < spillway.SilentAfter && earlier:
		m.machine.InstanceID, m.machine.HeardAt = theirs, known.HeardAt
		m.machine.RegisteredAt, m.machine.LastUsedAt = known.RegisteredAt, known.LastUsedAt
		tell = c.shared(m, ours, time.Now())
	}
	return tell
}

// pending counts what waits to be written.
func (c *Contacts) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, pool := range c.mu.pools {
		for _, m := range pool.machines {
			if m.dirty || m.waiting > 0 {
				n++
			}
		}
	}
	return n
}

// collect returns what is to be written, and drops what is long silent.
func (c *Contacts) collect(now time.Time) (batch []*contact, machines []router.Machine, firsts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, pool := range c.mu.pools {
		pool.drop(now.Add(-forgetAfter))
		if len(pool.machines) == 0 {
			delete(c.mu.pools, name)
		}
		for _, m := range pool.machines {
			if m.waiting > 0 {
				m.heard(now)
			}
			if !m.dirty {
				continue
			}
			m.dirty = false
			batch, machines = append(batch, m), append(machines, m.machine)
			if !m.written {
				firsts++
			}
		}
	}
	return batch, machines, firsts
}

// settle ends a write: what failed is to be written again, what leaves may go.
func (c *Contacts) settle(batch []*contact, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		if !written {
			m.dirty = true
			continue
		}
		m.written = true
		pool := c.mu.pools[m.machine.Pool]
		if m.leaves && m.waiting == 0 && pool != nil && pool.machines[m.machine.ID] == m {
			delete(pool.machines, m.machine.ID)
		}
	}
}
