package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

// The numbers of an origin's shell, as serve has them.
const (
	cellLeaseTTL   = 15 * time.Second
	cellLeaseEvery = 5 * time.Second
	redialFirst    = time.Second
	redialMost     = 10 * time.Second
	cellBeatEvery  = 5 * time.Second
)

// outCell is one replica's part with one peer: what an origin of cells/session does with
// goroutines and streams, done in the order of the agenda.
type outCell struct {
	replica *replica
	world   *world
	terms   cells.Terms

	leads   bool
	lease   spillway.Lease
	askedAt time.Time

	book      *cells.Outbound
	inherited map[string]spillway.Pool
	machines  map[string]*cellMachine // by pool
	jobs      map[cells.Ref]spillway.Job
	results   map[cells.Ref]spillway.JobResult
	details   map[cells.Ref]string
	denied    denials

	link     *cellLink
	dials    int
	dialAt   time.Time
	dialWait time.Duration
}

// outEntry is an attempt in the stored book.
type outEntry struct {
	Class    spillway.JobClass
	Pool     spillway.Pool
	GiveBack time.Duration
}

// startCells begins a replica's part with other cells.
func (r *replica) startCells() {
	w := r.world
	r.outCells, r.inCells = nil, nil
	if w.config.Cells == nil {
		return
	}
	r.inCells = newInCells(r)
	for i := range w.config.Cells.Peers {
		o := &outCell{replica: r, world: w, terms: w.config.Cells.Terms(&w.config.Cells.Peers[i])}
		r.outCells = append(r.outCells, o)
		r.every(cellTick, o.tick)
	}
	r.every(cellTick, r.inCells.tick)
}

// cellPools are what the peers offer, as pools of this replica's router.
func (r *replica) cellPools() (pools []spillway.Pool) {
	for _, o := range r.outCells {
		for _, name := range sortedKeys(o.inherited) {
			pools = append(pools, o.inherited[name])
		}
	}
	return pools
}

// cellMachine is the machine of another cell that a replica's router knows by an id.
func (r *replica) cellMachine(id spillway.MachineID) *cellMachine {
	for _, o := range r.outCells {
		for _, m := range o.machines {
			if m.id == id {
				return m
			}
		}
	}
	return nil
}

func (o *outCell) tick() {
	o.keepLease()
	if !o.leads {
		return
	}
	o.steps(o.book.Tick(o.world.now))
	o.keepLink()
	o.keepDenied()
	for _, name := range sortedKeys(o.machines) {
		o.machines[name].keep()
	}
	o.dropIdlePools()
}

// keepLease takes the turn of linking to the peer, keeps it, or notices that it is over.
func (o *outCell) keepLease() {
	w, name := o.world, "cells/"+o.terms.Peer
	if o.leads && !w.now.Before(o.lease.Until) {
		o.giveUp()
	}
	if o.leads && w.now.Sub(o.askedAt) < cellLeaseEvery {
		return
	}
	held, err := w.store.HoldLeases(w.ctx, []string{name}, o.replica.name, cellLeaseTTL)
	if err != nil {
		return
	}
	lease, ours := held[name]
	switch {
	case o.leads && (!ours || lease.Epoch != o.lease.Epoch): // somebody had it meanwhile
		o.giveUp()
	case ours:
		begins := !o.leads
		o.lease, o.askedAt = lease, w.now
		if begins {
			o.lead()
		}
	}
}

// lead begins a turn with what the stored book has.
func (o *outCell) lead() {
	w := o.world
	raw, err := w.store.Settings(o.kind())
	if err != nil {
		return
	}
	o.leads = true
	o.book = cells.NewOutbound(o.terms, w.config.Cells.Lease)
	o.inherited, o.machines = make(map[string]spillway.Pool), make(map[string]*cellMachine)
	o.jobs, o.results, o.details = make(map[cells.Ref]spillway.Job), make(map[cells.Ref]spillway.JobResult), make(map[cells.Ref]string)
	o.link, o.dialAt, o.dialWait = nil, time.Time{}, redialFirst
	var known []cells.Known
	for _, name := range sortedKeys(raw) {
		var e outEntry
		if ref, ok := parseRef(name); ok && json.Unmarshal(raw[name], &e) == nil {
			known = append(known, cells.Known{Ref: ref, Class: e.Class, Pool: e.Pool.Name, GiveBack: e.GiveBack})
			o.inherited[e.Pool.Name] = e.Pool
		}
	}
	o.book.Inherit(w.now, known)
	o.inheritDenied()
	o.syncPools()
}

// giveUp ends a turn: another replica may answer for what the peer has.
func (o *outCell) giveUp() {
	o.unlink()
	for _, name := range sortedKeys(o.machines) {
		o.machines[name].abandon()
	}
	o.replica.engine.SetBars(o.terms.Peer, nil, nil)
	o.leads, o.machines, o.inherited = false, nil, nil
	o.replica.poolsChanged()
}

func (o *outCell) kind() string { return "cells-out:" + o.terms.Peer }

func parseRef(s string) (cells.Ref, bool) {
	at := strings.LastIndexByte(s, '/')
	n, err := strconv.Atoi(s[at+1:])
	return cells.Ref{ID: spillway.JobID(s[:max(at, 0)]), Attempt: n}, at > 0 && err == nil
}

