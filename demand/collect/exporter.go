package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// The defaults of Exporters.
const (
	// DefaultScrapeEvery is between two looks at one runner: three of them fit into the
	// age at which a machine counts as silent. Shorter costs the runners something and
	// saves seconds of an idle instance.
	DefaultScrapeEvery = 15 * time.Second
	// DefaultMetricsPort and DefaultMetricsPath are those of gitlab-runner's documentation.
	DefaultMetricsPort = 9252
	DefaultMetricsPath = "/metrics"
	// DefaultScrapes is how many runners are asked at a time [requests]. Those that don't
	// answer hold their place for seconds, and must not keep the others from theirs.
	DefaultScrapes = 128
	// DefaultScrapeTimeout is how long one look may take. A runner on a loaded machine
	// takes a second; longer would only hold the place.
	DefaultScrapeTimeout = 5 * time.Second
	// targetsEvery is how often a file of targets is looked at, or as often as the runners
	// are.
	targetsEvery = 5 * time.Second
)

// Target is an instance and where its runner can be asked.
type Target struct {
	Instance string
	// Address is a host, or host:port where the provider knows the port; empty = not
	// known.
	Address string
}

// ExporterPool is how the runners of one pool are asked. The zero value of a field
// means its default.
type ExporterPool struct {
	Every  time.Duration
	Port   int    // of an address without one
	Path   string // of the page
	TLS    bool
	CAFile string // with TLS; empty: the system's
	// Targets is host:port by instance, and TargetsFile a file with the same as a JSON
	// object, which is read again when it changes. With neither, the instances' own
	// addresses are used.
	Targets     map[string]string
	TargetsFile string
}

// ScrapeInfo says that an instance's runner stopped answering, answers in another
// wrong way, or answers again (Err is nil then).
type ScrapeInfo struct {
	Pool, Instance string
	At             time.Time
	Err            error // a *ScrapeError
}

// ExporterOptions are what Exporters are made of.
type ExporterOptions struct {
	Pools     map[string]ExporterPool
	Scrapes   int // at a time, over all pools
	Timeout   time.Duration
	Changed   func(ScrapeInfo)  // nil: nobody listens
	Transport http.RoundTripper // nil: connections of its own
}

// Exporters asks the runners of pools what they run, each by its own metrics, and
// remembers the last answer of each. That a runner doesn't answer changes nothing
// but the age of what it said last.
type Exporters struct {
	pools   map[string]*exporterPool
	slots   chan struct{} // one for each look that may be under way
	timeout time.Duration
	changed func(ScrapeInfo)
}

// exporterPool is the runners of one pool. Its goroutine in Run owns the askers.
type exporterPool struct {
	ExporterPool

	name   string
	client *http.Client
	wake   chan struct{} // 1 slot
	calls  atomic.Int64

	mu struct {
		sync.Mutex
		listed  []Target // as the group has them
		isKnown bool     // whether listed was ever told
		file    targetsFile
		runners map[string]*runner // by instance: those to ask
		excess  int                // instances that are too many to be asked
	}
}

// runner is what is known of the runner on one instance. mu of its pool guards it.
type runner struct {
	address  string // host:port; empty = not known
	scrape   evidence.Scrape
	answered bool    // ever
	total    float64 // jobs that it ever took, by its own count
	err      error   // why the last look failed
	stop     context.CancelFunc
}

// NewExporters returns Exporters that know no instance yet. Run runs them.
func NewExporters(o ExporterOptions) (*Exporters, error) {
	e := &Exporters{
		pools:   make(map[string]*exporterPool, len(o.Pools)),
		slots:   make(chan struct{}, cmp.Or(o.Scrapes, DefaultScrapes)),
		timeout: cmp.Or(o.Timeout, DefaultScrapeTimeout),
		changed: o.Changed,
	}
	var errs []error
	for name, pool := range o.Pools {
		p, err := newExporterPool(name, pool, o.Transport)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
			continue
		}
		e.pools[name] = p
	}
	return e, errors.Join(errs...)
}

func newExporterPool(name string, o ExporterPool, transport http.RoundTripper) (*exporterPool, error) {
	o.Every = cmp.Or(o.Every, DefaultScrapeEvery)
	o.Port = cmp.Or(o.Port, DefaultMetricsPort)
	o.Path = cmp.Or(o.Path, DefaultMetricsPath)
	if transport == nil {
		var err error
		if transport, err = directTransport(o.CAFile, 2*o.Every); err != nil {
			return nil, err
		}
	}
	p := &exporterPool{ExporterPool: o, name: name, client: withoutRedirects(transport), wake: make(chan struct{}, 1)}
	p.choose() // nobody else has p yet
	return p, nil
}

// SetInstances says which instances a pool's group has now. What is known of others is
// forgotten. It may be called at any time.
func (e *Exporters) SetInstances(pool string, targets []Target) {
	p, ok := e.pools[pool]
	if !ok {
		return
	}
	p.mu.Lock()
	p.mu.listed, p.mu.isKnown = slices.Clone(targets), true
	p.choose()
	p.mu.Unlock()
	p.poke()
}

func (p *exporterPool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Scrapes returns the last answer of each of a pool's instances that ever answered;
// nil for a pool whose runners aren't asked.
func (e *Exporters) Scrapes(pool string) map[string]evidence.Scrape {
	p, ok := e.pools[pool]
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]evidence.Scrape, len(p.mu.runners))
	for instance, r := range p.mu.runners {
		if r.answered {
			out[instance] = r.scrape
		}
	}
	return out
}

// Run asks until ctx ends.
func (e *Exporters) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range e.pools {
		wg.Go(func() { e.follow(ctx, p) })
	}
	wg.Wait()
}

