package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// streamGrace is how long a machine without a stream keeps its jobs, as in the
// router's shell.
const streamGrace = 30 * time.Second

// session is the router's shell of one replica: what router/session does with
// goroutines and streams, done in the order of the agenda.
type session struct {
	replica *replica
	world   *world
	engine  *router.Engine
	streams map[spillway.MachineID]*runner
	unsaved map[spillway.MachineID]bool // machines whose record is behind
	writes  []func() error              // what the store has not confirmed yet, in order
	retry   bool                        // a retry is planned
	// unreviewed says of the classes that were counted whether their jobs need nobody's
	// approval.
	unreviewed map[spillway.JobClass]bool
	alarm      time.Time // when the engine is looked at next; zero = not planned
}

func (s *session) init(r *replica) {
	*s = session{
		replica: r, world: r.world,
		engine:  router.NewEngine(r.world.pools(), router.Options{AcceptTimeout: r.world.config.Timeouts.Assign}),
		streams: make(map[spillway.MachineID]*runner),
		unsaved: make(map[spillway.MachineID]bool),

		unreviewed: make(map[spillway.JobClass]bool),
	}
}

// connected is a machine's new stream. Its attempts are kept if the store agrees.
func (s *session) connected(r *runner) {
	w := s.world
	s.streams[r.id] = r
	r.draining = false // the order was its last replica's: this one repeats it if it still stands
	var keep []router.JobRef
	for _, ref := range r.running() {
		if s.adopt(r, ref) {
			keep = append(keep, ref)
		} else {
			r.stop(ref.ID)
		}
	}
	m := router.Machine{ID: r.id, InstanceID: r.instance, Pool: r.pool, Capacity: r.capacity, Busy: len(r.jobs), Uses: r.uses, Unhealthy: r.complaint}
	if r.notice.Kind != "" {
		m.InterruptedAt, m.InterruptionKind, m.InterruptionDeadline = r.noticedAt, string(r.notice.Kind), r.notice.Deadline
	}
	if known, ok := w.store.Machine(r.id); ok {
		m.RegisteredAt, m.LastUsedAt, m.HeartbeatAt = known.RegisteredAt, known.LastUsedAt, known.HeartbeatAt
	}
	for _, ref := range s.engine.Connect(w.now, m, keep) {
		r.stop(ref.ID)
	}
	if order, ok := w.store.Drain(r.id); ok {
		s.order(r.id, order.On)
	}
	s.heartbeat(r)
}

// adopt asks the store whether an attempt is still the present one. While nobody
// can be asked, the machine is believed.
//
// A job of another cell is none that a machine can tell anybody of: how long it is covered
// is lost with the store.
func (s *session) adopt(r *runner, ref router.JobRef) bool {
	if _, err := s.world.store.Job(ref.ID); handedOver(&r.jobs[ref.ID].job) && errors.Is(err, store.ErrUnknownJob) {
		return false
	}
	err := s.world.store.Adopt(s.replica.name, r.jobs[ref.ID].job, ref, r.pool, r.id)
	return err == nil || errors.Is(err, store.ErrUnavailable)
}

// heartbeat is what a machine says of itself.
func (s *session) heartbeat(r *runner) {
	for _, ref := range r.running() {
		if _, err := s.world.store.Job(ref.ID); errors.Is(err, store.ErrUnknownJob) && !s.adopt(r, ref) {
			s.engine.Drop(s.world.now, ref) // else the store was wiped: heartbeats tell it again
			r.stop(ref.ID)
		}
	}
	s.engine.Heartbeat(s.world.now, r.id, len(r.jobs), r.draining, r.running())
	s.touched(r.id)
}

// touched saves a machine's record and does what became possible.
func (s *session) touched(id spillway.MachineID) {
	s.unsaved[id] = true
	s.settle()
}

// settle gives jobs out, writes what changed and plans the next look.
func (s *session) settle() {
	s.dispatch()
	s.save()
	s.arm()
	s.replica.poke()
}

