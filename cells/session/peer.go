package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/store"
)

var (
	errNotOurTurn  = errors.New("another replica links to it")
	errSilent      = errors.New("it has said nothing for a lease")
	errSlow        = errors.New("it does not read what it is sent")
	errShutDown    = errors.New("this control plane is going away")
	errNotLinked   = errors.New("it has not been reached yet")
	errLeaseIsOver = errors.New("the lease by which this replica links to it is over")
)

// peer is one peer of an origin. The goroutine of run owns all but mu; others hand it what
// to do over inbox.
type peer struct {
	origin *Origin
	opt    PeerOptions
	inbox  chan func()
	calls  sync.WaitGroup

	ctx       context.Context // of the present turn
	lease     store.Lease
	acquiring bool
	askedAt   time.Time // when the lease was asked for last
	book      *cells.Outbound
	inherited map[string]spillway.Pool // pools of the stored book that are not offered, maybe
	machines  map[string]*machine      // by pool
	jobs      map[cells.Ref]*typesv1.Job
	results   map[cells.Ref]*typesv1.JobResult
	details   map[cells.Ref]string
	denied    denials

	link     *outLink // nil: none
	dialAt   time.Time
	dialWait time.Duration
	shownAt  time.Time

	mu struct {
		sync.Mutex
		view PeerView
	}
}

func newPeer(o *Origin, opt PeerOptions) *peer {
	p := &peer{origin: o, opt: opt, inbox: make(chan func(), 256)}
	p.mu.view = PeerView{Name: opt.Peer, Address: opt.Address, State: StateCutOff, Detail: errNotLinked.Error(), Since: time.Now()}
	return p
}

// do has the owner do something, unless the turn is over.
func (p *peer) do(ctx context.Context, f func()) {
	select {
	case p.inbox <- f:
	case <-ctx.Done():
	}
}

// beside makes a call that may take long; what it returns is done by the owner.
func (p *peer) beside(f func(ctx context.Context) func()) {
	ctx := p.ctx
	p.calls.Go(func() {
		if then := f(ctx); then != nil {
			p.do(ctx, then)
		}
	})
}

// run takes turns until ctx ends.
func (p *peer) run(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		lease, err := p.origin.store.Acquire(ctx, p.leaseName(), p.origin.opt.Replica, leaseTTL)
		if err == nil {
			p.lease, p.askedAt = lease, asked
			if known, err := p.readBook(ctx); err == nil {
				p.lead(ctx, known, p.readDenied(ctx))
				continue
			}
		}
		if errors.Is(err, store.ErrLeaseHeld) {
			p.show(StateOtherReplica, errNotOurTurn)
		} else if err != nil && ctx.Err() == nil {
			p.origin.trouble("acquire "+p.leaseName(), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(turnEvery):
		}
	}
}

func (p *peer) leaseName() string { return "cells/" + p.opt.Peer }

// lead is a turn: until ctx ends or the lease is lost.
func (p *peer) lead(outer context.Context, known []kept, denied map[spillway.JobID]cells.Denial) {
	ctx, cancel := context.WithCancelCause(outer)
	p.ctx = ctx
	p.book = cells.NewOutbound(p.opt.Terms, p.origin.opt.Lease)
	p.inherited, p.machines = map[string]spillway.Pool{}, map[string]*machine{}
	p.jobs, p.results, p.details = map[cells.Ref]*typesv1.Job{}, map[cells.Ref]*typesv1.JobResult{}, map[cells.Ref]string{}
	p.link, p.dialAt, p.dialWait, p.acquiring = nil, time.Time{}, redialFirst, false
	p.inherit(known)
	p.book.InheritDenied(denied)
	p.denied = denials{kept: denied}
	p.syncPools()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for p.holds(time.Now()) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case f := <-p.inbox:
			f()
		case <-tick.C:
			p.tick(time.Now())
		}
	}
	p.unlink(errLeaseIsOver)
	leaving := outer.Err() != nil
	cancel(errLeaseIsOver)
	for _, m := range p.machines {
		if !leaving { // else the router is going away too, and forgets nothing
			p.origin.router.Abandon(outer, m.id)
		}
		m.end()
	}
	p.calls.Wait()
	p.emptyInbox()
	p.origin.setPools(p.opt.Peer, nil)
	if !leaving {
		p.origin.router.SetBars(outer, p.opt.Peer, nil, nil)
	}
	if leaving {
		p.leave(outer)
	}
}

// emptyInbox drops what was handed over too late for the turn that it was of.
func (p *peer) emptyInbox() {
	for {
		select {
		case <-p.inbox:
		default:
			return
		}
	}
}

