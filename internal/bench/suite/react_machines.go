package suite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/internal/bench/child"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const (
	// steadyRole is the process of machines that stay as they are: idle, or with a job
	// that does not end.
	steadyRole = "steady-machines"
	// streamsPerConnection is how many machines share a connection, as behind a proxy:
	// what a connection of its own costs is another benchmark's business.
	streamsPerConnection = 100
	// maxWaitingAssigns bounds what a machine was given and has not accepted.
	maxWaitingAssigns = 4
)

// startSteadyMachines returns once a machine for each pool is registered;
// instances has the instance of each pool's.
func startSteadyMachines(ctx context.Context, addr string, instances []string) (*child.Process, error) {
	p, err := child.Start(steadyRole, addr)
	if err != nil {
		return nil, err
	}
	for pool, id := range instances {
		if err := p.Say("machine", pool, id); err != nil {
			p.Stop()
			return nil, err
		}
	}
	if err := p.Say("start"); err != nil {
		p.Stop()
		return nil, err
	}
	if _, err := p.Hear(ctx, "connected"); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// runSteadyMachines is the child: ADDR.
func runSteadyMachines(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("a child needs an address, got %q", args)
	}
	var all []*steadyMachine
	return child.Orders(func(order string, words []string) error {
		switch {
		case order == "machine" && len(words) == 2:
			pool, err := strconv.Atoi(words[0])
			if err != nil {
				return err
			}
			all = append(all, &steadyMachine{pool: pool, instance: words[1], assigned: make(chan *runnerv1.Assign, maxWaitingAssigns)})
			return nil
		case order == "start":
			return connectSteady(args[0], all)
		default:
			return fmt.Errorf("unknown order %s %q", order, words)
		}
	})
}

// connectSteady answers once all machines are registered; they go on until the
// process ends.
func connectSteady(addr string, all []*steadyMachine) error {
	var registered sync.WaitGroup
	failed := make(chan error, len(all))
	var conn *grpc.ClientConn
	for i, m := range all {
		if i%streamsPerConnection == 0 {
			var err error
			if conn, err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				return err
			}
		}
		registered.Add(1)
		m.registered = sync.OnceFunc(registered.Done)
		go func() { failed <- m.serve(conn) }()
	}
	ready := make(chan struct{})
	go func() { registered.Wait(); close(ready) }()
	select {
	case <-ready:
		child.Answer("connected")
		return nil
	case err := <-failed:
		return err
	}
}

// steadyMachine is one stream. It takes a job and never ends it.
type steadyMachine struct {
	pool       int
	instance   string
	registered func()
	assigned   chan *runnerv1.Assign
}

func (m *steadyMachine) serve(conn *grpc.ClientConn) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+poolToken(m.pool))
	rpc, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	register := &runnerv1.Register{MachineId: "machine-" + m.instance, InstanceId: m.instance, Capacity: 1}
	if err := rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: register}}); err != nil {
		return err
	}
	said, err := rpc.Recv()
	if err != nil {
		return err
	}
	every := said.GetRegistered().GetHeartbeatEvery().AsDuration()
	if every <= 0 {
		return errors.New("the router did not say how often to send heartbeats")
	}
	m.registered()
	go m.listen(rpc)
	return m.beat(rpc, every)
}

// listen takes what the router says until the stream ends.
func (m *steadyMachine) listen(rpc runnerv1.RunnerService_ConnectClient) {
	defer close(m.assigned)
	for {
		said, err := rpc.Recv()
		if err != nil {
			return
		}
		if a := said.GetAssign(); a != nil {
			m.assigned <- a
		}
	}
}

// beat sends heartbeats, and accepts jobs.
func (m *steadyMachine) beat(rpc runnerv1.RunnerService_ConnectClient, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	h := &runnerv1.Heartbeat{}
	for {
		select {
		case <-ticker.C:
			h.Sequence++
			if err := rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: h}}); err != nil {
				return err
			}
		case a, ok := <-m.assigned:
			if !ok {
				return errors.New("the router has ended the stream")
			}
			h.Busy++
			h.Running = append(h.Running, &runnerv1.RunningJob{JobId: a.GetJob().GetId(), Attempt: a.GetAttempt()})
			accepted := &runnerv1.JobAccepted{JobId: a.GetJob().GetId(), Attempt: a.GetAttempt()}
			if err := rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: accepted}}); err != nil {
				return err
			}
		}
	}
}
