package suite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

// workers is the parent's end of a process that takes jobs from a peer's queue.
type workers struct {
	process     *child.Process
	first, jobs int
}

func startWorkers(ctx context.Context, role, addr string, n int) (*workers, error) {
	p, err := child.Start(role, addr, strconv.Itoa(n))
	if err != nil {
		return nil, err
	}
	if _, err := p.Hear(ctx, "connected"); err != nil {
		p.Stop()
		return nil, err
	}
	return &workers{process: p}, nil
}

// run has the workers do the jobs; they take the time themselves.
func (w *workers) run(ctx context.Context) (time.Duration, flaws, error) {
	var f flaws
	if err := w.process.Say("begin", w.first, w.jobs); err != nil {
		return 0, f, err
	}
	text, err := w.process.Hear(ctx, "done")
	if err != nil {
		return 0, f, err
	}
	var nanos int64
	if _, err := fmt.Sscan(text, &nanos, &f.lost, &f.repeated); err != nil {
		return 0, f, err
	}
	return time.Duration(nanos), f, nil
}

func (w *workers) stop() { w.process.Stop() }

// workerTimeout bounds one round of workers.
const workerTimeout = 5 * time.Minute

// serveWorkers is the child's end: work does the jobs of one tally and returns how
// long it took until the last of them was acknowledged.
func serveWorkers(work func(context.Context, *tally) (time.Duration, error)) error {
	child.Answer("connected")
	return child.Orders(func(_ string, words []string) error {
		t, err := tallyOf(words)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), workerTimeout)
		defer cancel()
		took, err := work(ctx, t)
		if err != nil {
			return err
		}
		f := t.flaws()
		child.Answer("done", took.Nanoseconds(), f.lost, f.repeated)
		return nil
	})
}
