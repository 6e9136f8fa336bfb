package scaler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// Counts is sources that say how many jobs a pool has and not which, such as a
// metric of the cloud. They are a floor for scale-in, and no reason to launch, except
// where nothing tells which jobs a pool has.
type Counts interface {
	// Count returns the waiting and running jobs of a pool; ok is false for a pool
	// without such a source. An error means that the number isn't known or is too old:
	// nothing scales in then. It answers at once, from memory.
	Count(pool string, now time.Time) (jobs float64, ok bool, err error)
	// Drives reports whether the count is all that is known of a pool's jobs, so that
	// it is the demand.
	Drives(pool string) bool
}

// SetCounts gives the fleet sources of counts. It is called before the first look.
func (f *Fleet) SetCounts(c Counts) { f.counts = c }

// count is what a source said of a pool.
type count struct {
	jobs   int
	drives bool
	err    error
}

// maxCount bounds what a metric is believed to mean [jobs].
const maxCount = 1 << 30

func (f *Fleet) readCounts(pic *Picture, pools []*Pool) {
	if f.counts == nil {
		return
	}
	pic.counts = make(map[string]count, len(pools))
	for _, p := range pools {
		jobs, ok, err := f.counts.Count(p.Name(), pic.At)
		c := count{drives: f.counts.Drives(p.Name()), err: err}
		switch {
		case !ok && err == nil:
			continue
		case err != nil:
		case math.IsNaN(jobs) || jobs < 0:
			c.err = fmt.Errorf("it says %g jobs", jobs)
		default:
			c.jobs = int(math.Ceil(min(jobs, maxCount)))
		}
		pic.counts[p.Name()] = c
	}
}

// CountSource is where one count comes from.
type CountSource struct {
	Every time.Duration // how often it is read, and how long a read may take
	Read  func(context.Context) (pluginsdk.Count, error)
	// Drives: nothing else tells of the pool's jobs.
	Drives bool
	// Each is the jobs that one of what Read counts stands for, as where it counts
	// instances; 0 = 1.
	Each int
}

// Polls reads counts from time to time and remembers the last of each: a source
// that is slow or hangs delays nobody's look.
type Polls struct {
	sources map[string]CountSource // by pool
	events  *Events

	mu struct {
		sync.Mutex
		last map[string]pluginsdk.Count
	}
}

var _ Counts = (*Polls)(nil)

// NewPolls returns the counts of sources, by pool. Run reads them.
func NewPolls(sources map[string]CountSource, events *Events) *Polls {
	p := &Polls{sources: sources, events: events}
	p.mu.last = make(map[string]pluginsdk.Count, len(sources))
	return p
}

// errNotCounted: no value has come yet, or none for too long.
var errNotCounted = errors.New("no value")

// Count implements Counts.
func (p *Polls) Count(pool string, now time.Time) (jobs float64, ok bool, err error) {
	source, ok := p.sources[pool]
	if !ok {
		return 0, false, nil
	}
	p.mu.Lock()
	last, known := p.mu.last[pool]
	p.mu.Unlock()
	if !known {
		return 0, true, errNotCounted
	}
	if age := now.Sub(last.At); age > max(3*source.Every, minStaleAfter) {
		return 0, true, fmt.Errorf("%w for %s", errNotCounted, age.Round(time.Second))
	}
	return last.Jobs * float64(max(1, source.Each)), true, nil
}

// Drives implements Counts.
func (p *Polls) Drives(pool string) bool { return p.sources[pool].Drives }

// Run reads every source until ctx ends.
func (p *Polls) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for pool, source := range p.sources {
		wg.Go(func() { p.poll(ctx, pool, source) })
	}
	wg.Wait()
}

func (p *Polls) poll(ctx context.Context, pool string, source CountSource) {
	ticker := time.NewTicker(source.Every)
	defer ticker.Stop()
	for {
		p.read(ctx, pool, source)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Polls) read(ctx context.Context, pool string, source CountSource) {
	ctx, cancel := context.WithTimeout(ctx, source.Every)
	defer cancel()
	got, err := source.Read(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.events.trouble(TroubleInfo{Pool: pool, At: time.Now(), Doing: "counting the jobs", Err: err})
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.last[pool] = got
}
