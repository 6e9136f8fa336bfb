package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

// Dispatcher runs router.Engine against the queue. Run's goroutine owns the
// engine and every field below the blank line; others reach it through put, poke
// and the answers of calls that it made itself (see beside).
type Dispatcher struct {
	opt     Options
	store   Store
	inbox   chan event
	answers chan func(now time.Time)
	pokes   chan struct{}
	done    chan struct{} // closed when Run has returned
	calls   sync.WaitGroup
	// fingerprints is what Fingerprint answers from, by pool; never changed, only
	// replaced.
	fingerprints atomic.Pointer[map[string]string]

	ctx     context.Context // of Run
	engine  *router.Engine
	streams map[spillway.MachineID]*stream
	jobs    map[spillway.JobID]*heldJob
	pools   map[string]poolFace

	faces     faceIndex // of pools
	poolNames []string  // in the order in which they are tried for an explanation

	claims   claims
	cancels  cancels
	late     lateResults
	drains   drains
	remote   remotePlaces
	outcomes outcomes
	records  records
	counts   counts
	signals  signals
	upkeep   upkeep
	still    standstill
	tunnels  tunnels                    // has a lock of its own
	admitted map[spillway.JobClass]bool // whether a class's jobs need nobody's approval
}

// heldJob is what is remembered of a job while a machine of this replica has it,
// beside the engine's own book.
type heldJob struct {
	ref         router.JobRef
	submittedAt time.Time
	assignedAt  time.Time
	limit       time.Duration // how long it may run, the grace included
	started     bool          // Running is written, or about to be
	startedAt   time.Time
	handedOver  bool // by another cell
}

// poolFace is a pool as its runners are told of it.
type poolFace struct {
	fingerprint     spillway.Fingerprint
	fingerprintText string
	capability      spillway.Capability
	priority        int
	maxUses         int // jobs; 0 = no limit
}

// event is something that a stream or the JobService has to say.
type event struct {
	kind    eventKind
	stream  *stream
	message *runnerv1.RunnerMessage
	err     error               // with streamClosed
	pushed  []router.ClassCount // with jobsPushed
	ended   []spillway.JobID    // with jobsCanceled
	pools   []spillway.Pool     // with poolsChanged

	machines []spillway.MachineID // with machinesEnded
	call     func(now time.Time)  // with called
}

type eventKind int

const (
	streamOpened eventKind = iota + 1
	streamSaid
	streamClosed
	jobsPushed
	jobsCanceled
	poolsChanged
	machinesEnded
	called
)

// NewDispatcher returns a dispatcher over the store. Nothing happens before Run.
func NewDispatcher(store Store, opt Options) (*Dispatcher, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	d := &Dispatcher{
		opt:     opt.withDefaults(),
		store:   store,
		inbox:   make(chan event, inboxEvents),
		answers: make(chan func(time.Time), 1),
		pokes:   make(chan struct{}, 1),
		done:    make(chan struct{}),
		streams: make(map[spillway.MachineID]*stream),
		jobs:    make(map[spillway.JobID]*heldJob),
	}
	d.engine = router.NewEngine(opt.Pools, router.Options{
		AcceptTimeout: d.opt.Timeouts.Assigned,
		SilentAfter:   d.opt.SilentAfter,
		Weights:       d.opt.Weights,
	})
	d.facePools(opt.Pools)
	d.outcomes.init()
	d.records.init()
	d.drains.init()
	d.upkeep.gone = make(map[spillway.MachineID]time.Time)
	d.upkeep.ended = make(map[spillway.MachineID]time.Time)
	d.cancels.at = make(map[spillway.JobID]time.Time)
	d.signals.init()
	return d, nil
}

// SetPools replaces the configured pools, for a reload of the config.
func (d *Dispatcher) SetPools(pools []spillway.Pool) {
	d.put(context.Background(), event{kind: poolsChanged, pools: pools})
}

// Poke says that the queue may have changed, at once and without waiting.
func (d *Dispatcher) Poke() {
	select {
	case d.pokes <- struct{}{}:
	default:
	}
}

// Fingerprint returns the fingerprint of a pool, empty if there is no such pool. It
// may be called from any goroutine.
func (d *Dispatcher) Fingerprint(pool string) string { return (*d.fingerprints.Load())[pool] }

// put hands e to the dispatcher. It waits while the inbox is full, which holds
// the stream up that talks too much; false when ctx ended first or the dispatcher
// has.
func (d *Dispatcher) put(ctx context.Context, e event) bool {
	select {
	case d.inbox <- e: // nearly always, and far cheaper than to wait for three things
		return true
	default:
	}
	select {
	case d.inbox <- e:
		return true
	case <-ctx.Done():
		return false
	case <-d.done:
		return false
	}
}

