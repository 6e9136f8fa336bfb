package router

import "time"

// Claimed takes the queue's answer to what Plan wanted: wants are those that it
// was asked for, answered in full or not, and got is what it gave. It returns
// where each job goes, and the attempts for which no place is left, for release.
//
// What was wanted and not got is no longer in the queue: somebody else took it.
// The local count is lowered by it, so that Plan does not ask for it again and
// again. After a claim that failed altogether, call it with nothing got.
func (e *Engine) Claimed(now time.Time, wants []ClaimWant, got []Claimed) (assign []Assignment, giveBack []JobRef) {
	e.advance(now)
	for _, w := range wants {
		e.settle(w)
	}
	for i := range got {
		if p := e.poolOf[got[i].Pool]; p != nil {
			p.due++
		}
	}
	if len(got) > 0 {
		assign = make([]Assignment, 0, len(got))
	}
	for i := range got {
		g := &got[i]
		if p := e.poolOf[g.Pool]; p != nil {
			p.due--
		}
		if h := e.holds[g.Ref.ID]; h != nil {
			if h.ref.Attempt >= g.Ref.Attempt {
				continue // an answer that came twice or too late
			}
			e.strike(h) // the store has given that attempt up
		}
		m := e.choose(g)
		if m == nil {
			giveBack = append(giveBack, g.Ref)
			continue
		}
		e.assign(m, g)
		assign = append(assign, Assignment{Machine: m.ID, Job: g.Job, Ref: g.Ref})
	}
	return assign, giveBack
}

// settle ends the reservations of one want.
func (e *Engine) settle(w ClaimWant) {
	if c := e.classes[w.Class]; c != nil {
		n := min(w.N, c.wanted)
		c.wanted -= n
		c.pending = max(0, c.pending-n)
		for i := range c.waited { // a claim takes the oldest
			c.waited[i].Jobs = max(0, c.waited[i].Jobs-n)
		}
	}
	e.reserved[w.Pool] -= w.N
	if e.reserved[w.Pool] <= 0 {
		delete(e.reserved, w.Pool)
	}
	e.dirty = true // places that were kept and not used are free again
}

// choose returns the machine for a claimed job, nil if there is none: machines
// may have gone and pools may have changed since it was wanted. It may be of another
// pool of the same priority, if that has more places than others were promised.
func (e *Engine) choose(g *Claimed) *machine {
	p := e.poolOf[g.Pool]
	if p == nil || !Match(&p.Capability, &g.Job.Requirement).OK() {
		return nil
	}
	if _, barred := e.bar(p, g.Ref.Class, g.Ref.ID); barred {
		return nil
	}
	first := p.best(g.Ref.Class)
	if first == nil {
		return nil
	}
	c := choice{engine: e, job: &g.Job, class: g.Ref.Class, own: p}
	if c.open(); c.plain() {
		return first
	}
	return c.best()
}

func (e *Engine) assign(m *machine, g *Claimed) {
	h := e.enter(m, g.Ref)
	h.name, h.antiAffinity = g.Job.Name, g.Job.AntiAffinity
	e.tastes.ran(affinityOf(&g.Job), m.ID)
	if c := e.classes[g.Ref.Class]; c != nil {
		c.claimed++
	}
	m.Uses++
	m.LastUsedAt = e.now
	e.refresh(m)
}
