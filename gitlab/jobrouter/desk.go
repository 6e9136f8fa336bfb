package jobrouter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Desk is where the runners' calls wait, and what gets them their jobs. Its methods may
// be called from anywhere.
type Desk struct {
	opt      Options
	events   Events
	features featureSets
	peers    *peers
	rivals   *rivalry
	news     chan struct{} // 1 slot: other pools have a machine that waits than before

	waiting  atomic.Int64 // calls that are open
	draining atomic.Bool  // everybody is sent to GitLab
	ended    atomic.Bool  // Run is over without that

	working atomic.Int64 // jobs that are being placed, renewed or given up
	mu      struct {
		sync.Mutex
		lines map[string]*line // by hash of the token
		start func(*line)      // starts a line's loops; nil before Run
		// stopAsking and stopTending end the loops of all lines; nil before Run.
		stopAsking, stopTending func()
	}
	asking, tending sync.WaitGroup // the loops
}

// NewDesk returns a desk at which calls may wait, and get jobs as long as Run runs.
func NewDesk(o Options) (*Desk, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("jobrouter: %w", err)
	}
	o = o.withDefaults()
	d := &Desk{opt: o, events: o.Events, peers: newPeers(o.Dial), rivals: newRivalry(), news: make(chan struct{}, 1)}
	d.mu.lines = map[string]*line{}
	return d, nil
}

// line returns the line of a token.
func (d *Desk) line(hash string) *line {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lineLocked(hash)
}

func (d *Desk) lineLocked(hash string) *line {
	l, ok := d.mu.lines[hash]
	if !ok {
		l = newLine(d, hash)
		d.mu.lines[hash] = l
		if d.mu.start != nil {
			d.mu.start(l)
		}
	}
	return l
}

// lines returns all lines, in order.
func (d *Desk) lines() []*line {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.mu.lines), func(a, b *line) int { return cmp.Compare(a.hash, b.hash) })
}

// Run gets jobs for the calls that wait until ctx ends. What still waits then is told
// that we are going: call Drain first if there is time.
func (d *Desk) Run(ctx context.Context) error {
	d.begin(ctx)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			d.end()
			return nil
		case <-ticker.C:
			d.openLines()
			for _, l := range d.lines() {
				l.sweep(context.WithoutCancel(ctx), d.opt.Now())
			}
			d.rivals.sweep(d.opt.Now())
		}
	}
}

// begin starts the loops of the lines that there are, and of those to come.
func (d *Desk) begin(ctx context.Context) {
	asking, stopAsking := context.WithCancel(ctx)
	tending, stopTending := context.WithCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.stopAsking, d.mu.stopTending = stopAsking, stopTending
	d.mu.start = func(l *line) {
		d.asking.Go(func() { l.ask(asking) })
		d.tending.Go(func() { l.tend(tending) })
	}
	for _, l := range d.mu.lines {
		d.mu.start(l)
	}
	d.tending.Go(func() { d.spread(tending) })
	if d.opt.Facts != nil {
		d.tending.Go(func() { d.hear(tending) })
	}
}

// openLines makes lines for tokens that nobody asks with, where a pool at zero is to be
// noticed that way.
func (d *Desk) openLines() {
	if d.opt.HoldPerToken == 0 || d.draining.Load() {
		return
	}
	for _, hash := range d.opt.Tokens.Hashes() {
		d.line(hash)
	}
}

// end is what is left to do when Run is over.
func (d *Desk) end() {
	d.ended.Store(true)
	d.stopLoops()
	d.dismiss(answer{verdict: going})
	_ = d.quiet(context.Background()) // each job's calls have deadlines
	d.leaveAll("the job router has stopped")
	d.peers.close()
}

// stopLoops ends the loops of all lines; the leases are given back.
func (d *Desk) stopLoops() {
	d.mu.Lock()
	d.mu.start = nil
	stopAsking, stopTending := d.mu.stopAsking, d.mu.stopTending
	d.mu.Unlock()
	if stopAsking != nil {
		stopAsking()
		d.asking.Wait()
		stopTending()
		d.tending.Wait()
	}
}

// dismiss answers everybody who waits.
func (d *Desk) dismiss(a answer) {
	for _, l := range d.lines() {
		l.mu.Lock()
		l.dismissLocked(a, everybody)
		l.mu.Unlock()
	}
}

// drainLook is how often Drain looks whether the last call has ended.
const drainLook = 10 * time.Millisecond

// Drain sends every runner to GitLab, those that wait and those that come, and gives
// the leases back. It returns when no call is open any more. Runners find us again when
// they ask for their router the next time.
func (d *Desk) Drain(ctx context.Context) error {
	d.draining.Store(true)
	d.stopLoops()
	d.dismiss(answer{verdict: direct})
	if err := d.quiet(ctx); err != nil {
		return fmt.Errorf("jobrouter: drain: %w", err)
	}
	d.leaveAll("the job router was drained")
	return nil
}

// quiet waits until no call is open and no job is on its way.
func (d *Desk) quiet(ctx context.Context) error {
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for d.waiting.Load()+d.working.Load() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d calls are still open: %w", d.waiting.Load(), context.Cause(ctx))
		case <-ticker.C:
		}
	}
	return nil
}

// spawn does something for a job beside everything else.
func (d *Desk) spawn(f func()) {
	d.working.Add(1)
	go func() {
		defer d.working.Add(-1)
		f()
	}()
}

// Draining reports whether runners are sent to GitLab.
func (d *Desk) Draining() bool { return d.draining.Load() }

// Hasten has GitLab asked soon for every token with which somebody waits, because it
// has a new job: a webhook says so. A back-off goes on.
func (d *Desk) Hasten() {
	now := d.opt.Now()
	for _, l := range d.lines() {
		l.mu.Lock()
		l.mu.pace.hasten(now)
		l.mu.Unlock()
		poke(l.pokePoll)
	}
}

// Held returns the jobs that are in our hands without a machine.
func (d *Desk) Held() []HeldJob {
	var held []HeldJob
	for _, l := range d.lines() {
		l.mu.Lock()
		for _, j := range l.mu.kept {
			held = append(held, j.held())
		}
		l.mu.Unlock()
	}
	return held
}

// TokenStatus is how it stands with one runner token at this replica.
type TokenStatus struct {
	Token   string // hash
	Ours    bool   // we poll it
	Holder  string // who does otherwise; empty = not known
	Waiting int    // calls
	Legacy  int    // of them, of runners without two-phase commit
	Kept    int    // jobs without a machine
	Failing int    // questions in a row that GitLab refused or did not answer
	Hold    HoldInfo
}

// Status returns that of every token that was asked with.
func (d *Desk) Status() []TokenStatus {
	now := d.opt.Now()
	lines := d.lines()
	list := make([]TokenStatus, len(lines))
	for i, l := range lines {
		l.mu.Lock()
		s := TokenStatus{
			Token: l.hash, Ours: l.mu.role.ours(now), Holder: l.mu.role.holder, Waiting: len(l.mu.waiters),
			Kept: len(l.mu.kept), Failing: l.mu.pace.ill, Hold: l.mu.hold,
		}
		for _, w := range l.mu.waiters {
			if !w.twoPhase {
				s.Legacy++
			}
		}
		l.mu.Unlock()
		list[i] = s
	}
	return list
}
