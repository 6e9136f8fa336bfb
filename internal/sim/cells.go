package sim

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/internal/scenario"
)

// The numbers of cells' shell, as serve has them.
const (
	// cellTick is how often it is looked what time has done. Serve looks more often; the
	// margins of package cells are for five times as long.
	cellTick = time.Second
	// linkDelay is what a message between cells takes.
	linkDelay = 20 * time.Millisecond
	// streamPing is when a machine notices that its replica stands still.
	streamPing = 40 * time.Second
	// stopTakes is how long a machine takes to end a job.
	stopTakes = 5 * time.Second
)

// addCells makes the other cells, each a world of its own that shares the agenda.
func (w *world) addCells(ctx context.Context, o Options) error {
	w.all = []*world{w}
	for _, name := range slices.Sorted(maps.Keys(w.story.Cells)) {
		story := *w.story.Cells[name]
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // a hash never fails
		story.Seed ^= h.Sum64()
		other, err := newWorldIn(ctx, &story, o, w)
		if err != nil {
			return err
		}
		w.all = append(w.all, other)
	}
	return nil
}

// cell is the name of this world among several; empty: it is alone.
func (w *world) cell() string {
	if w.config.Cells == nil {
		return ""
	}
	return w.config.Cells.Name
}

// cellNamed finds another world.
func (w *world) cellNamed(name string) *world {
	for _, o := range w.whole.all {
		if o.cell() == name {
			return o
		}
	}
	return nil
}

// timing is what handed-over jobs go by here.
func (w *world) timing() cells.Timing { return w.config.Cells.Timing().WithDefaults() }

// away is where a handed-over job comes from.
type away struct {
	origin *world
	ref    cells.Ref
}

// linkFaults is what is wrong with the ways to peers, and with what is offered.
type linkFaults struct {
	links  map[string]fault[scenario.LinkFault]
	offers fault[scenario.OffersFault]
	free   int           // with OffersLie
	stale  []cells.Offer // with OffersStale
}

func (f *linkFaults) to(peer string, now time.Time) scenario.LinkFault {
	l := f.links[peer]
	return l.at(now)
}

// breakLink is a fault of the way to a peer.
func (w *world) breakLink(a scenario.Link) {
	until := w.now.Add(a.For)
	w.faults.lasts(until)
	w.cellNamed(a.To).faults.lasts(until)
	if w.ways.links == nil {
		w.ways.links = make(map[string]fault[scenario.LinkFault])
	}
	w.ways.links[a.To] = fault[scenario.LinkFault]{a.Fault, until}
	if a.Fault != scenario.LinkCut {
		return
	}
	for _, r := range w.replicas {
		for _, out := range r.outCells {
			if out.terms.Peer == a.To && out.link != nil {
				out.link.end()
			}
		}
	}
}

// breakOffers has a cell say something else than what it has.
func (w *world) breakOffers(a scenario.Offers) {
	w.ways.stale, w.ways.free = w.offersNow(), a.Free
	w.ways.offers = fault[scenario.OffersFault]{a.Fault, w.now.Add(a.For)}
	w.faults.lasts(w.now.Add(a.For))
}

// cellLink is one link of a replica to one of a peer.
type cellLink struct {
	out      *outCell
	in       *inCells
	inLife   int
	outLife  int
	over     bool
	welcome  bool
	heardAt  time.Time // by the origin
	toPeer   pipe
	toOrigin pipe
}

// pipe is one direction of a link: what is said comes in order.
type pipe struct {
	queue []func()
	busy  bool
}

// say sends to the peer.
func (l *cellLink) say(what func()) { l.send(&l.toPeer, l.in.replica, what) }

// answer sends to the origin.
func (l *cellLink) answer(what func()) { l.send(&l.toOrigin, l.out.replica, what) }

func (l *cellLink) send(p *pipe, to *replica, what func()) {
	if l.over {
		return
	}
	p.queue = append(p.queue, what)
	if !p.busy {
		p.busy = true
		l.out.world.after(linkDelay, func() { l.pump(p, to) })
	}
}

// pump hands on what was sent, once it comes through and its reader reads.
func (l *cellLink) pump(p *pipe, to *replica) {
	w := l.out.world
	stalled := w.ways.to(l.out.terms.Peer, w.now) == scenario.LinkStalled
	switch {
	case l.over:
		return
	case to.paused || stalled:
		w.after(linkDelay*10, func() { l.pump(p, to) })
		return
	}
	queue := p.queue
	p.queue, p.busy = nil, false
	for _, what := range queue {
		if !l.over {
			what()
		}
	}
}

// end ends the link: each side hears of it as soon as it can.
func (l *cellLink) end() {
	if l.over {
		return
	}
	l.over = true
	if l.out.replica.life == l.outLife {
		l.out.replica.heard(func() { l.out.linkEnded(l) })
	}
	if l.in.replica.life == l.inLife {
		l.in.replica.heard(func() { l.in.linkEnded(l) })
	}
}

// handedOver reports whether a job is another cell's.
func handedOver(job *spillway.Job) bool { return job.Requirement.Origin == spillway.CellOrigin }
