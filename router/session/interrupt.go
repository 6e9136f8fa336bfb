package session

import (
	"strings"
	"time"
	"unicode"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

const (
	// MaxUnhealthyBytes bounds why a machine says that it is broken [bytes].
	MaxUnhealthyBytes = 256
	// healthEvery is how often a machine may change its mind about its health. It says
	// it again with each heartbeat, so that what comes too soon is only heard later.
	healthEvery = time.Second
)

var interruptionFromProto = map[runnerv1.InterruptionKind]string{
	runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT:        router.InterruptionSpot,
	runnerv1.InterruptionKind_INTERRUPTION_KIND_REBALANCE:   router.InterruptionRebalance,
	runnerv1.InterruptionKind_INTERRUPTION_KIND_MAINTENANCE: router.InterruptionMaintenance,
	runnerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING: router.InterruptionTerminating,
}

// checkWord reports the first rule that what a machine says of itself breaks. It
// names no machine and no instance: it can only be about its own.
func checkWord(m *runnerv1.Interruption, unhealthy string) error {
	if len(unhealthy) > MaxUnhealthyBytes {
		return badMessage("unhealthy: %d bytes, at most %d are allowed", len(unhealthy), MaxUnhealthyBytes)
	}
	if m == nil {
		return nil
	}
	if _, known := interruptionFromProto[m.GetKind()]; !known {
		return badMessage("interruption: kind %d is not known here", m.GetKind())
	}
	if m.GetDeadline() != nil && m.GetDeadline().CheckValid() != nil {
		return badMessage("interruption: the deadline is no time")
	}
	return nil
}

// interruptionOf reads a notice that checkWord let through. A deadline that can't be
// right is not known: a machine whose clock is wrong is taken away all the same.
func interruptionOf(now time.Time, m *runnerv1.Interruption) (kind string, deadline time.Time) {
	if m.GetDeadline() != nil {
		deadline = router.BelievableDeadline(now, m.GetDeadline().AsTime())
	}
	return interruptionFromProto[m.GetKind()], deadline
}

// unhealthyOf makes the text fit for a log line or a page.
func unhealthyOf(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// takeWord takes what a machine says of itself. The engine gives it no more jobs
// before anything else happens, and the record, which the scaler of whatever replica
// owns the pool reads, is urgent.
func (d *Dispatcher) takeWord(now time.Time, s *stream, m *runnerv1.Interruption, unhealthy string) {
	if m != nil {
		kind, deadline := interruptionOf(now, m)
		if d.engine.Interrupt(now, s.machine, kind, deadline) {
			d.records.urgent(s.machine)
			d.tellInterrupted(s)
		}
	}
	why := unhealthyOf(unhealthy)
	if now.Sub(s.healthAt) >= healthEvery && d.engine.SetUnhealthy(now, s.machine, why) {
		s.healthAt = now
		d.records.urgent(s.machine)
		d.tellHealth(s)
	}
}

func (d *Dispatcher) tellInterrupted(s *stream) {
	if k, ok := d.engine.Machine(s.machine); ok && k.InterruptionKind != "" {
		tell(d.opt.Events.MachineInterrupted, MachineInterrupted{
			Machine: k.ID, Instance: k.InstanceID, Pool: k.Pool, Kind: k.InterruptionKind, Deadline: k.InterruptionDeadline, Held: k.Assigned,
		})
	}
}

func (d *Dispatcher) tellHealth(s *stream) {
	if k, ok := d.engine.Machine(s.machine); ok {
		tell(d.opt.Events.MachineHealth, MachineHealth{Machine: k.ID, Instance: k.InstanceID, Pool: k.Pool, Unhealthy: k.Unhealthy})
	}
}