// beside makes a call that may take long without holding the dispatcher up. What
// f returns is run on the dispatcher's goroutine; nil for nothing.
func (d *Dispatcher) beside(f func(ctx context.Context) func(now time.Time)) {
	ctx := d.ctx
	d.calls.Go(func() {
		answer := f(ctx)
		if answer == nil {
			return
		}
		select {
		case d.answers <- answer:
		case <-ctx.Done():
		}
	})
}

// follow runs note on the dispatcher's goroutine whenever the subscription fires.
func (d *Dispatcher) follow(op string, subscribe func(context.Context) (<-chan struct{}, error), note func(time.Time)) {
	d.beside(func(ctx context.Context) func(time.Time) {
		for ctx.Err() == nil {
			fired, err := subscribe(ctx)
			if err != nil {
				d.trouble(op, err)
			}
			for err == nil && ctx.Err() == nil {
				if _, open := <-fired; !open {
					break
				}
				select {
				case d.answers <- note:
				case <-ctx.Done():
				}
			}
			select {
			case <-time.After(retryMost):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// Run dispatches until ctx ends. Then every stream is ended with Unavailable, so
// that the runners go on with another replica and take their jobs with them;
// results that could not be written yet are repeated there by the runners.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.ctx = ctx
	defer d.shutDown()
	d.follow("subscribe to pokes", d.store.Pokes, func(time.Time) { d.counts.due = true })
	d.followCancels()
	d.follow("subscribe to drain orders", d.store.DrainPokes, func(time.Time) { d.drains.due = true })
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-d.inbox:
			d.handle(time.Now(), e)
		case answer := <-d.answers:
			answer(time.Now())
		case <-d.pokes:
			d.counts.due = true
		case <-alarm.C:
		}
		d.listen()
		alarm.Reset(d.act(time.Now()))
	}
}

// listen takes in what waits, so that all of it is decided on at once.
func (d *Dispatcher) listen() {
	now := time.Now()
	for range turnEvents {
		select {
		case e := <-d.inbox:
			d.handle(now, e)
		case answer := <-d.answers:
			answer(now)
		default:
			return
		}
	}
}

// act does what is due and returns how long nothing else will be.
func (d *Dispatcher) act(now time.Time) time.Duration {
	hearing := d.still.rest(now)
	if hearing == 0 {
		d.sweep(now)
	}
	next := d.plan(now)
	if hearing > 0 {
		next = hearing // what is due by then is due for long
	} else {
		next = min(next, d.keepClaims(now))
	}
	for _, rest := range []time.Duration{
		d.writeOutcomes(now), d.countQueue(now), d.writeRecords(now), d.flushAcks(now), d.followRemote(now),
	} {
		next = min(next, rest)
	}
	next = max(next, 0)
	d.still.due = now.Add(next)
	return next
}

// handle takes one event in.
func (d *Dispatcher) handle(now time.Time, e event) {
	switch e.kind {
	case streamOpened:
		d.opened(now, e.stream)
	case streamSaid:
		d.said(now, e.stream, e.message)
	case streamClosed:
		d.closed(now, e.stream, e.err)
	case jobsPushed:
		for i := range e.pushed {
			d.pushedHere(e.pushed[i])
		}
	case jobsCanceled:
		d.canceled(now, e.ended)
	case poolsChanged:
		d.engine.SetPools(e.pools)
		d.facePools(e.pools)
	case machinesEnded:
		d.ended(now, e.machines)
	case called:
		e.call(now)
	}
}

func (d *Dispatcher) facePools(pools []spillway.Pool) {
	d.pools = make(map[string]poolFace, len(pools))
	for i := range pools {
		fp := pools[i].Capability.Fingerprint()
		d.pools[pools[i].Name] = poolFace{
			fp, fp.String(), pools[i].Capability.Normalize(), pools[i].Priority, pools[i].MaxUses,
		}
	}
	texts := make(map[string]string, len(pools))
	for name, face := range d.pools {
		texts[name] = face.fingerprintText
	}
	d.fingerprints.Store(&texts)
	d.countAges()
	d.poolNames = slices.Sorted(maps.Keys(d.pools))
	d.faces = newFaceIndex(d.pools, d.poolNames)
}

// shutDown ends every stream, waits for the calls under way, and writes what the
// runners have said and is not written yet, and what nobody was given.
func (d *Dispatcher) shutDown() {
	close(d.done)
	for _, s := range d.streams {
		s.stop(errGoingAway)
	}
	d.tunnels.endAll(errGoingAway)
	d.calls.Wait()
	d.returnUnused()
	for len(d.outcomes.waiting)+len(d.outcomes.releases) > 0 {
		w := d.outcomes.take()
		if w.write(d.ctx, d.store); w.applyError != nil || w.releaseError != nil {
			return // the runners say it again to the next replica
		}
	}
}

// trouble tells of a store call that failed.
func (d *Dispatcher) trouble(op string, err error) {
	if d.ctx.Err() == nil {
		tell(d.opt.Events.StoreTrouble, StoreTrouble{Op: op, Err: err})
	}
}
