package suite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// loadBatch is how many jobs are put into a queue with one call.
const loadBatch = 500

// ownDispatch is Spillway: jobs wait in Redis, are matched with machines, claimed,
// sent, and their results stored before they are acknowledged.
type ownDispatch struct {
	*ownRouter

	gate     *gate
	machines *machines
	current  atomic.Pointer[tally] // of results that are stored
}

// gate hides the queue until it is opened, so that jobs can be put there untimed.
type gate struct {
	*store.Store

	open atomic.Bool
}

func (g *gate) Counts(ctx context.Context) ([]router.ClassCount, error) {
	if !g.open.Load() {
		return []router.ClassCount{}, nil
	}
	return g.Store.Counts(ctx)
}

func newOwnDispatch(ctx context.Context, n int) (dispatch, error) {
	o := &ownDispatch{}
	o.current.Store(newTally(0, 0))
	var err error
	o.ownRouter, err = startOwnRouter(ctx, session.Events{JobFinished: o.finished}, func(s *store.Store) session.Store {
		o.gate = &gate{Store: s}
		return o.gate
	})
	if err != nil {
		return nil, err
	}
	if o.machines, err = startMachines(ctx, o.addr, n); err != nil {
		o.ownRouter.close()
		return nil, err
	}
	return o, nil
}

// finished hears of each result once it is stored.
func (o *ownDispatch) finished(e session.JobFinished) {
	if id, err := jobNumber(string(e.Record.Job.ID)); err == nil {
		o.current.Load().add(id)
	}
}

func (o *ownDispatch) close() {
	o.machines.stop()
	o.ownRouter.close()
}

func (o *ownDispatch) load(ctx context.Context, first, jobs int) error {
	o.gate.open.Store(false)
	o.current.Store(newTally(first, jobs))
	if err := o.machines.begin(ctx, first, jobs); err != nil {
		return err
	}
	batch := make([]spillway.Job, 0, loadBatch)
	for id := first; id < first+jobs; id++ {
		batch = append(batch, dispatchJob(id))
		if len(batch) < loadBatch && id < first+jobs-1 {
			continue
		}
		outcomes, err := o.store.Push(ctx, batch)
		if err != nil {
			return err
		}
		for i, outcome := range outcomes {
			if outcome != store.Accepted {
				return fmt.Errorf("job %s was not accepted: outcome %d", batch[i].ID, outcome)
			}
		}
		batch = batch[:0]
	}
	return nil
}

func (o *ownDispatch) run(ctx context.Context) (time.Duration, flaws, error) {
	t := o.current.Load()
	began := time.Now()
	o.gate.open.Store(true)
	o.dispatcher.Poke()
	if err := t.wait(ctx); err != nil {
		return 0, t.flaws(), err
	}
	took := time.Since(began)
	wrong, err := o.machines.report(ctx) // what really ran
	if err != nil {
		return 0, wrong, err
	}
	wrong.add(t.flaws())
	left, err := o.leftOver(ctx)
	wrong.lost += left
	return took, wrong, err
}
