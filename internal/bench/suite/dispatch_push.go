package suite

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// pushDispatch is the limit: the same messages between a router and its machines,
// and nothing behind them.
type pushDispatch struct {
	runnerv1.UnimplementedRunnerServiceServer

	server   *grpc.Server
	machines *machines
	jobs     chan int
	current  atomic.Pointer[tally]
}

func newPushDispatch(ctx context.Context, n int) (dispatch, error) {
	p := &pushDispatch{jobs: make(chan int)}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.server = grpc.NewServer(session.ServerOptions()...)
	runnerv1.RegisterRunnerServiceServer(p.server, p)
	go func() { _ = p.server.Serve(lis) }() // ends with Stop
	if p.machines, err = startMachines(ctx, lis.Addr().String(), n); err != nil {
		p.server.Stop()
		return nil, err
	}
	return p, nil
}

func (p *pushDispatch) close() {
	p.machines.stop()
	p.server.Stop()
}

// Connect sends a job, takes its result, and so on.
func (p *pushDispatch) Connect(rpc runnerv1.RunnerService_ConnectServer) error {
	if _, err := rpc.Recv(); err != nil {
		return err
	}
	registered := &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Registered{Registered: &runnerv1.Registered{}}}
	if err := rpc.Send(registered); err != nil {
		return err
	}
	for {
		select {
		case id := <-p.jobs:
			if err := p.have(rpc, id); err != nil {
				return err
			}
		case <-rpc.Context().Done():
			return rpc.Context().Err()
		}
	}
}

// have has one job done.
func (p *pushDispatch) have(rpc runnerv1.RunnerService_ConnectServer, id int) error {
	err := rpc.Send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{
		Attempt: 1, Job: wireJob(id),
	}}})
	if err != nil {
		return err
	}
	said, err := rpc.Recv()
	if err != nil {
		return err
	}
	done, err := jobNumber(said.GetJobStatus().GetJobId())
	if err != nil {
		return err
	}
	p.current.Load().add(done)
	return nil
}

func (p *pushDispatch) load(ctx context.Context, first, jobs int) error {
	p.current.Store(newTally(first, jobs))
	return p.machines.begin(ctx, first, jobs)
}

func (p *pushDispatch) run(ctx context.Context) (time.Duration, flaws, error) {
	t := p.current.Load()
	began := time.Now()
	for i := range t.times {
		select {
		case p.jobs <- t.first + i:
		case <-ctx.Done():
			return 0, t.flaws(), context.Cause(ctx)
		}
	}
	if err := t.wait(ctx); err != nil {
		return 0, t.flaws(), err
	}
	return time.Since(began), t.flaws(), nil
}
