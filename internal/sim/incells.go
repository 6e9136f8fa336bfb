package sim

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/store"
)

// The numbers of a receiver's shell, as serve has them.
const (
	lookEvery   = 2 * time.Second
	orderEvery  = 5 * time.Second
	bookEvery   = 5 * time.Second
	replicaGone = 20 * time.Second
	missingFor  = 30 * time.Second
	inKind      = "cells-in"
	linkKind    = "cells-link"
	endReason   = cells.EndedOnMachine + "its cell does not hold it any more"
)

// inCells is what a replica does for jobs of other cells: what a receiver of cells/session
// does with goroutines and streams, done in the order of the agenda.
type inCells struct {
	replica  *replica
	world    *world
	origins  map[string]*inOrigin
	others   map[string]otherReplica
	lookedAt time.Time
	readAt   time.Time
	stock    []cells.Offer
	stockAt  time.Time
	failing  time.Time // since when claims can't be renewed; zero = they can
}

// inOrigin is an origin that this replica answers for, or is linked to.
type inOrigin struct {
	name      string
	world     *world
	epoch     uint64
	book      *cells.Inbound
	jobs      map[cells.Ref]*inJob
	link      *cellLink // nil: none
	beatEvery time.Duration
	beatAt    time.Time
	offers    []cells.Offer // as last said over this link
}

// inJob is one attempt of an origin.
type inJob struct {
	origin    *inOrigin
	ref       cells.Ref
	local     spillway.JobID
	last      *inReport // the end, until it is confirmed
	orderedAt time.Time
	unsureAt  time.Time
	missingAt time.Time
	back      bool // it is to be given back unless it has begun
}

// inReport is what an origin is told of an attempt.
type inReport struct {
	word   cells.Word
	result spillway.JobResult
	detail string
}

// inEntry is an attempt in the stored book.
type inEntry struct {
	Origin string
	Ref    cells.Ref
}

// answering says which replica answers for an origin.
type answering struct {
	Replica string
	Epoch   uint64
	Count   uint64
}

// otherReplica is what is known of an origin that another replica answers for.
type otherReplica struct {
	answering
	changedAt time.Time
}

func newInCells(r *replica) *inCells {
	return &inCells{replica: r, world: r.world, origins: make(map[string]*inOrigin), others: make(map[string]otherReplica)}
}

func (in *inCells) tick() {
	w := in.world
	in.takeStock()
	for _, name := range sortedKeys(in.origins) {
		o := in.origins[name]
		o.book.Tick(w.now)
		in.beat(o)
		in.offer(o)
	}
	in.endWhatShall()
	in.look()
	in.readBook()
	in.endUnclaimed()
}

// offer tells the origin what is offered, where that has changed.
func (in *inCells) offer(o *inOrigin) {
	l, list := o.link, in.offers()
	same := o.offers != nil && slices.EqualFunc(o.offers, list, func(x, y cells.Offer) bool {
		return x.Free == y.Free && x.Growth == y.Growth && x.CostPerJob == y.CostPerJob && x.Capability.Fingerprint() == y.Capability.Fingerprint()
	})
	if l == nil || same {
		return
	}
	o.offers = list
	l.answer(func() { l.out.hears(l, func() { l.out.offered(list) }) })
}

// beat asks the origin for its answer.
func (in *inCells) beat(o *inOrigin) {
	l := o.link
	if l == nil || in.world.now.Sub(o.beatAt) < o.beatEvery {
		return
	}
	o.beatAt = in.world.now
	n := o.book.Beat(in.world.now)
	l.answer(func() { l.out.hears(l, func() { l.out.beat(l, n) }) })
}

// greet takes a new link in, once the store knows that it is the newest.
func (in *inCells) greet(l *cellLink, origin *world, epoch uint64, lease time.Duration) {
	w, name := in.world, origin.cell()
	refs, ok := in.claimOrigin(name, epoch)
	if !ok {
		l.end()
		return
	}
	o := in.origins[name]
	if o == nil {
		o = in.newOrigin(name)
	}
	if o.link != nil {
		o.link.end()
	}
	o.epoch, o.beatAt, o.link, o.offers = epoch, time.Time{}, l, nil
	o.book.Link(lease)
	o.beatEvery = cells.Timing{Lease: lease}.BeatEvery()
	in.inherit(o, refs)
	endWithin := w.timing().EndWithin
	l.answer(func() { l.out.hears(l, func() { l.out.welcomed(l, endWithin) }) })
	held := o.book.Held()
	for _, ref := range sortedRefs(held) {
		switch j := o.jobs[ref]; {
		case j != nil && j.last != nil:
			in.tell(o, ref, *j.last)
		case held[ref] > 0:
			in.tell(o, ref, inReport{word: held[ref]})
		}
	}
	in.beat(o)
}

func (in *inCells) newOrigin(name string) *inOrigin {
	o := &inOrigin{name: name, world: in.world.cellNamed(name), jobs: make(map[cells.Ref]*inJob)}
	o.book = cells.NewInbound(cells.Timing{EndWithin: in.world.timing().EndWithin})
	in.origins[name] = o
	return o
}

func (in *inCells) linkEnded(l *cellLink) {
	for _, o := range in.origins {
		if o.link == l {
			o.link = nil
		}
	}
}

// tell reports an attempt to its origin.
func (in *inCells) tell(o *inOrigin, ref cells.Ref, r inReport) {
	if l := o.link; l != nil {
		l.answer(func() { l.out.hears(l, func() { l.out.reported(ref, r.word, r.result, r.detail) }) })
	}
}

// of is the origin that a link is the newest one of, nil if it isn't.
func (in *inCells) of(l *cellLink) *inOrigin {
	if o := in.origins[l.out.world.cell()]; o != nil && o.link == l {
		return o
	}
	return nil
}

