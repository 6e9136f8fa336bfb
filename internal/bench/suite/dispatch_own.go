package suite

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// loadBatch is how many jobs are put into a queue with one call.
const loadBatch = 500

// ownDispatch is Spillway: jobs wait in Redis, are matched with machines, claimed,
// sent, and their results stored before they are acknowledged.
type ownDispatch struct {
	redis      *redisd.Server
	store      *store.Store
	gate       *gate
	dispatcher *session.Dispatcher
	server     *grpc.Server
	machines   *machines
	stop       context.CancelFunc
	running    sync.WaitGroup
	current    atomic.Pointer[tally] // of results that are stored
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

func newOwnDispatch(ctx context.Context, n int) (_ dispatch, err error) {
	o := &ownDispatch{}
	o.current.Store(newTally(0, 0))
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.redis, err = redisd.Start(ctx); err != nil {
		return nil, err
	}
	if o.store, err = store.Open(ctx, store.Options{Addrs: []string{o.redis.Addr}}); err != nil {
		return nil, err
	}
	o.gate = &gate{Store: o.store}
	o.dispatcher, err = session.NewDispatcher(o.gate, session.Options{
		Replica: "bench", Pools: dispatchFleet(), Events: session.Events{JobFinished: o.finished},
	})
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.server = grpc.NewServer(session.ServerOptions()...)
	runnerv1.RegisterRunnerServiceServer(o.server, session.NewRunners(o.dispatcher, fleetTokens()))
	run, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.running.Go(func() { _ = o.dispatcher.Run(run) }) // ends with stop
	o.running.Go(func() { _ = o.server.Serve(lis) })   // ends with Stop
	o.machines, err = startMachines(ctx, lis.Addr().String(), n)
	return o, err
}

// finished hears of each result once it is stored.
func (o *ownDispatch) finished(e session.JobFinished) {
	if id, err := jobNumber(string(e.Record.Job.ID)); err == nil {
		o.current.Load().add(id)
	}
}

func (o *ownDispatch) close() {
	if o.machines != nil {
		o.machines.stop()
	}
	if o.stop != nil {
		o.stop()
	}
	if o.server != nil {
		o.server.Stop()
	}
	o.running.Wait()
	if o.store != nil {
		_ = o.store.Close()
	}
	if o.redis != nil {
		o.redis.Stop()
	}
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

// leftOver is how many jobs the store still has to be done.
func (o *ownDispatch) leftOver(ctx context.Context) (int, error) {
	counts, err := o.store.Counts(ctx)
	left := 0
	for _, c := range counts {
		left += c.Pending + c.Claimed
	}
	return left, err
}
