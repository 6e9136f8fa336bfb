package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

// Settings say how long to measure.
type Settings struct {
	Rounds int
	Short  bool // smaller work, for CI: seconds in all
}

// DefaultRounds gives a median that one disturbed round can't move; ShortRounds is
// what CI has time for.
const (
	DefaultRounds = 5
	ShortRounds   = 3
)

// quietWindow is how long the machine is looked at before each benchmark.
const quietWindow = time.Second

// benchmarkTimeout bounds one benchmark on the slowest machine that is still of use.
const benchmarkTimeout = 20 * time.Minute

// Benchmark is one table.
type Benchmark struct {
	Name string
	What string // with its unit
	run  func(context.Context, *bench) error
}

// bench is a benchmark under way.
type bench struct {
	Settings
	table *measure.Table
}

// pick chooses the size of the work.
func (b *bench) pick(long, short int) int {
	if b.Short {
		return short
	}
	return long
}

func (b *bench) add(rows ...measure.Row) { b.table.Rows = append(b.table.Rows, rows...) }

func (b *bench) note(format string, args ...any) {
	b.table.Notes = append(b.table.Notes, fmt.Sprintf(format, args...))
}

// All returns every benchmark, in the order in which they run.
func All() []Benchmark {
	return []Benchmark{
		policyDecide(), demandAttribute(), demandTick(), demandMemory(), routerThroughput(), routerLatency(), routerSelect(), routerIdle(),
		reactLatency(), reactBurst(), reactBudget(), reactSteady(), gitlabWebhook(), gitlabWaiting(), gitlabArtifact(), gitlabList(), gitlabPoll(), pluginCall(),
	}
}

// Select returns the benchmarks whose name matches.
func Select(pattern string) ([]Benchmark, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	var out []Benchmark
	for _, b := range All() {
		if re.MatchString(b.Name) {
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no benchmark is named like %q", pattern)
	}
	return out, nil
}

// Run runs benchmarks one after another; progress is told what it is at. A table
// that broke says so, and the others go on.
func Run(ctx context.Context, all []Benchmark, s Settings, progress io.Writer, done func(*measure.Table)) {
	for _, one := range all {
		if ctx.Err() != nil {
			return
		}
		_, _ = fmt.Fprintf(progress, "running %s ...\n", one.Name) // only a courtesy
		done(runOne(ctx, one, s))
	}
}

func runOne(ctx context.Context, one Benchmark, s Settings) *measure.Table {
	ctx, cancel := context.WithTimeoutCause(ctx, benchmarkTimeout, fmt.Errorf("not done after %s", benchmarkTimeout))
	defer cancel()
	b := &bench{Settings: s, table: &measure.Table{Name: one.Name, What: one.What}}
	watch := measure.StartWatch(ctx, quietWindow)
	err := one.run(ctx, b)
	b.table.Noise = watch.Stop()
	switch {
	case errors.Is(err, errSkipped), errors.Is(err, redisd.ErrNotInstalled):
		b.add(measure.SkippedRow(one.Name, err.Error()))
	case err != nil:
		b.table.Err = err.Error()
	}
	b.table.Disturbed()
	return b.table
}

// errSkipped is what a benchmark lacks that need not be on every machine.
var errSkipped = errors.New("skipped")

// micros, millis: durations as figures.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
