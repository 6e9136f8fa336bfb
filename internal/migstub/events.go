package migstub

import (
	"slices"
	"time"
)

// advance lets everything happen that is due at now, in the order of time.
func (c *Cloud) advance(now time.Time) {
	for {
		at, ok := c.next()
		if !ok || at.After(now) {
			return
		}
		c.due.known = false
		c.happen(at)
	}
}

// next is the earliest thing that has not happened yet. It is asked for all the
// time and changes rarely, so it is remembered until something is done.
func (c *Cloud) next() (at time.Time, ok bool) {
	if !c.due.known {
		at, ok := c.earliest()
		c.due = moment{known: true, some: ok, at: at}
	}
	return c.due.at, c.due.some
}

// earliest looks at all there is.
func (c *Cloud) earliest() (at time.Time, ok bool) {
	consider := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	machine := func(vm *machine) {
		if vm.stoppedAt.IsZero() {
			consider(vm.preemptAt)
			consider(vm.healAt)
			if !vm.ready {
				consider(vm.readyAt)
			}
		}
	}
	for _, g := range c.groups {
		for _, m := range g.members {
			consider(m.tryAt)
			if m.vm != nil {
				machine(m.vm)
				if m.action == actDeleting {
					consider(m.vm.goneAt)
				}
			}
		}
	}
	for _, vm := range c.loose {
		machine(vm)
		if !vm.stoppedAt.IsZero() {
			consider(vm.goneAt)
		}
	}
	for _, op := range c.operations.open {
		consider(op.doneAt)
	}
	return at, ok
}

// happen does everything that is due at the moment at: ends first, then what was
// asked for, then launches, then instances that are ready, so that an instance
// that is taken at the moment when it would be ready never is.
func (c *Cloud) happen(at time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(at) }
	for _, vm := range c.machines() {
		switch {
		case !vm.stoppedAt.IsZero():
		case due(vm.preemptAt):
			c.preempt(at, vm)
		case due(vm.healAt):
			c.heal(at, vm)
		}
	}
	for _, op := range slices.Clone(c.operations.open) {
		if due(op.doneAt) {
			c.finish(op)
		}
	}
	c.loose = slices.DeleteFunc(c.loose, func(vm *machine) bool { return !vm.stoppedAt.IsZero() && due(vm.goneAt) })
	for _, g := range c.groups {
		for _, m := range slices.Clone(g.members) {
			switch {
			case m.action == actDeleting && m.vm != nil && due(m.vm.goneAt):
				c.forget(at, g, m)
			case due(m.tryAt):
				c.try(at, g, m)
			}
		}
	}
	for _, vm := range c.machines() {
		if vm.stoppedAt.IsZero() && !vm.ready && due(vm.readyAt) {
			c.becomeReady(at, vm)
		}
	}
}

// machines is every machine that there is, stopping ones too.
func (c *Cloud) machines() []*machine {
	var all []*machine
	for _, g := range c.groups {
		for _, m := range g.members {
			if m.vm != nil {
				all = append(all, m.vm)
			}
		}
	}
	return append(all, c.loose...)
}

func (c *Cloud) preempt(at time.Time, vm *machine) {
	vm.preempted = true
	c.systemOperation(at, vm, opPreempted)
	c.lose(at, vm, Interruption)
}

// heal is the health check failing for long enough.
func (c *Cloud) heal(at time.Time, vm *machine) {
	vm.healAt = time.Time{}
	m := c.memberOf(vm)
	if m == nil || m.action == actDeleting || !vm.group.heals() {
		return
	}
	c.systemOperation(at, vm, opRepaired)
	c.recreate(at, m, ByRepair)
}
