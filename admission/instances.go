package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrUnknownController says that no controller of that name is configured.
var ErrUnknownController = errors.New("no such controller is configured")

// ErrTooMany says that MaxInstances are connected.
var ErrTooMany = errors.New("too many instances of controllers are connected")

// Connect notes an instance of a controller. maxBatch bounds its reviews [jobs]; 0 is
// the configured bound.
func (e *Engine) Connect(now time.Time, id InstanceID, controller, name string, maxBatch int) (Controller, error) {
	e.advance(now)
	l := e.lines[controller]
	if l == nil {
		return Controller{}, fmt.Errorf("%w: %.80q", ErrUnknownController, controller)
	}
	if len(e.instances) >= MaxInstances {
		return Controller{}, ErrTooMany
	}
	c := l.controller
	if maxBatch > 0 {
		c.Batch = min(maxBatch, c.Batch)
	}
	i := &instance{id: id, name: name, line: l, maxBatch: c.Batch}
	e.instances[id] = i
	l.instances = append(l.instances, i)
	slices.SortFunc(l.instances, func(a, b *instance) int { return cmp.Compare(a.id, b.id) })
	return c, nil
}

// Disconnect notes that a connection has ended. Jobs that it was shown and has not
// answered are shown to another instance, the sooner they are due the sooner; without
// one here they are handed on. Their deadline stands.
func (e *Engine) Disconnect(now time.Time, id InstanceID) []Decision {
	e.advance(now)
	i := e.instances[id]
	if i == nil {
		return nil
	}
	delete(e.instances, id)
	l := i.line
	l.note(i, e.now)
	l.instances = slices.DeleteFunc(l.instances, func(o *instance) bool { return o == i })
	for _, w := range l.asked {
		if w.in.of == i {
			l.waiting = append(l.waiting, w)
		}
	}
	l.asked = slices.DeleteFunc(l.asked, func(w *entry) bool { return w.in.of == i })
	for _, w := range l.waiting {
		w.in = nil
	}
	slices.SortStableFunc(l.waiting, byTurn)
	if len(l.instances) > 0 {
		return nil
	}
	return e.desert(l)
}

// byTurn is the order of a line: who was shown before, the earliest due first; then as
// they came.
func byTurn(a, b *entry) int {
	switch {
	case !a.due.IsZero() && !b.due.IsZero():
		return a.due.Compare(b.due)
	case !a.due.IsZero():
		return -1
	case !b.due.IsZero():
		return 1
	default:
		return 0
	}
}

// desert is what a line does whose last instance has gone.
func (e *Engine) desert(l *line) []Decision {
	var decided []Decision
	for _, w := range slices.Clone(l.waiting) {
		switch {
		case w.kind == Observation:
			decided = append(decided, e.settle(w, Cancelled, "it has disconnected"))
		case w.kind == Review && w.item.Ref.Attempt < MaxMoves:
			decided = append(decided, e.settle(w, HandedOn, "its controller has disconnected"))
		case w.due.IsZero():
			w.due = w.taken.Add(l.controller.Deadline)
		}
	}
	slices.SortStableFunc(l.waiting, byTurn)
	return decided
}

// note updates when the line was last known to do its work by what is known of i.
func (l *line) note(i *instance, now time.Time) {
	if at := i.goodAt(now); at.After(l.goodAt) {
		l.goodAt = at
	}
}

// goodAt is when i was last known to do its work: now, while it owes no answer.
func (i *instance) goodAt(now time.Time) time.Time {
	if i.silentSince.IsZero() {
		return now
	}
	return i.silentSince
}

// Presence is what is known at one replica of one controller.
type Presence struct {
	Controller string
	Instances  int
	// GoodAt is when one of them was last known to do its work: to have answered, or to
	// be connected with nothing to answer.
	GoodAt  time.Time
	Waiting int // jobs in line
	Asked   int // jobs shown and not answered
}

// Presences lists the controllers of which instances are or were connected here.
func (e *Engine) Presences(now time.Time) []Presence {
	e.advance(now)
	var list []Presence
	for _, name := range e.names() {
		l := e.lines[name]
		for _, i := range l.instances {
			l.note(i, e.now)
		}
		if len(l.instances) > 0 || !l.goodAt.IsZero() {
			list = append(list, Presence{name, len(l.instances), l.goodAt, len(l.waiting), len(l.asked)})
		}
	}
	return list
}

// Here reports whether an instance of a controller is connected to this replica.
func (e *Engine) Here(controller string) bool {
	l := e.lines[controller]
	return l != nil && len(l.instances) > 0
}

// Since is when the engine began to look.
func (e *Engine) Since() time.Time { return e.since }
