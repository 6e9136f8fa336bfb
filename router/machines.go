package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// Connect makes a machine known, or known again after a new stream. Of m it
// takes who the machine is and what it said of itself; of a machine that it knows
// it keeps the history and the order to drain, whose acknowledgement is void:
// the shell sends the order again.
//
// running are the attempts that the machine still has, as the store agreed. An
// attempt that we know of and that isn't among them may never have reached it, or
// its result is still to come: it has the accept timeout to turn up. Those that
// have a newer attempt elsewhere are returned: the machine shall end them.
func (e *Engine) Connect(now time.Time, m Machine, running []JobRef) (superseded []JobRef) {
	e.advance(now)
	k := e.machines[m.ID]
	if k == nil {
		k = &machine{rank: unlisted}
		k.heard.value = k
		e.machines[m.ID] = k
	}
	e.unseat(k)
	k.declared = m.Capacity
	k.Machine = e.introduce(k.Machine, m)
	k.silent, k.full = false, false
	superseded = e.adopt(k, running)
	k.Busy = max(m.Busy, len(running))
	e.seat(k)
	e.hear(k)
	return superseded
}

// introduce joins what was known of a machine with what it says now.
func (e *Engine) introduce(known, m Machine) Machine {
	m.Assigned = known.Assigned
	m.Uses = max(known.Uses, m.Uses)
	m.Draining = known.Draining || m.Draining
	m.DrainAckedAt, m.StoppingSince = time.Time{}, time.Time{}
	m.Connected = true
	m.HeartbeatAt = latest(known.HeartbeatAt, m.HeartbeatAt)
	m.RegisteredAt = firstSet(known.RegisteredAt, m.RegisteredAt, e.now)
	m.LastUsedAt = firstSet(latest(known.LastUsedAt, m.LastUsedAt), m.RegisteredAt)
	if m.InterruptionKind != "" {
		m.InterruptedAt = firstSet(m.InterruptedAt, e.now)
	}
	if !graver(m.InterruptionKind, known.InterruptionKind) { // a notice outlives the stream that it came over
		m.InterruptedAt, m.InterruptionKind, m.InterruptionDeadline = known.InterruptedAt, known.InterruptionKind, known.InterruptionDeadline
	}
	return m
}

// adopt makes m's book agree with the attempts that the machine says it has.
func (e *Engine) adopt(m *machine, running []JobRef) (superseded []JobRef) {
	for _, h := range m.holds {
		m.count(h, false)
		e.await(h)
	}
	for _, ref := range running {
		h := e.holds[ref.ID]
		switch {
		case h == nil:
			h = e.enter(m, ref)
		case h.ref.Attempt > ref.Attempt || h.ref.Attempt == ref.Attempt && h.machine != m:
			superseded = append(superseded, ref)
			continue
		case h.ref.Attempt < ref.Attempt:
			e.strike(h)
			h = e.enter(m, ref)
		}
		e.accept(h)
		m.count(h, true)
	}
	return superseded
}

// Disconnect notes that the machine's stream is gone. Its jobs stay where they
// are, for it may come back; it gets no new ones. It reports whether the machine
// is known.
func (e *Engine) Disconnect(now time.Time, id spillway.MachineID) bool {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return false
	}
	m.Connected = false
	e.heard.remove(&m.heard)
	e.refresh(m)
	return true
}

// Forget gives a machine up and returns the attempts that it had: the shell
// releases them as lost.
func (e *Engine) Forget(now time.Time, id spillway.MachineID) []JobRef {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return nil
	}
	lost := e.Held(id)
	e.unseat(m)
	for len(m.holds) > 0 {
		e.strike(m.holds[len(m.holds)-1])
	}
	for _, r := range m.refusals {
		e.forgive(r)
	}
	e.heard.remove(&m.heard)
	delete(e.machines, id)
	return lost
}

// unseat takes m out of its pool.
func (e *Engine) unseat(m *machine) {
	if m.pool != nil {
		m.pool.update(m, 0)
		m.pool = nil
	}
}

// Heartbeat takes what a machine says of itself: how many jobs run on it, which
// of them are ours, and whether it takes no more jobs. running must name every
// attempt that busy counts and that came from us: a place counted in busy that
// isn't named stays taken until the next heartbeat.
func (e *Engine) Heartbeat(now time.Time, id spillway.MachineID, busy int, draining bool, running []JobRef) bool {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return false
	}
	m.HeartbeatAt = e.now
	if !m.HeartbeatAt.After(m.DrainAckedAt) {
		// It came behind the acknowledgement, and the shell took both in at one time.
		m.HeartbeatAt = m.DrainAckedAt.Add(time.Millisecond)
	}
	foreign := max(0, busy-len(running))
	if foreign > 0 || m.foreign > 0 {
		m.LastUsedAt = e.now // a job that others gave it runs, or ran until now
	}
	m.Busy, m.foreign = max(0, busy), foreign
	m.full = false
	for _, h := range m.holds {
		m.count(h, false)
	}
	for _, ref := range running {
		if h := e.find(id, ref); h != nil {
			e.accept(h)
			m.count(h, true)
		}
	}
	e.noteDraining(m, draining)
	e.hear(m)
	e.refresh(m)
	return true
}

// Order tells a machine to take no more jobs, or takes that back. From the
// moment that it returns, an ordered machine gets nothing, acknowledged or not.
func (e *Engine) Order(now time.Time, id spillway.MachineID, on bool) bool {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return false
	}
	if m.Draining != on {
		m.Draining = on
		m.DrainAckedAt = time.Time{}
		e.refresh(m)
	}
	return true
}

// DrainAck notes that a machine takes no more jobs, or takes jobs again.
func (e *Engine) DrainAck(now time.Time, id spillway.MachineID, draining bool) bool {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return false
	}
	if !draining || m.Draining { // else the order has been taken back since
		e.noteDraining(m, draining)
	}
	e.hear(m)
	e.refresh(m)
	return true
}

// noteDraining: a machine that drains though nobody ordered it is stopping. One
// that was ordered and says that it does not drain has lost the order.
func (e *Engine) noteDraining(m *machine, draining bool) {
	switch {
	case !draining:
		m.StoppingSince, m.DrainAckedAt = time.Time{}, time.Time{}
	case m.Draining:
		m.DrainAckedAt = firstSet(m.DrainAckedAt, e.now)
	default:
		m.StoppingSince = firstSet(m.StoppingSince, e.now)
	}
}

// hear notes that m has just been heard of.
func (e *Engine) hear(m *machine) {
	m.HeardAt = e.now
	if !m.Connected {
		return
	}
	e.heard.push(&m.heard)
	if m.silent {
		m.silent = false
		e.refresh(m)
	}
}

// Machine returns what is known of one machine.
func (e *Engine) Machine(id spillway.MachineID) (Machine, bool) {
	m := e.machines[id]
	if m == nil {
		return Machine{}, false
	}
	return m.Machine, true
}

// Machines returns every machine, by id.
func (e *Engine) Machines() []Machine {
	list := make([]Machine, 0, len(e.machines))
	for _, m := range e.machines {
		list = append(list, m.Machine)
	}
	slices.SortFunc(list, func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// firstSet returns the first time that is not zero.
func firstSet(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
