package suite

import (
	"context"
	"fmt"
	"sync/atomic"
)

// tally counts how often each of some jobs was done. It is safe for concurrent use.
type tally struct {
	first int // id of the first job
	times []atomic.Int32
	left  atomic.Int64 // jobs not done once
	extra atomic.Int64 // times that a job was done again, and jobs that nobody knows
	all   chan struct{}
}

func newTally(first, jobs int) *tally {
	t := &tally{first: first, times: make([]atomic.Int32, jobs), all: make(chan struct{})}
	t.left.Store(int64(jobs))
	return t
}

// add counts one job as done; false for one that had been.
func (t *tally) add(id int) bool {
	i := id - t.first
	if i < 0 || i >= len(t.times) || t.times[i].Add(1) != 1 {
		t.extra.Add(1)
		return false
	}
	if t.left.Add(-1) == 0 {
		close(t.all)
	}
	return true
}

// wait returns when every job was done once.
func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs were not done: %w", t.left.Load(), len(t.times), context.Cause(ctx))
	}
}

// flaws is what must be zero: jobs that were lost and jobs that were done again.
type flaws struct{ lost, repeated int }

func (t *tally) flaws() flaws { return flaws{lost: int(t.left.Load()), repeated: int(t.extra.Load())} }

func (f *flaws) add(g flaws) {
	f.lost += g.lost
	f.repeated += g.repeated
}
