package sim

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// cellMachine is what a peer offers of one capability, to the router: a machine. It may be
// nil: then nobody needs what it says.
type cellMachine struct {
	out  *outCell
	pool spillway.Pool
	id   spillway.MachineID

	attached bool
	beatAt   time.Time
	busy     int  // as last said
	changed  bool // something is to be said soon
}

// keep has the router know the machine, and how it is.
func (m *cellMachine) keep() {
	w := m.out.world
	if !m.attached {
		m.attach()
	}
	busy := m.pool.CapacityPerInstance - m.out.book.Free(w.now, m.pool.Name)
	if m.changed || busy != m.busy || w.now.Sub(m.beatAt) >= cellBeatEvery {
		m.beat(busy)
	}
}

// attach begins a conversation, and says what the machine has. What the store does not
// agree to is wanted no more.
func (m *cellMachine) attach() {
	o, w, s := m.out, m.out.world, &m.out.replica.session
	m.attached, m.changed = true, true
	carried, ended := o.book.Carried(m.pool.Name)
	keep := s.stillOurs(m, carried)
	for _, ref := range s.engine.Connect(w.now, router.Machine{
		ID: m.id, InstanceID: "cell:" + o.terms.Peer, Pool: m.pool.Name, Capacity: m.pool.CapacityPerInstance, Busy: len(carried), Unhealthy: m.unhealthy(),
	}, keep) {
		m.unwanted(ref)
	}
	s.touched(m.id)
	for _, ref := range ended {
		m.finish(ref, o.results[ref])
	}
}

// stillOurs asks the store which attempts are still the present ones.
func (s *session) stillOurs(m *cellMachine, carried []cells.Ref) (keep []router.JobRef) {
	for _, ref := range carried {
		rec, err := s.world.store.Job(ref.ID)
		full := router.JobRef{ID: ref.ID, Class: rec.Job.Requirement.Class(), Attempt: ref.Attempt}
		if err == nil && s.world.store.Adopt(s.replica.name, rec.Job, full, m.pool.Name, m.id) == nil {
			keep = append(keep, full)
		} else if err == nil || errors.Is(err, store.ErrUnknownJob) {
			m.unwanted(full)
		}
	}
	return keep
}

// beat says how the machine is. What the peer has no place for counts as busy.
func (m *cellMachine) beat(busy int) {
	o, s := m.out, &m.out.replica.session
	carried, ended := o.book.Carried(m.pool.Name)
	var running []router.JobRef
	for _, ref := range carried {
		if held, on, ok := s.engine.Holder(ref.ID); ok && on == m.id && held.Attempt == ref.Attempt && !slices.Contains(ended, ref) {
			running = append(running, held)
		} else if !slices.Contains(ended, ref) {
			m.unwanted(router.JobRef{ID: ref.ID, Attempt: ref.Attempt}) // superseded
		}
	}
	m.beatAt, m.busy, m.changed = o.world.now, busy, false
	s.engine.SetUnhealthy(o.world.now, m.id, m.unhealthy())
	s.engine.Heartbeat(o.world.now, m.id, busy, false, running)
	s.touched(m.id)
}

func (m *cellMachine) unhealthy() string {
	if m.out.book.Linked() {
		return ""
	}
	return "there is no link to cell " + m.out.terms.Peer
}

// unwanted is the router saying that an attempt is the machine's no more.
func (m *cellMachine) unwanted(ref router.JobRef) {
	m.out.steps(m.out.book.Unwanted(cells.Ref{ID: ref.ID, Attempt: ref.Attempt}))
}

// holds returns the whole ref of an attempt that is on the machine by the router's book.
func (m *cellMachine) holds(ref cells.Ref) (router.JobRef, bool) {
	if m == nil || !m.attached {
		return router.JobRef{}, false
	}
	held, on, ok := m.out.replica.engine.Holder(ref.ID)
	return held, ok && on == m.id && held.Attempt == ref.Attempt
}

func (m *cellMachine) accept(at cells.Ref) {
	if ref, ok := m.holds(at); ok {
		m.out.replica.began(ref, m.pool.Name, m.id)
	}
}

// finish hands a result on. It is stored when the store says so, or that the attempt is
// nobody's.
func (m *cellMachine) finish(at cells.Ref, result spillway.JobResult) {
	ref, ok := m.holds(at)
	if !ok {
		if m != nil && m.attached {
			m.out.steps(m.out.book.Stored(at)) // stale
		}
		return
	}
	o, s, life := m.out, &m.out.replica.session, m.out.replica.life
	s.engine.Finished(o.world.now, m.id, ref)
	s.write(func() error {
		err := o.world.store.Apply(store.Transition{Ref: ref, To: result.State, Pool: m.pool.Name, Machine: m.id, Result: result})
		if !unavailable(err) && o.replica.life == life && o.leads {
			o.world.rec.handed(o.terms.Peer).ended++
			o.steps(o.book.Stored(at))
		}
		return err
	})
	s.touched(m.id)
}

// giveBack is a job that comes back: it has not begun, or is lost.
func (m *cellMachine) giveBack(at cells.Ref, why cells.Deed, detail string) {
	ref, ok := m.holds(at)
	if !ok {
		return
	}
	m.changed = true
	s := &m.out.replica.session
	s.engine.Refused(m.out.world.now, m.id, ref, why == cells.Refuse)
	s.release([]router.JobRef{ref}, why == cells.Lose, cmp.Or(detail, "nothing was heard of it for too long"))
	s.touched(m.id)
}

// abandon has the router forget the machine: its jobs are not given back, but their claims
// end unless somebody extends them.
func (m *cellMachine) abandon() {
	s := &m.out.replica.session
	s.engine.Forget(m.out.world.now, m.id)
	delete(s.unsaved, m.id)
	m.attached = false
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
