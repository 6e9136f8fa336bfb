package router

import (
	"time"

	"github.com/spillway-ci/spillway"
)

// machine is a Machine with the engine's own book on it.
type machine struct {
	Machine

	declared int   // jobs at once by its own word; Capacity is bounded by the pool
	pool     *pool // nil while no pool of that name is configured
	holds    []*hold
	unheard  int  // holds that its last heartbeat could not count yet
	foreign  int  // jobs of others that its last heartbeat counted, as a sidecar's
	places   int  // free, as its pool knows
	rank     int  // in the pool's freelist
	counted  bool // in the pool's labelled
	silent   bool
	full     bool // refused for want of a place: believed until its next heartbeat
	refusals map[spillway.JobClass]*refusal
	heard    link[*machine]
}

// hold is a place that a job has on a machine.
type hold struct {
	ref     JobRef
	machine *machine
	slot    int       // in machine.holds
	begun   bool      // the machine has ever said that it has it
	heard   bool      // counted in the machine's Busy
	due     time.Time // while it waits to be accepted: when it is given up
	// Of the job, where it was assigned here.
	name, antiAffinity string
	begunAt            time.Time   // zero until it has begun
	waiting            link[*hold] // queued while it waits to be accepted
}

// refusal keeps a class away from a machine for a moment.
type refusal struct {
	machine *machine
	class   spillway.JobClass
	until   time.Time
	queued  link[*refusal]
}

func (m *machine) refuses(class spillway.JobClass) bool {
	_, refused := m.refusals[class]
	return refused
}

// takesJobs reports whether the machine may be given jobs at all.
func (m *machine) takesJobs() bool {
	return m.pool != nil && !m.silent && !m.full && m.TakesJobs()
}

// occupied counts what its last heartbeat counted and what we have given it
// since; our own book alone if that is more.
func (m *machine) occupied() int { return max(m.Busy+m.unheard, len(m.holds)) }

// usesLeft is how many more jobs the machine may be given in its life. A machine
// that is used up is not told so here: the scaler drains and replaces it.
func (m *machine) usesLeft() int {
	if m.pool.MaxUses == 0 {
		return m.Capacity
	}
	return m.pool.MaxUses - m.Uses
}

// bound sets the capacity: the pool's value is the limit of what a machine may
// say of itself.
func (m *machine) bound() {
	m.Capacity = max(0, m.declared)
	if m.pool != nil {
		m.Capacity = min(m.Capacity, m.pool.CapacityPerInstance)
	}
}

// add enters h in the machine's book.
func (m *machine) add(h *hold) {
	h.machine, h.slot = m, len(m.holds)
	m.holds = append(m.holds, h)
	m.Assigned = len(m.holds)
	if !h.heard {
		m.unheard++
	}
}

// remove strikes h. If the last heartbeat counted it, its place stays taken until
// the next one, or until vacate.
func (m *machine) remove(h *hold) {
	last := len(m.holds) - 1
	m.holds[h.slot] = m.holds[last]
	m.holds[h.slot].slot = h.slot
	m.holds[last] = nil
	m.holds = m.holds[:last]
	m.Assigned = last
	if !h.heard {
		m.unheard--
	}
}

// vacate takes the machine's word that h's place is free, which is as good as its
// next heartbeat.
func (m *machine) vacate(h *hold) {
	if h.heard {
		m.Busy = max(0, m.Busy-1)
	}
}

// count notes whether the machine's Busy counts h.
func (m *machine) count(h *hold, heard bool) {
	switch {
	case heard && !h.heard:
		m.unheard--
	case !heard && h.heard:
		m.unheard++
	}
	h.heard = heard
}