// save writes the machines' records that are behind.
func (s *session) save() {
	for _, id := range slices.Sorted(maps.Keys(s.unsaved)) {
		m, ok := s.engine.Machine(id)
		if ok && !s.movedOn(id) {
			m.Replica = s.replica.name
			if s.world.store.PutMachine(m) != nil {
				s.tryAgain()
				return
			}
		}
		delete(s.unsaved, id)
	}
}

// movedOn reports whether another replica has the machine by now.
func (s *session) movedOn(id spillway.MachineID) bool {
	known, recorded := s.world.store.Machine(id)
	attached := s.streams[id] != nil || s.replica.cellMachine(id) != nil
	return recorded && !attached && known.Replica != s.replica.name
}

// countQueue takes a fresh picture of the queue.
func (s *session) countQueue() {
	counts, err := s.world.counts()
	if err != nil {
		return
	}
	for i := range counts {
		s.unreviewed[counts[i].Class] = !s.world.policy.Needs(&counts[i].Requirement)
	}
	s.engine.SetCounts(counts)
	if v := s.replica.reviewer; v != nil {
		v.told(counts)
	}
	s.dispatch()
	s.save()
	s.arm()
}

// dispatch claims jobs for free places and sends them to machines, until there is
// nothing left to want.
func (s *session) dispatch() {
	w := s.world
	for {
		wants := s.engine.Plan(w.now)
		if len(wants) == 0 && s.engine.RemoteWanted(w.now) && s.lookAround() {
			continue
		}
		if len(wants) == 0 {
			return
		}
		for i := range wants { // one that is not known is taken to need approval, until it is counted
			wants[i].AdmittedOnly = !s.unreviewed[wants[i].Class]
		}
		got, err := w.store.Claim(s.replica.name, wants)
		assigned, giveBack := s.engine.Claimed(w.now, wants, got)
		s.release(giveBack, false, "no place was left")
		for i := range assigned {
			s.deliver(&assigned[i])
		}
		w.rules.dispatched(s, assigned)
		if err != nil {
			return // counted again when the store is back
		}
	}
}

// lookAround reads what other replicas have free. It reports whether the store told.
func (s *session) lookAround() bool {
	w := s.world
	all, err := w.store.Machines(w.ctx)
	if err != nil {
		return false
	}
	var places []router.RemotePlaces
	for i := range all {
		m := &all[i]
		if m.Replica == s.replica.name || !m.TakesJobs() {
			continue
		}
		free := m.Capacity - m.InUse()
		if p, _ := w.config.Pool(m.Pool); p.Policy.MaxUses > 0 {
			free = min(free, p.Policy.MaxUses-m.Uses)
		}
		places = append(places, router.RemotePlaces{Pool: m.Pool, Free: max(0, free), At: m.HeardAt})
	}
	s.engine.SetRemote(w.now, places)
	return true
}

// deliver sends a job to its machine, which accepts and starts it.
func (s *session) deliver(a *router.Assignment) {
	w := s.world
	s.unsaved[a.Machine] = true
	if m := s.replica.cellMachine(a.Machine); m != nil {
		m.out.take(m, a.Job, a.Ref)
		return
	}
	r := s.streams[a.Machine]
	if r == nil {
		return // expires unaccepted
	}
	w.rules.assigned(r, a.Ref)
	w.rules.starts(&a.Job)
	if v := s.replica.reviewer; v != nil {
		v.dispatched(&a.Job)
	}
	if !r.run(a.Job, a.Ref) {
		return
	}
	s.began(a.Ref, r.pool, a.Machine)
}

// began notes that a machine has a job, and runs it.
func (s *session) began(ref router.JobRef, pool string, id spillway.MachineID) {
	w := s.world
	s.engine.Accepted(w.now, id, ref)
	s.engine.Started(w.now, id, ref)
	s.write(func() error {
		return w.store.Apply(store.Transition{Ref: ref, To: spillway.Running, Pool: pool, Machine: id})
	})
}

// finished is a machine's result.
func (s *session) finished(r *runner, o outcome) {
	w := s.world
	s.engine.Finished(w.now, r.id, o.ref)
	s.write(func() error {
		return w.store.Apply(store.Transition{Ref: o.ref, To: o.result.State, Pool: r.pool, Machine: r.id, Result: o.result})
	})
	s.touched(r.id)
}