// renewed takes in an answer to a beat.
func (in *inCells) renewed(l *cellLink, beat uint64, covered, also []cells.Ref) {
	o := in.of(l)
	if o == nil {
		return
	}
	if unknown, _ := o.book.Renew(beat, covered, also); len(unknown) > 0 {
		l.answer(func() { l.out.hears(l, func() { l.out.book.Unknown(unknown) }) })
	}
}

func (in *inCells) takeBack(l *cellLink, ref cells.Ref) {
	if o := in.of(l); o != nil {
		if j := o.jobs[ref]; j != nil && j.last == nil {
			j.back, in.lookedAt = true, time.Time{}
		}
	}
}

func (in *inCells) canceled(l *cellLink, ref cells.Ref) {
	if o := in.of(l); o != nil {
		o.book.Cancel(ref)
	}
}

// confirmed forgets an attempt whose end the origin knows.
func (in *inCells) confirmed(l *cellLink, ref cells.Ref) {
	o := in.of(l)
	if o == nil || !o.book.Confirmed(ref) {
		return
	}
	if j := o.jobs[ref]; j != nil {
		delete(o.jobs, ref)
		_ = in.world.store.DropSetting(inKind, string(j.local)) // else it is found there again
	}
}

// spilled takes in an attempt that is handed over.
func (in *inCells) spilled(l *cellLink, job spillway.Job, ref cells.Ref, beat uint64) {
	o := in.of(l)
	if o == nil {
		return
	}
	switch o.book.Spill(in.world.now, ref, beat) {
	case cells.Push:
		in.push(o, in.job(o, ref), job)
	case cells.TooLate:
		in.tell(o, ref, inReport{word: cells.WordRefused, detail: "it came too late"})
	case cells.TooMany:
		in.tell(o, ref, inReport{word: cells.WordRefused, detail: "this cell has enough jobs of this origin"})
	case cells.Again: // it has been reported
	}
}

func (in *inCells) job(o *inOrigin, ref cells.Ref) *inJob {
	j := o.jobs[ref]
	if j == nil {
		j = &inJob{origin: o, ref: ref, local: cells.LocalID(o.name, ref)}
		o.jobs[ref] = j
	}
	return j
}

// push writes the attempt into the stored book, and then the job into the queue. It is run
// once: whether it is tried again, its origin says.
func (in *inCells) push(o *inOrigin, j *inJob, job spillway.Job) {
	w, duration := in.world, o.world.jobs[job.ID].Duration
	job.ID, job.Requirement.Origin, job.NoRetry, job.MaxAttempts, job.SubmittedAt = j.local, spillway.CellOrigin, true, 0, w.now
	taken := in.keep(j) == nil
	if taken {
		w.receive(&scenario.Job{Job: job, Duration: duration}, away{o.world, j.ref})
		outcome, err := w.store.Push(job)
		taken = err == nil && outcome != store.Conflict
	}
	if !taken {
		o.book.Pushed(w.now, j.ref, false)
		delete(o.jobs, j.ref)
		_ = w.store.DropSetting(inKind, string(j.local))
		w.rec.gone(j.local)
		in.tell(o, j.ref, inReport{word: cells.WordRefused, detail: "the store of this cell can't be reached"})
		return
	}
	if !o.book.Pushed(w.now, j.ref, true) && o.book.Seen(j.ref, cells.WordTaken) {
		in.tell(o, j.ref, inReport{word: cells.WordTaken})
	}
	in.lookedAt = time.Time{}
	w.queueChanged()
}

func (in *inCells) keep(j *inJob) error {
	data, err := json.Marshal(inEntry{j.origin.name, j.ref})
	if err != nil {
		return err
	}
	return in.world.store.PutSetting(inKind, string(j.local), data)
}

// receive is a job of another cell that is about to be queued here.
func (w *world) receive(job *scenario.Job, from away) {
	id := job.Job.ID
	if w.jobs[id] == nil {
		w.jobs[id] = job
		w.away[id] = from
	}
	if !w.rec.known(id) {
		w.rec.jobSubmitted(job)
	}
}

// endWhatShall has machines of every replica end what is covered no more.
func (in *inCells) endWhatShall() {
	w := in.world
	for _, name := range sortedKeys(in.origins) {
		o := in.origins[name]
		_, toEnd := o.book.Open()
		for _, ref := range toEnd {
			j := in.job(o, ref)
			if w.now.Sub(j.orderedAt) < orderEvery {
				continue
			}
			j.orderedAt, in.lookedAt = w.now, time.Time{}
			for _, r := range w.replicas {
				if r == in.replica || w.store.Fault == 0 { // others hear of it by the store
					r.heard(func() { r.endHandedOver(j.local, endReason) })
				}
			}
		}
	}
}

// endHandedOver has a machine of this replica end a job. How that has ended, and that it
// has, the machine says.
func (r *replica) endHandedOver(id spillway.JobID, reason string) {
	if _, on, held := r.engine.Holder(id); held && r.streams[on] != nil {
		r.streams[on].end(id, reason)
	}
}

// endUnclaimed ends jobs of other cells when nobody can have renewed their claims.
func (in *inCells) endUnclaimed() {
	w := in.world
	switch {
	case w.store.Fault == 0:
		in.failing = time.Time{}
		return
	case in.failing.IsZero():
		in.failing = w.now
	}
	if w.now.Sub(in.failing) < reviewTTL-renewClaimsEvery {
		return
	}
	for _, id := range sortedKeys(in.replica.streams) {
		in.replica.streams[id].endAllHandedOver(cells.EndedOnMachine + "the store can't be reached")
	}
}
