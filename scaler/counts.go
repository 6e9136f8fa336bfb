package scaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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

// CountName names the source of a pool's count, for people.
func CountName(pool string) string { return "count/" + pool }

// oneLine is an error as a trace has it.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

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
			c.err = fmt.Errorf("%s says %g jobs", CountName(p.Name()), jobs)
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
		last map[string]lastCount
	}
}

// lastCount is what came of the reads of one source.
type lastCount struct {
	pluginsdk.Count // the last good one; its At is zero without any

	err   error // of the last read; nil = it was good
	reads int
}

var _ Counts = (*Polls)(nil)

// NewPolls returns the counts of sources, by pool. Run reads them.
func NewPolls(sources map[string]CountSource, events *Events) *Polls {
	p := &Polls{sources: sources, events: events}
	p.mu.last = make(map[string]lastCount, len(sources))
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
	last := p.mu.last[pool]
	p.mu.Unlock()
	age, oldest := now.Sub(last.At), max(3*source.Every, minStaleAfter)
	switch {
	case !last.At.IsZero() && age <= oldest:
		return last.Jobs * float64(max(1, source.Each)), true, nil
	case !last.At.IsZero():
		err = fmt.Errorf("%s: %w of after %s UTC, %s ago, and one may be %s old",
			CountName(pool), errNotCounted, last.At.UTC().Format(time.DateTime), age.Round(time.Second), oldest)
	default:
		err = fmt.Errorf("%s: %w yet, after %d reads", CountName(pool), errNotCounted, last.reads)
	}
	if last.err != nil {
		err = fmt.Errorf("%w: %w", err, last.err)
	}
	return 0, true, err
}

// Drives implements Counts.
func (p *Polls) Drives(pool string) bool { return p.sources[pool].Drives }

// CountStatus is how one source of counts does.
type CountStatus struct {
	Pool  string
	Every time.Duration
	At    time.Time // when what it last said was true; zero = it has said nothing yet
	Err   error     // of the last read; nil = it was good
	Reads int       // so far
}

// Status is how each source does, by pool.
func (p *Polls) Status() []CountStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]CountStatus, 0, len(p.sources))
	for _, pool := range slices.Sorted(maps.Keys(p.sources)) {
		last := p.mu.last[pool]
		out = append(out, CountStatus{Pool: pool, Every: p.sources[pool].Every, At: last.At, Err: last.err, Reads: last.reads})
	}
	return out
}

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
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err != nil {
		p.events.trouble(TroubleInfo{Pool: pool, At: time.Now(), Doing: "counting the jobs", Err: err})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.mu.last[pool]
	last.err, last.reads = err, last.reads+1
	if err == nil {
		last.Count = got
	}
	p.mu.last[pool] = last
}
