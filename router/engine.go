package router

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// Options are the engine's numbers. A zero means the default.
type Options struct {
	// AcceptTimeout is how long a machine has to accept a job: 30s, as
	// [Timeouts.Assigned].
	AcceptTimeout time.Duration
	// RefusalPause is how long a machine that refused a job isn't offered another of
	// its class: 1s. Shorter and a job circles between queue and machine at the
	// network's speed; longer and one mishap keeps a machine idle.
	RefusalPause time.Duration
	// SilentAfter is [spillway.SilentAfter].
	SilentAfter time.Duration
	// Weights are how much each criterion counts in the choice of a machine; nil means
	// DefaultWeights.
	Weights *Weights
}

// DefaultRefusalPause is the default of Options.RefusalPause.
const DefaultRefusalPause = time.Second

func (o Options) withDefaults() Options {
	o.AcceptTimeout = cmp.Or(o.AcceptTimeout, DefaultTimeouts().Assigned)
	o.RefusalPause = cmp.Or(o.RefusalPause, DefaultRefusalPause)
	o.SilentAfter = cmp.Or(o.SilentAfter, spillway.SilentAfter)
	if o.Weights == nil {
		w := DefaultWeights()
		o.Weights = &w
	}
	return o
}

// Engine keeps the machines of one replica and decides which of them gets which
// job. It is a state machine with one owner: facts go in by its methods, and what
// is to be done comes out as values. It holds no clock: every method is told the
// time, and a time before one already seen counts as that one.
//
// A job's way through it:
//
//	SetCounts, AddPending → Plan → (the shell claims) → Claimed → (the shell sends)
//	→ Accepted → Started → Finished, or Refused, or Expire, or Forget
//
// The engine never releases a job itself: it hands back the refs, and the store's
// attempt number decides. Each event costs O(log machines of the pool); a Plan
// costs what demand.Attribute costs over the classes that wait and the pools that
// have a place, and nothing when nothing has changed.
type Engine struct {
	opt Options
	now time.Time

	pools    []*pool       // by name
	index    *demand.Index // of pools' capabilities
	poolOf   map[string]*pool
	machines map[spillway.MachineID]*machine
	holds    map[spillway.JobID]*hold
	classes  map[spillway.JobClass]*class
	reserved map[string]int            // by pool: places wanted by claims that are under way
	held     map[spillway.JobClass]int // jobs on our own book
	kinds    map[string]*kind          // of classes, by their takers
	projects map[int64]*project        // of the classes
	plans    uint64                    // numbers what is remembered for one plan only

	barred []*barList // what pools bar

	remote   remote
	room     map[string]Room // by pool
	spills   bool            // some pool is waited for
	ripensAt time.Time       // see RipensAt
	tastes   tastes

	heard    fifo[*machine] // connected and not silent, the longest unheard first
	waiting  fifo[*hold]    // assigned and not accepted
	refusals fifo[*refusal]

	dirty bool // something may be planned that could not be before
}

// NewEngine returns an engine without machines and without jobs.
func NewEngine(pools []spillway.Pool, opt Options) *Engine {
	e := &Engine{
		opt:      opt.withDefaults(),
		poolOf:   make(map[string]*pool),
		machines: make(map[spillway.MachineID]*machine),
		holds:    make(map[spillway.JobID]*hold),
		classes:  make(map[spillway.JobClass]*class),
		reserved: make(map[string]int),
		held:     make(map[spillway.JobClass]int),
		projects: make(map[int64]*project),
		tastes:   newTastes(),
	}
	e.SetPools(pools)
	return e
}

// SetPools replaces the pools. Machines of a pool that is gone keep their jobs
// and get no new ones, until a pool of that name is back.
func (e *Engine) SetPools(pools []spillway.Pool) {
	e.pools, e.poolOf = make([]*pool, 0, len(pools)), make(map[string]*pool, len(pools))
	e.kinds, e.spills = make(map[string]*kind), false
	for i := range pools {
		p := &pool{Pool: pools[i]}
		p.Capability = p.Capability.Normalize()
		e.pools = append(e.pools, p)
		e.poolOf[p.Name] = p
		e.spills = e.spills || p.SpillAfter > 0 || p.LeastWait > 0
	}
	slices.SortFunc(e.pools, func(a, b *pool) int { return strings.Compare(a.Name, b.Name) })
	for i, p := range e.pools {
		p.index = i
	}
	e.index = demand.NewIndex(len(e.pools), func(i int) *spillway.Capability { return &e.pools[i].Capability })
	for _, m := range e.machines {
		m.rank, m.places, m.counted = unlisted, 0, false
		e.seat(m)
	}
	for _, c := range e.classes {
		e.match(c)
	}
}

// seat puts m, which is in no freelist, into the pool whose name it bears.
func (e *Engine) seat(m *machine) {
	m.pool = e.poolOf[m.Pool]
	m.bound()
	e.refresh(m)
}

// refresh makes m's pool agree with m. It follows every change of a machine.
func (e *Engine) refresh(m *machine) {
	if m.pool == nil {
		return
	}
	places := 0
	if m.takesJobs() {
		places = max(0, min(m.Capacity-m.occupied(), m.usesLeft()))
	}
	if places > m.places {
		e.dirty = true
	}
	m.pool.update(m, places)
}

// advance moves the clock and lets happen what the passing of time makes happen.
func (e *Engine) advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
	}
	for m := range e.heard.all() {
		if e.now.Before(m.HeardAt.Add(e.opt.SilentAfter)) {
			break
		}
		e.heard.remove(&m.heard)
		m.silent = true
		e.refresh(m)
	}
	for r := range e.refusals.all() {
		if e.now.Before(r.until) {
			break
		}
		e.forgive(r)
	}
	if !e.ripensAt.IsZero() && !e.now.Before(e.ripensAt) {
		e.ripensAt, e.dirty = time.Time{}, true
	}
}

// NextDeadline returns when a call of Plan or Expire may have something to do
// though no event came in between; ok is false when there is no such time.
func (e *Engine) NextDeadline() (at time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if l := e.heard.first; l != nil {
		earliest(l.value.HeardAt.Add(e.opt.SilentAfter))
	}
	if l := e.refusals.first; l != nil {
		earliest(l.value.until)
	}
	if l := e.waiting.first; l != nil {
		earliest(l.value.due)
	}
	if !e.ripensAt.IsZero() {
		earliest(e.ripensAt)
	}
	return at, ok
}
