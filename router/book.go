package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// Accepted notes that a machine took the job it was sent. This and the other
// reports of a machine on a job answer false, and change nothing, when the job is
// not that machine's or the attempt is not the one that it was given.
func (e *Engine) Accepted(now time.Time, id spillway.MachineID, ref JobRef) (ok bool) {
	h := e.report(now, id, ref)
	if h == nil {
		return false
	}
	e.accept(h)
	return true
}

// Started notes that the job's script runs.
func (e *Engine) Started(now time.Time, id spillway.MachineID, ref JobRef) (ok bool) {
	return e.Accepted(now, id, ref)
}

// Finished notes that the job has ended: its place is free.
func (e *Engine) Finished(now time.Time, id spillway.MachineID, ref JobRef) (ok bool) {
	h := e.report(now, id, ref)
	if h == nil {
		return false
	}
	h.machine.LastUsedAt = e.now
	e.tastes.took(h, e.now)
	h.machine.vacate(h)
	e.strike(h)
	return true
}

// Refused notes that the machine gave the job back untouched; the shell releases
// it. The machine isn't offered its class for Options.RefusalPause, and nothing
// at all before its next heartbeat if it said that it was full.
func (e *Engine) Refused(now time.Time, id spillway.MachineID, ref JobRef, full bool) (ok bool) {
	h := e.report(now, id, ref)
	if h == nil {
		return false
	}
	h.machine.full = h.machine.full || full
	e.pause(h.machine, h.ref.Class)
	h.machine.vacate(h)
	e.strike(h)
	return true
}

// Expire returns the attempts that no machine accepted in time, for release. Those
// in lost were accepted once, and their machine came back without them: they
// count as lost with it.
func (e *Engine) Expire(now time.Time) (release, lost []JobRef) {
	e.advance(now)
	for h := range e.waiting.all() {
		if e.now.Before(h.due) {
			break
		}
		if h.begun {
			lost = append(lost, h.ref)
		} else {
			release = append(release, h.ref)
		}
		e.pause(h.machine, h.ref.Class)
		e.strike(h)
	}
	return release, lost
}

// Held returns the attempts that a machine has, by job id.
func (e *Engine) Held(id spillway.MachineID) []JobRef {
	m := e.machines[id]
	if m == nil || len(m.holds) == 0 {
		return nil
	}
	refs := make([]JobRef, 0, len(m.holds))
	for _, h := range m.holds {
		refs = append(refs, h.ref)
	}
	slices.SortFunc(refs, func(a, b JobRef) int { return cmp.Compare(a.ID, b.ID) })
	return refs
}

// Holder returns the attempt at a job that is on a machine, and that machine.
func (e *Engine) Holder(id spillway.JobID) (ref JobRef, on spillway.MachineID, ok bool) {
	h := e.holds[id]
	if h == nil {
		return JobRef{}, "", false
	}
	return h.ref, h.machine.ID, true
}

// Drop takes an attempt off the book that has ended otherwise: canceled, or past
// its time limit. The machine's place stays taken for as long as its heartbeats
// say so.
func (e *Engine) Drop(now time.Time, ref JobRef) (ok bool) {
	e.advance(now)
	h := e.holds[ref.ID]
	if h == nil || h.ref.Attempt != ref.Attempt {
		return false
	}
	e.strike(h)
	return true
}

// report finds the hold that a machine's report is about, and notes that the
// machine has been heard of.
func (e *Engine) report(now time.Time, id spillway.MachineID, ref JobRef) *hold {
	e.advance(now)
	m := e.machines[id]
	if m == nil {
		return nil
	}
	e.hear(m)
	return e.find(id, ref)
}

// find returns the hold of exactly this attempt on exactly this machine. A
// machine knows no classes, so the ref's class is not looked at.
func (e *Engine) find(id spillway.MachineID, ref JobRef) *hold {
	h := e.holds[ref.ID]
	if h == nil || h.ref.Attempt != ref.Attempt || h.machine.ID != id {
		return nil
	}
	return h
}

// enter puts an attempt, which is in no book, into m's, where it waits to be
// accepted.
func (e *Engine) enter(m *machine, ref JobRef) *hold {
	h := &hold{ref: ref}
	h.waiting.value = h
	m.add(h)
	e.holds[ref.ID] = h
	e.held[ref.Class]++
	e.await(h)
	return h
}

// strike takes an attempt out of the books.
func (e *Engine) strike(h *hold) {
	h.machine.remove(h)
	e.waiting.remove(&h.waiting)
	delete(e.holds, h.ref.ID)
	if e.held[h.ref.Class]--; e.held[h.ref.Class] <= 0 {
		delete(e.held, h.ref.Class)
	}
	if c := e.classes[h.ref.Class]; c != nil {
		c.claimed = max(0, c.claimed-1)
	}
	e.refresh(h.machine)
}

// await gives h's machine the accept timeout, from now on.
func (e *Engine) await(h *hold) {
	h.due = e.now.Add(e.opt.AcceptTimeout)
	e.waiting.push(&h.waiting)
}

func (e *Engine) accept(h *hold) {
	h.begun = true
	h.begunAt = firstSet(h.begunAt, e.now)
	e.waiting.remove(&h.waiting)
}

// pause keeps a class away from a machine for a while.
func (e *Engine) pause(m *machine, class spillway.JobClass) {
	r := m.refusals[class]
	if r == nil {
		r = &refusal{machine: m, class: class}
		r.queued.value = r
		if m.refusals == nil {
			m.refusals = make(map[spillway.JobClass]*refusal)
		}
		m.refusals[class] = r
	}
	r.until = e.now.Add(e.opt.RefusalPause)
	e.refusals.push(&r.queued)
}

// forgive ends a pause.
func (e *Engine) forgive(r *refusal) {
	delete(r.machine.refusals, r.class)
	e.refusals.remove(&r.queued)
	e.dirty = true
}
