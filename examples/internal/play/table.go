package play

import (
	"fmt"
	"io"
	"strings"
	"time"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// table prints a row whenever something has changed.
type table struct {
	out   io.Writer
	began time.Time
	last  string
}

func newTable(out io.Writer, began time.Time) *table { return &table{out: out, began: began} }

// note prints what happens between two rows.
func (t *table) note(at time.Time, format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, "%5.1fs  "+format+"\n", append([]any{at.Sub(t.began).Seconds()}, args...)...)
}

func (t *table) show(at time.Time, n Count, pools []*adminv1.PoolStatus) {
	if t.last == "" {
		t.head(pools)
	}
	var row strings.Builder
	_, _ = fmt.Fprintf(&row, "%8d %8d %8d", n.Waiting, n.Running, n.Ended)
	for _, p := range pools {
		_, _ = fmt.Fprintf(&row, " | %8d %8d %11d %9d  %s", p.GetDesired(), p.GetBooting(), p.GetInService(), p.GetDraining(), why(p))
	}
	if row.String() != t.last {
		t.last = row.String()
		t.note(at, "%s", t.last)
	}
}

func (t *table) head(pools []*adminv1.PoolStatus) {
	_, _ = fmt.Fprintf(t.out, "%6s  %8s %8s %8s", "", "waiting", "running", "ended")
	for _, p := range pools {
		_, _ = fmt.Fprintf(t.out, " | %8s %8s %11s %9s  why (pool %s)", "desired", "booting", "in service", "draining", p.GetName())
	}
	_, _ = fmt.Fprintln(t.out)
}

// why is the reason of a pool's newest decision, or what holds it.
func why(p *adminv1.PoolStatus) string {
	if p.GetHold() != "" {
		return p.GetHold()
	}
	return p.GetLastReason()
}
