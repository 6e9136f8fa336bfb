package collect

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// The defaults of a source.
const (
	// DefaultEvery is between two lists. Shorter costs calls of the token's budget and
	// gains little where hooks come; longer makes a lost hook hurt for longer.
	DefaultEvery = 10 * time.Second
	// DefaultStaleJob is the age at which a pending job is looked at by itself: lists
	// keep naming some that will never run.
	DefaultStaleJob = time.Hour
	// DefaultLookAgain is how long what was found about such a job is believed.
	DefaultLookAgain = 30 * time.Minute
	// DefaultLeaseTTL is how long a dead replica keeps the others from asking GitLab. It
	// must be shorter than the age at which a board is stale.
	DefaultLeaseTTL = 15 * time.Second
	// DefaultDebounce is how long news are gathered before they are shown.
	DefaultDebounce = 5 * time.Millisecond
)

// Options are what a source is made of.
type Options struct {
	URL string // the origin of its jobs, as spillway.Requirement.Origin
	// API asks GitLab; nil where there is no token for that: only jobs that are held
	// count then.
	API     API
	Store   Store
	Replica string // who we are to the others
	Scope   gitlab.Scope
	// Pools are those that GitLab's jobs may be for: what they tell apart makes classes.
	Pools []spillway.Pool
	// Ages are the times for which a board counts the jobs that have waited so long, in
	// ascending order; nil: for none. The first MaxAges count.
	Ages func() []time.Duration
	// Runners are the ids of the pools' runners.
	Runners []int64

	// Hooks: GitLab's webhooks are listened to. Without, they have no status.
	Hooks bool
	Held  Held // nil: none are
	// HeldLacks says of which pools, by name, it isn't known whether jobs wait that could
	// be held, and why. nil: it always is.
	HeldLacks func() map[string]string
	// Busy counts the jobs that run on machines of the pools by any other source's word;
	// nil: nobody knows. A list without any running job is not believed while it says
	// otherwise. It is only asked where the list is of the whole instance.
	Busy func(ctx context.Context) (jobs int, err error)
	// Covers reports whether every job that the runner may run is in the scope, so that
	// the list shows all that it runs. nil: only where the scope is the instance.
	Covers func(gitlab.Runner) bool

	Every     time.Duration
	StaleJob  time.Duration
	LookAgain time.Duration
	LeaseTTL  time.Duration
	Debounce  time.Duration
	Limits    Limits
	Events    *Events // nil: nobody listens
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.StaleJob = cmp.Or(o.StaleJob, DefaultStaleJob)
	o.LookAgain = cmp.Or(o.LookAgain, DefaultLookAgain)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, DefaultLeaseTTL)
	o.Debounce = cmp.Or(o.Debounce, DefaultDebounce)
	if o.API == nil {
		o.Limits.Unconfirmed = cmp.Or(o.Limits.Unconfirmed, heldTimeout)
	}
	if o.Covers == nil {
		o.Covers = func(gitlab.Runner) bool { return o.Scope.Kind == gitlab.Instance }
	}
	if o.Events == nil {
		o.Events = new(Events)
	}
	return o
}

// GitLab is the jobs of one GitLab as a source: of all replicas the one that holds a
// lease lists them and shows them to all as a board. In between it takes in what any
// replica tells on Topic.
type GitLab struct {
	o      Options
	needs  *needs
	wake   chan struct{}
	status statusBook
	calls  atomic.Int64
}

// New returns a source. Run runs it.
func New(o Options) (*GitLab, error) {
	switch {
	case o.URL == "" || o.Store == nil || o.Replica == "":
		return nil, errors.New("collect: a source needs a URL, a store and a replica's name")
	case o.API == nil && o.Held == nil:
		return nil, errors.New("collect: without an API token and without jobs that are held, nothing tells of jobs")
	}
	return &GitLab{o: o.withDefaults(), needs: newNeeds(o.URL, o.Pools), wake: make(chan struct{}, 1)}, nil
}

// ages are those that a board counts.
func (g *GitLab) ages() []time.Duration {
	if g.o.Ages == nil {
		return nil
	}
	ages := g.o.Ages()
	return ages[:min(len(ages), MaxAges)]
}

// HeldChanged has the jobs that are held looked at now.
func (g *GitLab) HeldChanged() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Run lists jobs while it has the lease, and waits for it otherwise, until ctx ends.
func (g *GitLab) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if g.o.Held != nil {
		wg.Go(func() { g.tellHeld(ctx) })
	}
	facts := g.listen(ctx)
	for ctx.Err() == nil {
		lease, err := g.acquire(ctx)
		if err != nil {
			g.status.standby(err)
			g.idle(ctx, facts)
			continue
		}
		newTenure(g, lease, facts).run(ctx)
	}
}

// listen subscribes to the topic, as often as it takes.
func (g *GitLab) listen(ctx context.Context) <-chan []byte {
	for {
		facts, err := g.o.Store.Facts(ctx, Topic)
		if err == nil {
			return facts
		}
		g.o.Events.trouble("listening for news of jobs", err)
		if !sleep(ctx, g.renewEvery()) {
			return nil
		}
	}
}

// renewEvery is a third of the lease, so that one failed renewal loses nothing.
func (g *GitLab) renewEvery() time.Duration { return g.o.LeaseTTL / 3 }

// errStandby: another replica has the lease.
var errStandby = errors.New("another replica asks GitLab")

// acquire takes the lease or renews it.
func (g *GitLab) acquire(ctx context.Context) (spillway.Lease, error) {
	held, err := g.o.Store.HoldLeases(ctx, []string{LeaseName}, g.o.Replica, g.o.LeaseTTL)
	if err != nil {
		if ctx.Err() == nil {
			g.o.Events.trouble("taking the lease of the replica that asks GitLab", err)
		}
		return spillway.Lease{}, err
	}
	lease, ok := held[LeaseName]
	if !ok || lease.Rest(time.Now()) <= 0 {
		return spillway.Lease{}, errStandby
	}
	return lease, nil
}

// idle waits until the lease is worth asking for again. What is told meanwhile is the
// holder's: who takes the lease over begins with a list.
func (g *GitLab) idle(ctx context.Context, facts <-chan []byte) {
	timer := time.NewTimer(g.renewEvery())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case _, ok := <-facts:
			if !ok {
				facts = nil
			}
		}
	}
}

// releaseTimeout bounds the good manners at the end.
const releaseTimeout = 2 * time.Second

// release gives the lease back, so that another replica need not wait for its end.
func (g *GitLab) release(lease spillway.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := g.o.Store.ReleaseLease(ctx, lease); err != nil {
		g.o.Events.trouble("giving back the lease of the replica that asks GitLab", err)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Events narrates what a source does; a nil func is nobody's. They are called from
// several goroutines and must not block.
type Events struct {
	Trouble func(doing string, err error)
	Stale   func(job JobKey, why string) // a job that a list names turned out to be over
	Shown   func(Board)                  // a board was written
}

func (e *Events) trouble(doing string, err error) {
	if e.Trouble != nil {
		e.Trouble(doing, err)
	}
}

func (e *Events) stale(job JobKey, why string) {
	if e.Stale != nil {
		e.Stale(job, why)
	}
}

func (e *Events) shown(b Board) {
	if e.Shown != nil {
		e.Shown(b)
	}
}

// ErrNothingYet says that it is too early for anything to be known.
var ErrNothingYet = errors.New("GitLab has not been asked yet")
