package router

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// What a notice can say about an instance: the values of Machine.InterruptionKind.
const (
	InterruptionSpot        = "spot"        // its cloud takes it back at the deadline
	InterruptionRebalance   = "rebalance"   // it may be taken soon; jobs as usual until it is drained
	InterruptionMaintenance = "maintenance" // it is stopped for maintenance of its host
	InterruptionTerminating = "terminating" // its group is ending it
)

// byGravity is the closed set, the least grave first. What leaves the least time
// is gravest: an instance whose end a hook holds up still waits for its jobs, one
// that is taken back does not.
var byGravity = []string{InterruptionRebalance, InterruptionMaintenance, InterruptionTerminating, InterruptionSpot}

// KnownInterruption reports whether kind is one of the closed set.
func KnownInterruption(kind string) bool { return slices.Contains(byGravity, kind) }

// graver reports whether a notice of kind a is more than one of kind b; no notice
// is the empty kind.
func graver(a, b string) bool { return slices.Index(byGravity, a) > slices.Index(byGravity, b) }

// Bounds of a deadline that can be believed. A lifecycle hook holds an instance for
// two days at most, and maintenance is announced some days ahead.
const (
	maxDeadlineAhead = 8 * 24 * time.Hour
	maxDeadlineAge   = time.Hour
)

// BelievableDeadline returns the deadline of a notice that is heard now, to the
// second; zero, not known, where it can only be a mistake or a wrong clock.
func BelievableDeadline(now, deadline time.Time) time.Time {
	if deadline.IsZero() || deadline.After(now.Add(maxDeadlineAhead)) || deadline.Before(now.Add(-maxDeadlineAge)) {
		return time.Time{}
	}
	return deadline.Truncate(time.Second)
}

// Interrupt takes a machine's word that its instance will be taken away, and
// reports whether that is news. A notice stands until the machine is forgotten: it
// gives way to a graver one, and its deadline becomes known once. So a machine
// that says something else with each message is news a few times in its life.
//
// From the moment that Interrupt returns, the machine gets no job, unless the
// notice is only that it may be taken (InterruptionRebalance).
func (e *Engine) Interrupt(now time.Time, id spillway.MachineID, kind string, deadline time.Time) (news bool) {
	e.advance(now)
	m := e.machines[id]
	if m == nil || !KnownInterruption(kind) {
		return false
	}
	switch {
	case graver(kind, m.InterruptionKind):
		m.InterruptedAt, m.InterruptionKind, m.InterruptionDeadline = e.now, kind, deadline
	case kind == m.InterruptionKind && m.InterruptionDeadline.IsZero() && !deadline.IsZero():
		m.InterruptionDeadline = deadline
	default:
		return false
	}
	e.refresh(m)
	return true
}

// SetUnhealthy takes a machine's word that it is broken, or with an empty text
// that it is not any more, and reports whether that changes anything. A broken
// machine gets no job.
func (e *Engine) SetUnhealthy(now time.Time, id spillway.MachineID, why string) (changed bool) {
	e.advance(now)
	m := e.machines[id]
	if m == nil || m.Unhealthy == why {
		return false
	}
	m.Unhealthy = why
	e.refresh(m)
	return true
}

// TakesJobs reports whether the machine would take jobs by all that its record says.
func (m *Machine) TakesJobs() bool {
	return m.Connected && !m.Draining && m.StoppingSince.IsZero() && !m.endsSoon() && m.Unhealthy == ""
}

// endsSoon reports whether a job that was given to the machine now could be lost
// with it.
func (m *Machine) endsSoon() bool { return graver(m.InterruptionKind, InterruptionRebalance) }
