package migstub

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// DefaultProject is the project where nobody names one.
const DefaultProject = "p"

// Options is what a Cloud is made of besides its groups.
type Options struct {
	// Now says what time it is; it never goes backwards. nil is the wall clock, and
	// only then calls that wait or hang do so.
	Now     func() time.Time
	Seed    uint64 // equal seeds and calls give equal answers
	Project string // "" is DefaultProject
	Faults  Faults // of calls; those of instances are each group's
	Rate    RateLimit
}

// Cloud is one project. It is safe for concurrent use.
type Cloud struct {
	// Busy says whether the instance with this id has jobs; only the victim busy_first
	// asks, and it must not call the Cloud. nil = none has. Set it before the first call.
	Busy func(id string) bool
	// Observe is told every change, in order, by one goroutine at a time, before the
	// method that caused it returns (or, if it was caused from inside Observe, right
	// after). It may call the Cloud. nil = nobody is told. Set it before the first call.
	Observe func(Change)

	project string
	virtual bool
	now     func() time.Time
	faults  Faults
	rate    RateLimit
	changed chan struct{} // 1-slot: what is next may be another now

	mu sync.Mutex // guards everything below
	state
}

// state is what a Cloud is at the moment.
type state struct {
	start      time.Time
	rng        *rand.Rand
	groups     []*group // by addition
	loose      []*machine
	operations operations
	calls      callLog
	window     rateWindow
	planned    []*plannedFault
	due        moment
	untold     []Change
	telling    bool
	lastID     uint64
}

// moment is when something happens next, as far as it has been worked out.
type moment struct {
	known bool
	some  bool // false: nothing happens
	at    time.Time
}

// New makes a project without groups. It panics if the faults are not valid: that
// is a mistake in a program; those in files are named by ReadFaults.
func New(o Options) *Cloud {
	if err := errors.Join(o.Faults.mistakes()...); err != nil {
		panic("migstub: " + err.Error())
	}
	c := &Cloud{
		project: o.Project,
		virtual: o.Now != nil,
		now:     o.Now,
		faults:  o.Faults,
		rate:    o.Rate,
		changed: make(chan struct{}, 1),
	}
	if c.project == "" {
		c.project = DefaultProject
	}
	if c.now == nil {
		c.now = time.Now
	}
	c.state = state{
		start:      c.now(),
		rng:        rand.New(rand.NewPCG(o.Seed, 0x6d6967)), //nolint:gosec // repeatable, not secret
		operations: newOperations(),
		calls:      newCallLog(),
		planned:    plan(o.Faults.Calls),
		lastID:     1_000_000_000_000_000_000,
	}
	return c
}

// do runs f with everything done that is due, and tells what changed.
func (c *Cloud) do(f func(now time.Time)) {
	c.mu.Lock()
	defer c.unlock()
	now := c.now()
	c.advance(now)
	f(now)
}

// change is do for what may change what happens next.
func (c *Cloud) change(f func(now time.Time)) {
	c.do(func(now time.Time) {
		c.due.known = false
		f(now)
		c.advance(now) // what takes no time is done
	})
	c.poke()
}

func (c *Cloud) poke() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// unlock unlocks mu and tells what is untold. Whoever tells goes on until nothing
// is left, so that the changes arrive in order.
func (c *Cloud) unlock() {
	defer c.mu.Unlock()
	if c.telling {
		return
	}
	c.telling = true
	defer func() { c.telling = false }()
	for len(c.untold) > 0 {
		list := c.untold
		c.untold = nil
		if c.Observe == nil {
			continue
		}
		c.mu.Unlock()
		for _, ch := range list {
			c.Observe(ch)
		}
		c.mu.Lock()
	}
}

// Advance lets everything happen that is due at now, in the order of time.
func (c *Cloud) Advance(now time.Time) {
	c.mu.Lock()
	c.advance(now)
	c.unlock()
}

// NextEvent is when something will happen next without a call; ok is false if
// nothing will.
func (c *Cloud) NextEvent(now time.Time) (at time.Time, ok bool) {
	c.mu.Lock()
	c.advance(now)
	at, ok = c.next()
	c.unlock()
	return at, ok
}

// Run lets things happen when they are due on the wall clock, until ctx is over,
// for those who want to be told at once.
func (c *Cloud) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(idle)
		if at, ok := c.NextEvent(c.now()); ok {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-c.changed:
			timer.Stop()
		}
	}
}

// idle is how long Run waits where nothing is planned; a change wakes it.
const idle = time.Hour

// newID is the next id of a resource; ids are unsigned 64 bit numbers.
func (c *Cloud) newID() uint64 {
	c.lastID += 10 + c.rng.Uint64N(1_000_000)
	return c.lastID
}

// chance draws only where there is something to draw, so that a certain fault
// does not change the rest of the run.
func (c *Cloud) chance(ratio float64) bool {
	return ratio >= 1 || (ratio > 0 && c.rng.Float64() < ratio)
}

func (c *Cloud) tell(ch Change) { c.untold = append(c.untold, ch) }
