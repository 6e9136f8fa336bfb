package sim

import (
	"time"

	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/internal/scenario"
)

// keepLink begins a link when there is none, and ends one that is silent.
func (o *outCell) keepLink() {
	w, l := o.world, o.link
	switch {
	case l == nil && !w.now.Before(o.dialAt):
		o.dial()
	case l != nil && w.now.Sub(l.heardAt) > max(w.timing().Lease, 2*time.Second):
		o.unlink()
	}
}

// dial links to one of the peer's replicas, whichever it comes to.
func (o *outCell) dial() {
	w := o.world
	to := o.reach()
	if to == nil {
		o.redial()
		return
	}
	l := &cellLink{out: o, in: to.inCells, inLife: to.life, outLife: o.replica.life, heardAt: w.now}
	o.link = l
	epoch, timing := o.lease.Epoch, w.timing()
	l.say(func() { l.in.greet(l, w, epoch, timing.Lease) })
}

func (o *outCell) reach() *replica {
	w, peer := o.world, o.world.cellNamed(o.terms.Peer)
	if w.ways.to(o.terms.Peer, w.now) == scenario.LinkCut {
		return nil
	}
	var there []*replica
	for _, r := range peer.replicas {
		if !r.dead {
			there = append(there, r)
		}
	}
	if len(there) == 0 {
		return nil
	}
	o.dials++
	return there[o.dials%len(there)]
}

func (o *outCell) redial() {
	o.dialAt = o.world.now.Add(o.dialWait)
	o.dialWait = min(2*o.dialWait, redialMost)
}

func (o *outCell) unlink() {
	if o.link != nil {
		o.link.end()
	}
}

func (o *outCell) linkEnded(l *cellLink) {
	if o.link != l {
		return
	}
	o.link = nil
	if o.leads {
		o.book.Unlink()
	}
	if l.welcome {
		o.dialWait = redialFirst
	}
	o.redial()
	for _, m := range o.machines {
		m.changed = true
	}
}

// hears takes in something that the peer says over the present link.
func (o *outCell) hears(l *cellLink, what func()) {
	if o.link == l && o.leads {
		l.heardAt = o.world.now
		what()
	}
}

func (o *outCell) welcomed(l *cellLink, endWithin time.Duration) {
	l.welcome = true
	o.book.Link(endWithin)
}

func (o *outCell) offered(list []cells.Offer) {
	o.book.SetOffers(list)
	o.syncPools()
}