// syncPools has the router know what the peer offers, and what it has of our jobs.
func (o *outCell) syncPools() {
	for _, pool := range o.book.Pools() {
		o.inherited[pool.Name] = pool
	}
	for _, name := range sortedKeys(o.inherited) {
		m := o.machines[name]
		if m == nil {
			m = &cellMachine{out: o, id: spillway.MachineID("cell:" + name)}
			o.machines[name] = m
		}
		m.pool, m.changed = o.inherited[name], true
	}
	o.replica.poolsChanged()
}

// dropIdlePools lets go of what is offered no more, once nothing of it is under way.
func (o *outCell) dropIdlePools() {
	if !o.book.Linked() {
		return
	}
	for _, name := range sortedKeys(o.machines) {
		if _, offered := o.book.Offered(name); !offered && o.book.Jobs(name) == 0 {
			o.machines[name].abandon()
			delete(o.machines, name)
			delete(o.inherited, name)
			o.replica.poolsChanged()
		}
	}
}

// beat answers a beat of the peer, once the claims on what it has are extended.
func (o *outCell) beat(l *cellLink, number uint64) {
	w := o.world
	if !w.now.Before(o.lease.Until) {
		return
	}
	mark, claims := o.book.Beat(number)
	stale, err := w.store.Renew(claims, o.book.GiveBack())
	if err != nil {
		return // no answer: the lease goes on running out
	}
	extended := slices.DeleteFunc(claims, func(ref router.JobRef) bool { return slices.Contains(stale, ref) })
	if covered, also, ok := o.book.Renewed(w.now, mark, extended, stale); ok {
		l.say(func() { l.in.renewed(l, mark.Beat, covered, also) })
	}
}

// reported takes in what has become of an attempt.
func (o *outCell) reported(ref cells.Ref, word cells.Word, result spillway.JobResult, detail string) {
	if word == cells.WordEnded {
		o.results[ref] = result
	}
	if word >= cells.WordLost {
		o.details[ref] = fmt.Sprintf("cell %s: %s", o.terms.Peer, detail)
	}
	if word == cells.WordDenied {
		o.details[ref] = fmt.Sprintf("cell %s refused it: %s", o.terms.Peer, detail)
	}
	o.steps(o.book.Heard(o.world.now, ref, word, o.details[ref]))
}

// take takes a job that the router has given to the peer, writes it into the stored book,
// extends the claim on it, and sends it.
func (o *outCell) take(m *cellMachine, job spillway.Job, ref router.JobRef) {
	w, at := o.world, cells.Ref{ID: ref.ID, Attempt: ref.Attempt}
	if why, denied := o.book.Denies(w.now, at.ID); denied { // it was claimed just before that
		m.giveBack(at, cells.Deny, why)
		return
	}
	if handedOver(&job) || !o.book.Take(w.now, at, ref.Class, m.pool.Name) {
		m.changed = true
		m.giveBack(at, cells.Refuse, "the cell offers no place any more")
		return
	}
	o.jobs[at] = job
	mark, giveBack := o.book.Newest(), o.book.GiveBack()
	err := o.keep(at, outEntry{ref.Class, m.pool, giveBack})
	send, steps := o.book.Kept(w.now, at, mark, err == nil && w.now.Before(o.lease.Until))
	if !send && len(steps) == 0 {
		o.forget(at)
	}
	o.steps(steps)
	if l := o.link; send && l != nil {
		w.rec.handed(o.terms.Peer).over++
		l.say(func() { l.in.spilled(l, job, at, mark.Beat) })
	}
	delete(o.jobs, at)
}

func (o *outCell) keep(ref cells.Ref, e outEntry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := o.world.store.PutSetting(o.kind(), ref.String(), data); err != nil {
		return err
	}
	stale, err := o.world.store.Renew([]router.JobRef{{ID: ref.ID, Class: e.Class, Attempt: ref.Attempt}}, e.GiveBack)
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("job %s is not ours any more", ref)
	}
	return err
}

// forget drops an attempt from the stored book.
func (o *outCell) forget(ref cells.Ref) {
	delete(o.jobs, ref)
	delete(o.results, ref)
	delete(o.details, ref)
	_ = o.world.store.DropSetting(o.kind(), ref.String()) // else who reads it is told by the router that it isn't ours
}

func (o *outCell) steps(list []cells.Step) {
	for _, s := range list {
		o.step(s)
	}
}

// step carries out what the book says. A machine that is gone says nothing.
func (o *outCell) step(s cells.Step) {
	m, l := o.machines[s.Pool], o.link
	say := func(what func(*inCells)) {
		if l != nil {
			l.say(func() { what(l.in) })
		}
	}
	switch s.Do {
	case cells.Accept:
		m.accept(s.Ref)
	case cells.Finish:
		m.finish(s.Ref, o.results[s.Ref])
	case cells.Refuse, cells.Deny, cells.Lose:
		o.world.rec.handed(o.terms.Peer).back++
		if s.Do == cells.Deny {
			o.keepDenied() // first: the router must not offer it again
		}
		m.giveBack(s.Ref, s.Do, o.details[s.Ref])
		o.forget(s.Ref)
	case cells.AskBack:
		say(func(in *inCells) { in.takeBack(l, s.Ref) })
	case cells.Withdraw:
		say(func(in *inCells) { in.canceled(l, s.Ref) })
		o.forget(s.Ref)
	case cells.Confirm:
		say(func(in *inCells) { in.confirmed(l, s.Ref) })
		o.forget(s.Ref)
	}
}