// leave lets another replica link at once.
func (p *peer) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = p.origin.store.ReleaseLease(ctx, p.lease) // else it ends by itself
	p.show(StateCutOff, errShutDown)
}

// holds reports whether it is our turn, by our own clock.
func (p *peer) holds(now time.Time) bool { return now.Before(p.lease.Until) }

func (p *peer) tick(now time.Time) {
	p.keepLease(now)
	for _, s := range p.book.Tick(now) {
		p.step(s)
	}
	p.keepLink(now)
	for _, m := range p.machines {
		m.keep(now)
	}
	p.dropIdlePools()
	if now.Sub(p.shownAt) >= time.Second {
		p.shownAt = now
		p.keepDenied(now)
		p.refresh()
	}
}

// keepLease asks for the lease again.
func (p *peer) keepLease(now time.Time) {
	if p.acquiring || now.Sub(p.askedAt) < leaseEvery {
		return
	}
	p.acquiring, p.askedAt = true, now
	p.beside(func(ctx context.Context) func() {
		lease, err := p.origin.store.Acquire(ctx, p.leaseName(), p.origin.opt.Replica, leaseTTL)
		return func() {
			p.acquiring = false
			switch {
			case err == nil && lease.Epoch == p.lease.Epoch:
				p.lease = lease
			case err == nil || errors.Is(err, store.ErrLeaseHeld):
				p.lease.Until = time.Time{} // somebody had it meanwhile: begin anew
			default:
				p.origin.trouble("renew "+p.leaseName(), err)
			}
		}
	})
}

// step carries out what the book says. A machine that is gone says nothing.
func (p *peer) step(s cells.Step) {
	m := p.machines[s.Pool]
	switch s.Do {
	case cells.Accept:
		m.accept(s.Ref)
	case cells.Finish:
		m.finish(s.Ref, p.results[s.Ref])
	case cells.Refuse:
		m.refuse(s.Ref, p.details[s.Ref])
		p.forget(s.Ref)
		p.cameBack(s.Ref, cells.WordRefused)
	case cells.Deny:
		p.keepDenied(time.Now()) // first: the router must not offer it again
		m.deny(s.Ref, p.details[s.Ref])
		p.forget(s.Ref)
		p.cameBack(s.Ref, cells.WordDenied)
	case cells.Lose:
		m.lose(s.Ref, cmpOr(p.details[s.Ref], "nothing was heard of it for too long"))
		p.forget(s.Ref)
		p.cameBack(s.Ref, cells.WordLost)
	case cells.AskBack, cells.Withdraw:
		p.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Cancel{Cancel: &cellsv1.Cancel{
			JobId: string(s.Ref.ID), Attempt: int32(s.Ref.Attempt), TakeBack: s.Do == cells.AskBack, Reason: "its cell wants it no more",
		}}})
		if s.Do == cells.Withdraw {
			p.forget(s.Ref)
		}
	case cells.Confirm:
		p.say(&cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Ack{Ack: &cellsv1.Ack{JobId: string(s.Ref.ID), Attempt: int32(s.Ref.Attempt)}}})
		p.forget(s.Ref)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (p *peer) steps(list []cells.Step) {
	for _, s := range list {
		p.step(s)
	}
}

func (p *peer) cameBack(ref cells.Ref, word cells.Word) {
	tell(p.origin.opt.Events.CameBack, CameBack{Peer: p.opt.Peer, Ref: ref, Word: word, Detail: p.details[ref]})
	delete(p.details, ref)
}

// show notes the state of the link for people.
func (p *peer) show(state string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &p.mu.view
	detail := ""
	if err != nil {
		detail = err.Error()
	}
	if v.State != state {
		v.Since = time.Now()
	}
	v.State, v.Detail = state, detail
	if state == StateOtherReplica {
		v.Pools, v.HandedOver = nil, 0
	}
}

// refresh notes for people what is offered and handed over.
func (p *peer) refresh() {
	e := PeerOffered{Peer: p.opt.Peer, Jobs: p.book.Jobs("")}
	var pools []PoolView
	for name, m := range p.machines {
		v := PoolView{Pool: m.pool, HandedOver: p.book.Jobs(name)}
		if p.book.Linked() {
			v.Offer = p.book.Offer(name)
		}
		e.Free, e.Growth = e.Free+v.Offer.Free, e.Growth+v.Offer.Growth
		pools = append(pools, v)
	}
	tell(p.origin.opt.Events.PeerOffered, e)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.view.Pools, p.mu.view.HandedOver = pools, e.Jobs
}

func (p *peer) view() PeerView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.view
}
