package router

import (
	"cmp"
	"container/heap"

	"github.com/spillway-ci/spillway"
)

// pool is one pool with the machines of it that have a free place.
type pool struct {
	spillway.Pool

	index  int      // among the engine's pools
	open   freelist // the machines that can be given a job now
	places int      // what they have free together [jobs]

	labelled int // open machines that say where they are
	due      int // jobs claimed for it that are still to be dealt out

	ahead, young uint64 // the last plans that looked at what it has ahead, and who is too young for it
}

// best is the machine that gets the next job of a class, nil if none can.
func (p *pool) best(class spillway.JobClass) *machine {
	if len(p.open) > 0 && !p.open[0].refuses(class) {
		return p.open[0]
	}
	var best *machine
	for _, m := range p.open { // rare: the best one has just refused this class
		if !m.refuses(class) && (best == nil || m.goesBefore(best)) {
			best = m
		}
	}
	return best
}

// update makes the list agree with m's free places.
func (p *pool) update(m *machine, places int) {
	p.places += places - m.places
	m.places = places
	if labelled := places > 0 && m.labelled(); labelled != m.counted {
		m.counted = labelled
		if labelled {
			p.labelled++
		} else {
			p.labelled--
		}
	}
	switch listed := m.rank != unlisted; {
	case places > 0 && listed:
		heap.Fix(&p.open, m.rank)
	case places > 0:
		heap.Push(&p.open, m)
	case listed:
		heap.Remove(&p.open, m.rank)
	}
}

// unlisted is the rank of a machine in no freelist.
const unlisted = -1

// goesBefore is the order in which the machines of a pool are given jobs: the
// most recently used first, so that the others can idle out.
func (m *machine) goesBefore(o *machine) bool {
	return cmp.Or(o.LastUsedAt.Compare(m.LastUsedAt), cmp.Compare(m.ID, o.ID)) < 0
}

// freelist is a heap of machines by goesBefore. Each knows its rank in it.
type freelist []*machine

func (l freelist) Len() int           { return len(l) }
func (l freelist) Less(i, j int) bool { return l[i].goesBefore(l[j]) }

func (l freelist) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].rank, l[j].rank = i, j
}

// Push is for container/heap.
func (l *freelist) Push(x any) {
	m, _ := x.(*machine)
	m.rank = len(*l)
	*l = append(*l, m)
}

// Pop is for container/heap.
func (l *freelist) Pop() any {
	last := len(*l) - 1
	m := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	m.rank = unlisted
	return m
}
