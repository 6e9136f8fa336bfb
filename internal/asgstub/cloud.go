package asgstub

import (
	"cmp"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// MaxGroups bounds the groups of one Cloud [groups].
const MaxGroups = 10_000

// Cloud is the stand-in. It is safe for concurrent use.
type Cloud struct {
	// Busy says whether an instance has jobs; nil = none has. Only Victim BusyFirst
	// asks. It is called in the middle of things: it must not call the Cloud.
	Busy func(id string) bool
	// Observe is told each change, in order, before the call that caused it returns
	// (where several goroutines call at once, one of them tells for all). It may call
	// the Cloud. Both hooks are set before the first call.
	Observe func(Change)

	opts Options

	mu struct {
		sync.Mutex
		now       time.Time // of the call under way; never goes backwards
		start     time.Time // of the first call
		timers    timerHeap
		timerSeq  uint64
		rng       *rand.Rand // for what is about no group
		groups    map[string]*group
		order     []*group // by name
		instances map[string]*instance
		calls     callLog
		bucket    bucket
		requestNo uint64
		queues    map[string]*queue
		metrics   map[string]*metric
		faults    *faultState // of Options.Faults
		changes   []Change    // not told yet
		telling   bool
		wake      chan struct{} // closed when something new can be seen by who waits
	}
}

// New makes a stand-in without groups. Faults that are not valid panic: see
// [Faults.Validate].
func New(opts Options) *Cloud {
	must(opts.Faults.Validate())
	opts.AccountID = cmp.Or(opts.AccountID, DefaultAccountID)
	c := &Cloud{opts: opts}
	m := &c.mu
	m.groups = make(map[string]*group)
	m.instances = make(map[string]*instance)
	m.queues = make(map[string]*queue)
	m.metrics = make(map[string]*metric)
	m.rng = newRand(opts.Seed, "")
	m.bucket.limit = opts.Rate
	m.wake = make(chan struct{})
	m.now = c.clock()
	m.start = m.now
	m.calls.counts = make(map[string]int)
	m.faults = newFaultState(opts.Faults, m.start)
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newRand is the randomness of one group, so that one group's story does not
// change with what happens to another.
func newRand(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // repeatable, not secret
}

func (c *Cloud) clock() time.Time {
	if c.opts.Now != nil {
		return c.opts.Now()
	}
	return time.Now()
}

// region is where the stand-in says that it is.
func (c *Cloud) region() string { return cmp.Or(c.opts.Region, DefaultRegion) }

// do runs f with the lock, at the clock's time: what is due happens before f, and
// what f makes due at once happens after it. Then the observer is told.
func (c *Cloud) do(f func()) { c.doAt(c.clock(), f) }

func (c *Cloud) doAt(now time.Time, f func()) {
	c.locked(func() {
		c.advance(now)
		f()
		c.advance(now)
	})
	c.tellAll()
}

func (c *Cloud) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// tell remembers a change for the observer.
func (c *Cloud) tell(ch Change) {
	ch.At = c.mu.now
	c.mu.changes = append(c.mu.changes, ch)
}

// tellAll tells what has not been told, unless somebody is at it already: who
// calls from within the observer, or from another goroutine, leaves it to them.
func (c *Cloud) tellAll() {
	for {
		var told []Change
		c.locked(func() {
			if c.mu.telling || len(c.mu.changes) == 0 {
				return
			}
			c.mu.telling = true
			told, c.mu.changes = c.mu.changes, nil
		})
		if told == nil {
			return
		}
		if c.Observe != nil {
			for _, ch := range told {
				c.Observe(ch)
			}
		}
		c.locked(func() { c.mu.telling = false })
	}
}

// Advance lets everything happen that is due at now, in the order of time. Time
// never goes backwards: an earlier now does nothing.
func (c *Cloud) Advance(now time.Time) { c.doAt(now, func() {}) }

// NextEvent is when something will happen next without a call; ok is false if
// nothing will.
func (c *Cloud) NextEvent(now time.Time) (at time.Time, ok bool) {
	c.doAt(now, func() { at, ok = c.nextTimer() })
	return at, ok
}

// Run lets things happen at their time on the wall clock, until ctx ends. Without
// it they happen, late, when the next call comes.
func (c *Cloud) Run(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		var wake chan struct{}
		at, ok := c.NextEvent(now)
		c.locked(func() { wake = c.mu.wake })
		wait := idleWait
		if ok {
			wait = min(wait, max(at.Sub(now), 0))
		}
		waitFor(ctx, wake, wait)
	}
}

// idleWait is how long Run sleeps at most: a call may have made something due
// earlier than was known when it fell asleep.
const idleWait = 100 * time.Millisecond

// signal wakes whoever waits for something new.
func (c *Cloud) signal() {
	close(c.mu.wake)
	c.mu.wake = make(chan struct{})
}

// insertGroup adds g, in the order of the names.
func (c *Cloud) insertGroup(g *group) {
	c.mu.groups[g.name] = g
	at, _ := slices.BinarySearchFunc(c.mu.order, g.name, byName)
	c.mu.order = slices.Insert(c.mu.order, at, g)
}

func (c *Cloud) removeGroup(g *group) {
	delete(c.mu.groups, g.name)
	if at, found := slices.BinarySearchFunc(c.mu.order, g.name, byName); found {
		c.mu.order = slices.Delete(c.mu.order, at, at+1)
	}
}

func byName(g *group, name string) int { return cmp.Compare(g.name, name) }
