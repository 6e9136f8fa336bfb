package asgstub

import (
	"container/heap"
	"time"
)

// timer is something that will happen. A timer about an instance is void once the
// instance has moved on to another state.
type timer struct {
	at  time.Time
	seq uint64 // equal times happen in the order in which they were planned
	in  *instance
	gen int
	do  func()
}

func (t *timer) void() bool { return t.in != nil && t.in.gen != t.gen }

// timerHeap is a heap of what will happen, the next first.
type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any) {
	if t, ok := x.(*timer); ok {
		*h = append(*h, t)
	}
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}

// after plans do for d from now, whatever happens in between.
func (c *Cloud) after(d time.Duration, do func()) { c.plan(&timer{at: c.mu.now.Add(d), do: do}) }

// afterIn plans do for d from now, unless in moves on to another state.
func (c *Cloud) afterIn(in *instance, d time.Duration, do func()) {
	c.plan(&timer{at: c.mu.now.Add(d), in: in, gen: in.gen, do: do})
}

func (c *Cloud) plan(t *timer) {
	c.mu.timerSeq++
	t.seq = c.mu.timerSeq
	heap.Push(&c.mu.timers, t)
	if c.mu.timers[0] == t {
		c.signal() // Run sleeps until something later
	}
}

// advance lets happen what is due at now.
func (c *Cloud) advance(now time.Time) {
	for {
		at, ok := c.nextTimer()
		if !ok || at.After(now) {
			break
		}
		t, _ := heap.Pop(&c.mu.timers).(*timer)
		if t.at.After(c.mu.now) {
			c.mu.now = t.at
		}
		t.do()
	}
	if now.After(c.mu.now) {
		c.mu.now = now
	}
}

// nextTimer is when the next thing happens; void timers are thrown away.
func (c *Cloud) nextTimer() (at time.Time, ok bool) {
	for len(c.mu.timers) > 0 && c.mu.timers[0].void() {
		heap.Pop(&c.mu.timers)
	}
	if len(c.mu.timers) == 0 {
		return time.Time{}, false
	}
	return c.mu.timers[0].at, true
}
