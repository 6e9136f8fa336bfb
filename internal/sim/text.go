package sim

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// pictureWidth is how many columns the picture of a pool has [characters].
const pictureWidth = 60

// violationsShown is how many of them a person is told of [lines].
const violationsShown = 10

// WriteText writes what a person wants to see: how the jobs fared, what each pool
// did over time, and what was not as it should be.
func WriteText(w io.Writer, r *Result) error {
	var b bytes.Buffer
	j := r.Jobs
	fmt.Fprintf(&b, "played %s, seed %d\n", time.Duration(float64(r.Duration)*float64(time.Second)), r.Seed)
	fmt.Fprintf(&b, "jobs: %d submitted, %d completed, %d failed, %d canceled, %d pending, %d running\n",
		j.Submitted, j.Completed, j.Failed+j.Rejected, j.Canceled, j.Pending, j.Running)
	fmt.Fprintf(&b, "wait: p50 %s, p95 %s, max %s\n", j.Wait.P50, j.Wait.P95, j.Wait.Max)
	fmt.Fprintf(&b, "busy instances ended: %d by us, %d by others\n", r.BusyKills, r.ForcedKills)
	for _, why := range slices.Sorted(maps.Keys(r.Unmatched)) {
		fmt.Fprintf(&b, "unmatched: %d jobs, %s\n", r.Unmatched[why], why)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Failures)) {
		fmt.Fprintf(&b, "failed: %d jobs, %s\n", r.Failures[why], why)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Controllers)) {
		c := r.Controllers[name]
		fmt.Fprintf(&b, "controller %s: asked %d times, %d jobs approved, %d refused\n", name, c.Asked, c.Allowed, c.Refused)
	}
	for _, peer := range slices.Sorted(maps.Keys(r.Handed)) {
		h := r.Handed[peer]
		fmt.Fprintf(&b, "cell %s: %d jobs handed over, %d ended there, %d came back\n", peer, h.Over, h.Ended, h.Back)
	}
	r.writePools(&b)
	for _, name := range slices.Sorted(maps.Keys(r.Cells)) {
		fmt.Fprintf(&b, "\nin cell %s\n", name)
		r.Cells[name].writePools(&b)
	}
	r.writeVerdict(&b)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// String is the duration for people.
func (s Seconds) String() string {
	return time.Duration(float64(s) * float64(time.Second)).Round(time.Millisecond).String()
}

func (r *Result) writePools(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\npool\tlaunches\tremovals\tcalls\tmax live\tinstance-hours\tcost\t")
	names := slices.Sorted(maps.Keys(r.Pools))
	for _, name := range names {
		p := r.Pools[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t\n", name, p.Launches, p.Removals, p.ScaleCalls, p.MaxLive, float64(p.InstanceSeconds)/3600, p.Cost)
	}
	_ = t.Flush() // a bytes.Buffer takes everything
	end := max(r.Duration, 1)
	for _, name := range names {
		p := r.Pools[name]
		fmt.Fprintf(b, "\n%s, 0s to %s\n", name, r.Duration)
		fmt.Fprintf(b, "  desired    %s  %s\n", picture(p.Desired, end), extent(p.Desired))
		fmt.Fprintf(b, "  in service %s  %s\n", picture(p.InService, end), extent(p.InService))
	}
}

func (r *Result) writeVerdict(b *bytes.Buffer) {
	b.WriteByte('\n')
	for i, v := range r.Violations {
		if i == violationsShown {
			fmt.Fprintf(b, "and %d more that are in the JSON output\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(b, "INVARIANT %s broken at %s: %s\n", v.Invariant, v.T, v.What)
	}
	good := 0
	for _, e := range r.Expect {
		if e.OK {
			good++
			continue
		}
		fmt.Fprintf(b, "line %d: %s\n", e.Line, e)
	}
	if len(r.Expect) > 0 {
		fmt.Fprintf(b, "%d of %d expectations hold\n", good, len(r.Expect))
	}
	if len(r.Violations) == 0 {
		b.WriteString("every invariant held\n")
	}
}

// bars are eighths, the lowest first; nothing is a dot, so that one can see it.
var bars = []rune("▁▂▃▄▅▆▇█")

// picture draws the highest number of each slice of time.
func picture(points []Point, end Seconds) string {
	top := highest(points)
	var b strings.Builder
	next, level := 0, 0
	for col := range pictureWidth {
		until := end * Seconds(col+1) / pictureWidth
		peak := level
		for next < len(points) && (points[next].T < until || col == pictureWidth-1) {
			level = points[next].N
			peak = max(peak, level)
			next++
		}
		if peak == 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune(bars[(peak*len(bars)-1)/top])
	}
	return b.String()
}

func highest(points []Point) int {
	top := 0
	for _, p := range points {
		top = max(top, p.N)
	}
	return top
}

func extent(points []Point) string {
	last := 0
	if len(points) > 0 {
		last = points[len(points)-1].N
	}
	return fmt.Sprintf("max %d, at the end %d", highest(points), last)
}
