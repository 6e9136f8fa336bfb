package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

const ownReceiversRole = "own-receivers"

// leftOverTimeout is how long the store may take until the last result is in it.
const leftOverTimeout = 5 * time.Second

// ownCourier is Spillway: a job is pushed on a stream and stored, matched, claimed and
// sent to a machine that waits.
type ownCourier struct {
	*ownRouter
	*receivers

	conn   *grpc.ClientConn
	pushes jobsv1.JobService_PushClient
	acks   chan error     // the outcome of the round's acknowledgements
	left   chan time.Time // when each job that is not acknowledged was pushed
	acked  []float64      // p50 of each round, the warm-up too [ms]
}

func newOwnCourier(ctx context.Context, n int) (_ courier, err error) {
	c := &ownCourier{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.ownRouter, err = startOwnRouter(ctx, session.Events{}, func(s *store.Store) session.Store { return s }); err != nil {
		return nil, err
	}
	if c.receivers, err = startReceivers(ctx, ownReceiversRole, c.addr, n); err != nil {
		return nil, err
	}
	c.conn, err = grpc.NewClient("passthrough:///"+c.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	c.pushes, err = jobsv1.NewJobServiceClient(c.conn).Push(ctx)
	return c, err
}

func (c *ownCourier) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	if c.receivers != nil {
		c.receivers.stop()
	}
	if c.ownRouter != nil {
		c.ownRouter.close()
	}
}

func (c *ownCourier) begin(ctx context.Context, first, jobs int) error {
	c.left, c.acks = make(chan time.Time, jobs), make(chan error, 1)
	go func() { c.acks <- c.hear(jobs) }()
	return c.receivers.begin(ctx, first, jobs)
}

// hear takes the acknowledgements, which come in the order of the pushes.
func (c *ownCourier) hear(jobs int) error {
	took := make([]float64, 0, jobs)
	for range jobs {
		ack, err := c.pushes.Recv()
		if err != nil {
			return err
		}
		if ack.GetStatus() != jobsv1.PushStatus_PUSH_STATUS_ACCEPTED {
			return fmt.Errorf("job %s was not accepted: %s %s", ack.GetJobId(), ack.GetStatus(), ack.GetDetail())
		}
		took = append(took, millis(time.Since(<-c.left)))
	}
	c.acked = append(c.acked, measure.Percentile(took, 50))
	return nil
}

func (c *ownCourier) push(_ context.Context, id int, sent time.Time) error {
	job := wireJob(id)
	job.Script = stamped(sent)
	c.left <- sent // never full: it holds a round
	return c.pushes.Send(&jobsv1.PushRequest{Job: job})
}

func (c *ownCourier) end(ctx context.Context) (arrived, error) {
	select {
	case err := <-c.acks:
		if err != nil {
			return arrived{}, err
		}
	case <-ctx.Done():
		return arrived{}, context.Cause(ctx)
	}
	a, err := c.receivers.end(ctx)
	if err != nil {
		return a, err
	}
	left, err := c.settled(ctx)
	a.lost = max(a.lost, left)
	return a, err
}

// settled is how many jobs the store still has, once their results should be there.
func (c *ownCourier) settled(ctx context.Context) (left int, err error) {
	const every = 50 * time.Millisecond
	for end := time.Now().Add(leftOverTimeout); ; {
		if left, err = c.leftOver(ctx); err != nil || left == 0 || time.Now().After(end) {
			return left, err
		}
		if err := wait(ctx, every); err != nil {
			return left, err
		}
	}
}

// ackSeries is how long the last rounds' pushes took until they were acknowledged.
func (c *ownCourier) ackSeries(rounds int) measure.Series {
	return measure.Series{Name: "Spillway, push → acknowledged, p50", Figures: c.acked[max(0, len(c.acked)-rounds):]}
}

// runOwnReceivers is the child: ADDR N.
func runOwnReceivers(args []string) error {
	addr, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	r := &ownReceivers{}
	r.current.Store(newArrivals(0, 0))
	failed := make(chan error, n)
	var registered sync.WaitGroup
	for i := range n {
		registered.Add(1)
		go func() { failed <- r.serve(addr, i, sync.OnceFunc(registered.Done)) }()
	}
	ready := make(chan struct{})
	go func() { registered.Wait(); close(ready) }()
	select {
	case <-ready:
		return serveAwaiting(r)
	case err := <-failed:
		return err
	}
}

// ownReceivers are machines that stay connected, with heartbeats, also while others have
// their turn: that is what idle machines do.
type ownReceivers struct{ current atomic.Pointer[arrivals] }

func (r *ownReceivers) begin(a *arrivals) error {
	r.current.Store(a)
	return nil
}

func (r *ownReceivers) end() {}

// serve is one machine: it takes what it is given, and has done it at once.
func (r *ownReceivers) serve(addr string, id int, registered func()) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+poolToken(id%dispatchPools))
	rpc, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	m := &receiver{rpc: rpc, current: &r.current}
	register := &runnerv1.Register{MachineId: "machine-" + strconv.Itoa(id), Capacity: 1}
	if err := m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: register}}); err != nil {
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
	registered()
	go m.beat(ctx, every)
	return m.listen()
}

// receiver is a machine's stream.
type receiver struct {
	rpc     runnerv1.RunnerService_ConnectClient
	current *atomic.Pointer[arrivals]
	turn    sync.Mutex // heartbeats and results take turns
}

func (m *receiver) send(said *runnerv1.RunnerMessage) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	return m.rpc.Send(said)
}

// The first heartbeat comes at any time, as an agent's does.
func (m *receiver) beat(ctx context.Context, every time.Duration) {
	h := &runnerv1.Heartbeat{}
	for next := rand.N(every); wait(ctx, next) == nil; next = every {
		h.Sequence++
		if m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: h}}) != nil {
			return // listen knows why
		}
	}
}

func (m *receiver) listen() error {
	for {
		said, err := m.rpc.Recv()
		if err != nil {
			return err
		}
		a := said.GetAssign()
		if a == nil {
			continue
		}
		id, err := jobNumber(a.GetJob().GetId())
		if err != nil {
			return err
		}
		if err := m.current.Load().got(id, a.GetJob().GetScript()); err != nil {
			return err
		}
		if err := m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
			JobId: a.GetJob().GetId(), Attempt: a.GetAttempt(),
			Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
		}}}); err != nil {
			return err
		}
	}
}
