package suite

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/internal/bench/child"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// machinesRole is the process of all machines: each has a connection and a stream of
// its own, and does every job at once.
const machinesRole = "machines"

// machines is the parent's end.
type machines struct{ process *child.Process }

// startMachines returns once all of them are registered.
func startMachines(ctx context.Context, addr string, n int) (*machines, error) {
	p, err := child.Start(machinesRole, addr, strconv.Itoa(n))
	if err != nil {
		return nil, err
	}
	if _, err := p.Hear(ctx, "connected"); err != nil {
		p.Stop()
		return nil, err
	}
	return &machines{p}, nil
}

// begin makes the machines count anew.
func (m *machines) begin(ctx context.Context, first, jobs int) error {
	if err := m.process.Say("begin", first, jobs); err != nil {
		return err
	}
	_, err := m.process.Hear(ctx, "begun")
	return err
}

// report is what the machines have counted.
func (m *machines) report(ctx context.Context) (f flaws, err error) {
	if err := m.process.Say("report"); err != nil {
		return f, err
	}
	text, err := m.process.Hear(ctx, "report")
	if err != nil {
		return f, err
	}
	_, err = fmt.Sscan(text, &f.lost, &f.repeated)
	return f, err
}

func (m *machines) stop() { m.process.Stop() }

// runMachines is the child: ADDR N.
func runMachines(args []string) error {
	addr, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	var current atomic.Pointer[tally]
	current.Store(newTally(0, 0))
	var connected sync.WaitGroup
	failed := make(chan error, n)
	for i := range n {
		connected.Add(1)
		go func() {
			m := machine{id: i, connected: sync.OnceFunc(connected.Done), tally: &current}
			failed <- m.serve(addr)
		}()
	}
	ready := make(chan struct{})
	go func() { connected.Wait(); close(ready) }()
	select {
	case <-ready:
		child.Answer("connected")
	case err := <-failed:
		return err
	}
	return child.Orders(func(order string, words []string) error {
		switch order {
		case "begin":
			t, err := tallyOf(words)
			if err != nil {
				return err
			}
			current.Store(t)
			child.Answer("begun")
		case "report":
			f := current.Load().flaws()
			child.Answer("report", f.lost, f.repeated)
		}
		return nil
	})
}

func addrAndCount(args []string) (string, int, error) {
	if len(args) != 2 {
		return "", 0, fmt.Errorf("a child needs an address and a number, got %q", args)
	}
	n, err := strconv.Atoi(args[1])
	return args[0], n, err
}

func tallyOf(words []string) (*tally, error) {
	if len(words) != 2 {
		return nil, fmt.Errorf("begin needs the first job and their number, got %q", words)
	}
	first, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, err
	}
	jobs, err := strconv.Atoi(words[1])
	if err != nil {
		return nil, err
	}
	return newTally(first, jobs), nil
}

// machine is one connection and its stream.
type machine struct {
	id        int
	connected func()
	tally     *atomic.Pointer[tally]
}

func (m *machine) serve(addr string) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Else gRPC measures the path with a ping for nearly each small message.
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+poolToken(m.id%dispatchPools))
	rpc, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	register := &runnerv1.Register{MachineId: "machine-" + strconv.Itoa(m.id), Capacity: 1, AcksInAssign: true}
	if err := rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: register}}); err != nil {
		return err
	}
	for {
		said, err := rpc.Recv()
		if err != nil {
			return err
		}
		if said.GetRegistered() != nil {
			m.connected()
		}
		if a := said.GetAssign(); a != nil {
			if err := m.do(rpc, a); err != nil {
				return err
			}
		}
	}
}

func (m *machine) do(rpc runnerv1.RunnerService_ConnectClient, a *runnerv1.Assign) error {
	id, err := jobNumber(a.GetJob().GetId())
	if err != nil {
		return err
	}
	m.tally.Load().add(id)
	return rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: a.GetJob().GetId(), Attempt: a.GetAttempt(),
		Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
	}}})
}