// follow has exactly the instances asked that are to be asked.
func (e *Exporters) follow(ctx context.Context, p *exporterPool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	reread := time.NewTicker(min(targetsEvery, p.Every))
	defer reread.Stop()
	asked := make(map[string]*runner)
	for {
		p.readFile()
		for instance, r := range p.replaced(asked) {
			if r.stop != nil {
				r.stop()
			}
			delete(asked, instance)
		}
		for instance, r := range p.unasked(asked) {
			var asking context.Context
			asking, r.stop = context.WithCancel(ctx)
			asked[instance] = r
			wg.Go(func() { e.ask(asking, p, instance, r) })
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-reread.C:
		}
	}
}

// replaced is those of asked that are not to be asked any more, or elsewhere.
func (p *exporterPool) replaced(asked map[string]*runner) map[string]*runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]*runner)
	for instance, r := range asked {
		if p.mu.runners[instance] != r {
			out[instance] = r
		}
	}
	return out
}

// unasked is those that are to be asked and are not yet.
func (p *exporterPool) unasked(asked map[string]*runner) map[string]*runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]*runner)
	for instance, r := range p.mu.runners {
		if r.address != "" && asked[instance] == nil {
			out[instance] = r
		}
	}
	return out
}

// ask asks one runner at once, and then at a time within each interval that is its
// own, so that not all are asked at the same time.
func (e *Exporters) ask(ctx context.Context, p *exporterPool, instance string, r *runner) {
	defer r.stop()
	phase := phaseOf(p.name, instance, p.Every)
	for {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		e.look(ctx, p, instance, r)
		<-e.slots
		timer := time.NewTimer(untilNext(time.Now(), phase, p.Every))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// phaseOf is when within each interval an instance is asked.
func phaseOf(pool, instance string, every time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pool + "\x00" + instance)) // a hash never fails
	return time.Duration(h.Sum64() % uint64(every))
}

func untilNext(now time.Time, phase, every time.Duration) time.Duration {
	next := now.Truncate(every).Add(phase)
	if !next.After(now) {
		next = next.Add(every)
	}
	return next.Sub(now)
}

// look asks a runner once.
func (e *Exporters) look(ctx context.Context, p *exporterPool, instance string, r *runner) {
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	at := time.Now() // what it says may have been true then already, and not later
	p.calls.Add(1)
	got, err := p.fetch(limited, r.address)
	if ctx.Err() != nil {
		return // nobody wants to know any more
	}
	if p.note(instance, r, at, got, err) && e.changed != nil {
		e.changed(ScrapeInfo{Pool: p.name, Instance: instance, At: at, Err: err})
	}
}

// note keeps an answer. It reports whether it is of another kind than the last.
func (p *exporterPool) note(instance string, r *runner, at time.Time, got page, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.runners[instance] != r {
		return false // it has gone meanwhile
	}
	before := reasonOf(r.err)
	r.err = err
	if err != nil {
		return before != reasonOf(err)
	}
	next := evidence.Scrape{
		At: at, FirstAt: at, Jobs: got.jobs, Concurrent: got.concurrent, Systems: got.systems, LastBusyAt: r.scrape.LastBusyAt,
	}
	if r.answered {
		next.FirstAt = r.scrape.FirstAt
	}
	// A job that came and went between two looks shows in the runner's own count.
	came := r.answered && got.total > 0 && got.total != r.total
	if got.jobs > 0 || came {
		next.LastBusyAt = at
	}
	r.scrape, r.total, r.answered = next, got.total, true
	return before != ""
}

// Status is how the metrics of each pool do, on this replica.
func (e *Exporters) Status() []SourceStatus {
	out := make([]SourceStatus, 0, len(e.pools))
	for _, name := range slices.Sorted(maps.Keys(e.pools)) {
		out = append(out, e.pools[name].status())
	}
	return out
}

// status counts what a pool's runners said: it is as old as the oldest of it.
func (p *exporterPool) status() SourceStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := SourceStatus{Name: "metrics/" + p.name, Every: p.Every, Calls: p.calls.Load()}
	silent, example := 0, ""
	for _, instance := range slices.Sorted(maps.Keys(p.mu.runners)) {
		r := p.mu.runners[instance]
		if r.answered {
			s.Jobs += r.scrape.Jobs
			if s.At.IsZero() || r.scrape.At.Before(s.At) {
				s.At = r.scrape.At
			}
		}
		if why := p.problem(r); why != "" {
			silent++
			example = cmp.Or(example, instance+": "+why)
		}
	}
	switch {
	case p.mu.file.err != nil:
		s.Err = p.mu.file.err.Error()
	case p.mu.excess > 0:
		s.Partial, s.Why = true, fmt.Sprintf("%d instances aren't asked: at most %d are", p.mu.excess, spillway.MaxInstancesPerPool)
	case silent > 0 && silent == len(p.mu.runners):
		s.Err = fmt.Sprintf("none of %d runners answers; %s", silent, example)
	case silent > 0:
		s.Partial, s.Why = true, fmt.Sprintf("%d of %d runners don't answer; %s", silent, len(p.mu.runners), example)
	}
	return s
}

// problem is why nothing newer is known of a runner; empty: it answers, or has not
// been asked yet.
func (p *exporterPool) problem(r *runner) string {
	switch {
	case r.address == "" && p.TargetsFile != "":
		return "observe.metrics.targets_file names no address of it: add it there"
	case r.address == "" && p.fixed():
		return "observe.metrics.targets names no address of it: add it there"
	case r.address == "":
		return "no address is known of it: the provider tells none; set observe.metrics.targets or targets_file"
	case r.err != nil:
		return r.err.Error()
	default:
		return ""
	}
}
