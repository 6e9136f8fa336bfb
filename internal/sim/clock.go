package sim

import (
	"container/heap"
	"time"
)

// epoch is when every story begins. Any fixed time would do.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// event is something that will happen.
type event struct {
	at  time.Time
	seq uint64 // events of one moment happen in the order in which they were planned
	do  func()
}

// agenda is the events to come, the next one first.
type agenda struct {
	events eventHeap
	seq    uint64
}

func (a *agenda) plan(at time.Time, do func()) {
	a.seq++
	heap.Push(&a.events, event{at: at, seq: a.seq, do: do})
}

// next is when the next event is.
func (a *agenda) next() (at time.Time, ok bool) {
	if len(a.events) == 0 {
		return time.Time{}, false
	}
	return a.events[0].at, true
}

// take removes the next event, if it is due at now.
func (a *agenda) take(now time.Time) (event, bool) {
	if len(a.events) == 0 || a.events[0].at.After(now) {
		return event{}, false
	}
	e, ok := heap.Pop(&a.events).(event)
	return e, ok
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