// release gives attempts back to the queue.
func (s *session) release(refs []router.JobRef, lost bool, detail string) {
	for _, ref := range refs {
		s.write(func() error {
			requeued, err := s.world.store.Release(store.Release{Ref: ref, Lost: lost, Detail: detail})
			if requeued && !s.engine.Requeued(ref) {
				s.countQueue()
			}
			return err
		})
	}
}

// write does what must not be lost: while the store is away it is kept and done
// again, in order. A refusal is an answer.
func (s *session) write(do func() error) {
	if len(s.writes) == 0 && !unavailable(do()) {
		return
	}
	s.writes = append(s.writes, do)
	s.tryAgain()
}

// unavailable reports whether the store did not answer.
func unavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }

func (s *session) tryAgain() {
	if s.retry {
		return
	}
	s.retry = true
	life := s.replica.life
	s.world.after(retryEvery, func() {
		if s.replica.life != life {
			return
		}
		s.retry = false
		if s.replica.paused {
			s.tryAgain()
			return
		}
		s.flush()
	})
}

func (s *session) flush() {
	for len(s.writes) > 0 {
		if unavailable(s.writes[0]()) {
			s.tryAgain()
			return
		}
		s.writes = s.writes[1:]
	}
	s.settle()
}

// arm plans the next look at what time does to the engine.
func (s *session) arm() {
	at, ok := s.engine.NextDeadline()
	if !ok || (!s.alarm.IsZero() && !at.Before(s.alarm) && !s.alarm.Before(s.world.now)) {
		return
	}
	at = later(at, s.world.now)
	s.alarm = at
	life := s.replica.life
	s.world.agenda.plan(at, func() {
		if s.replica.life != life || !s.alarm.Equal(at) {
			return
		}
		s.alarm = time.Time{}
		if s.replica.paused {
			return // looked at on resuming
		}
		if ripe, ok := s.engine.RipensAt(); ok && !s.world.now.Before(ripe) {
			s.countQueue() // some have waited for long enough by now
		}
		release, lost := s.engine.Expire(s.world.now)
		s.release(release, false, "not accepted in time")
		s.release(lost, true, "its machine came back without it")
		s.settle()
	})
}

// order tells a machine to take no more jobs, or takes that back.
func (s *session) order(id spillway.MachineID, on bool) {
	w := s.world
	if !s.engine.Order(w.now, id, on) {
		return
	}
	if r := s.streams[id]; r != nil && r.drain(on) {
		s.engine.DrainAck(w.now, id, on)
	}
	s.touched(id)
}

// carryOutDrains sends the orders that are on record to the machines that have
// not got them.
func (s *session) carryOutDrains() {
	for _, id := range slices.Sorted(maps.Keys(s.streams)) {
		order, _ := s.world.store.Drain(id)
		if m, ok := s.engine.Machine(id); ok && m.Draining != order.On {
			s.order(id, order.On)
		}
	}
}

// renewClaims keeps what its machines have. What fails is done again soon.
func (s *session) renewClaims() {
	var refs []router.JobRef
	for _, m := range s.engine.Machines() {
		refs = append(refs, s.engine.Held(m.ID)...)
	}
	stale, _ := s.world.store.Renew(refs, memstore.DefaultClaimTTL)
	s.giveUp(stale)
	if v := s.replica.reviewer; v != nil {
		v.renew()
	}
}

// giveUp takes attempts off the book that are another cell's machine's no more. The other
// machines hear of that by their own ways.
func (s *session) giveUp(stale []router.JobRef) {
	for _, ref := range stale {
		held, on, ok := s.engine.Holder(ref.ID)
		if m := s.replica.cellMachine(on); ok && m != nil && held.Attempt == ref.Attempt {
			s.engine.Drop(s.world.now, ref)
			m.unwanted(ref)
		}
	}
}

// reap puts claims back that nobody renews.
func (s *session) reap() {
	if s.world.store.Reap() == nil {
		s.countQueue()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
