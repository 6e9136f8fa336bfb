package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/server"
)

// view shows the pools while the demo runs: on a terminal one table that is
// redrawn, elsewhere a line whenever something has changed.
type view struct {
	out      io.Writer
	began    time.Time
	total    int
	quiet    bool
	terminal bool
	drawn    int    // lines on the screen
	last     string // what was printed last, to print changes only
}

func newView(out io.Writer, quiet bool, total int) *view {
	f, ok := out.(*os.File)
	return &view{out: out, began: time.Now(), total: total, quiet: quiet, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (v *view) show(pools []server.PoolStatus, records []*typesv1.JobRecord) {
	switch {
	case v.quiet:
	case v.terminal:
		v.redraw(pools, records)
	default:
		v.line(pools, records)
	}
}

// end leaves the last picture where it is.
func (v *view) end() { v.drawn = 0 }

func ended(records []*typesv1.JobRecord) (ended, running int) {
	for i := range records {
		switch {
		case terminal(records[i]):
			ended++
		case records[i].GetState() == typesv1.JobState_JOB_STATE_RUNNING:
			running++
		}
	}
	return ended, running
}

const barWidth = 40

func (v *view) redraw(pools []server.PoolStatus, records []*typesv1.JobRecord) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn) // back to the first line of the table
	}
	row := func(format string, args ...any) { fmt.Fprintf(&b, format+"\x1b[K\n", args...) }
	row("%-16s %8s %8s %8s %11s %8s %9s  %s", "POOL", "PENDING", "RUNNING", "DESIRED", "IN SERVICE", "BOOTING", "DRAINING", "WHY")
	for i := range pools {
		p := &pools[i]
		row("%-16s %8d %8d %8d %11d %8d %9d  %s", p.Pool.Name, p.Pending, p.Running, p.Desired, p.InService, p.Booting, p.Draining, p.Reason)
	}
	done, running := ended(records)
	filled := barWidth * done / max(1, v.total)
	row("[%s%s] %d of %d jobs ended, %d running, %.1fs", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled),
		done, v.total, running, time.Since(v.began).Seconds())
	v.drawn = len(pools) + 2
	_, _ = io.WriteString(v.out, b.String())
}

func (v *view) line(pools []server.PoolStatus, records []*typesv1.JobRecord) {
	done, _ := ended(records)
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d jobs", done, v.total)
	for i := range pools {
		p := &pools[i]
		fmt.Fprintf(&b, " | %s: %d pending, %d running, desired %d, in service %d, booting %d, draining %d",
			p.Pool.Name, p.Pending, p.Running, p.Desired, p.InService, p.Booting, p.Draining)
	}
	if s := b.String(); s != v.last {
		v.last = s
		fmt.Fprintf(v.out, "%6.1fs  %s\n", time.Since(v.began).Seconds(), s)
	}
}
