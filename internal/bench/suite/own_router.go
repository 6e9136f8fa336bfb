package suite

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/internal/bench/redisd"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// ownRouter is Spillway's router in this process, with a Redis of its own. It serves
// runners, and jobs that are pushed, without TLS unless an option
// says otherwise.
type ownRouter struct {
	redis      *redisd.Server
	store      *store.Store
	dispatcher *session.Dispatcher
	server     *grpc.Server
	addr       string
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// startOwnRouter starts a router that sees the store as it is shown to it. options come
// after those of the runners' listener.
func startOwnRouter(ctx context.Context, events session.Events, show func(*store.Store) session.Store, options ...grpc.ServerOption) (_ *ownRouter, err error) {
	o := &ownRouter{}
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
	o.dispatcher, err = session.NewDispatcher(show(o.store), session.Options{Replica: "bench", Pools: dispatchFleet(), Events: events})
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.addr = lis.Addr().String()
	o.server = grpc.NewServer(append(session.ServerOptions(), options...)...)
	runnerv1.RegisterRunnerServiceServer(o.server, session.NewRunners(o.dispatcher, fleetTokens()))
	jobsv1.RegisterJobServiceServer(o.server, session.NewJobs(o.dispatcher, o.store, o.store, nil))
	run, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.running.Go(func() { _ = o.dispatcher.Run(run) }) // ends with stop
	o.running.Go(func() { _ = o.server.Serve(lis) })   // ends with Stop
	return o, nil
}

func (o *ownRouter) close() {
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

// leftOver is how many jobs the store still has to be done.
func (o *ownRouter) leftOver(ctx context.Context) (int, error) {
	counts, err := o.store.Counts(ctx)
	left := 0
	for _, c := range counts {
		left += c.Pending + c.Claimed
	}
	return left, err
}
