package session_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// patience is how long a test waits for what must come. Nothing is asserted about
// how long it takes.
const patience = 80 * time.Second

// tick is how often a test looks.
const tick = 5 * time.Millisecond

// Tokens of the tests' pools.
const (
	linuxToken = "token-of-linux"
	macToken   = "token-of-mac"
)

func linuxPool(capacity int) spillway.Pool {
	return spillway.Pool{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: capacity}
}

func macPool() spillway.Pool {
	return spillway.Pool{Name: "mac", Capability: spillway.Capability{Tags: []string{"mac"}}, CapacityPerInstance: 1}
}

// plane is one control plane: a dispatcher behind a real listener.
type plane struct {
	t          testing.TB
	store      *store.Store
	conn       *grpc.ClientConn
	jobs       jobsv1.JobServiceClient
	seen       *seen
	dispatcher *session.Dispatcher
	addr       string
	memory     *bufconn.Listener // instead of a port; nil: there is one
	stop       func()
}

// planeConfig is what a test changes; zero fields mean what most tests want.
type planeConfig struct {
	store   *store.Store
	wrap    func(*store.Store) fullStore
	options session.Options
	quiet   bool // nobody listens to the events
	// bubble says that the plane is in one, where only who waits lets time pass: a
	// busy machine is slower than the times of some tests. A port would be outside.
	bubble bool
	server []grpc.ServerOption // more of them
}

// fullStore is everything that the session uses.
type fullStore interface {
	session.Store
	session.JobStore
	session.Feed
}

// inItsTime brings the clock of a bubble, which begins in 2000, to times that a store keeps.
func inItsTime() { time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))) }

func startPlane(t testing.TB, cfg planeConfig) *plane {
	t.Helper()
	inItsTime()
	p := &plane{t: t, store: cfg.store, seen: newSeen()}
	if p.store == nil {
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		p.store = s
	}
	var full fullStore = p.store
	if cfg.wrap != nil {
		full = cfg.wrap(p.store)
	}
	opt := cfg.options
	opt.AckDelay = cmp.Or(opt.AckDelay, time.Millisecond) // scripted runners have nothing else to wait for
	if opt.Replica == "" {
		opt.Replica = "replica-1"
	}
	if opt.Pools == nil {
		opt.Pools = []spillway.Pool{linuxPool(1), macPool()}
	}
	if !cfg.quiet {
		opt.Events = p.seen.events()
	}
	d, err := session.NewDispatcher(full, opt)
	require.NoError(t, err)

	tokens := map[string]spillway.Pool{}
	for _, pool := range opt.Pools {
		tokens["token-of-"+pool.Name] = pool
	}
	p.dispatcher = d
	server := grpc.NewServer(append(session.ServerOptions(), cfg.server...)...)
	p.serve(p.listen(cfg.bubble), server, full, session.NewTokens(tokens))
	return p
}

func (p *plane) listen(bubble bool) net.Listener {
	if bubble {
		p.memory = bufconn.Listen(1 << 20)
		return p.memory
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(p.t, err)
	return lis
}

func (p *plane) serve(lis net.Listener, server *grpc.Server, full fullStore, auth session.Authenticator) {
	t, d := p.t, p.dispatcher
	runnerv1.RegisterRunnerServiceServer(server, session.NewRunners(d, auth))
	jobsv1.RegisterJobServiceServer(server, session.NewJobs(d, full, full, nil))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	running.Go(func() { _ = server.Serve(lis) })
	p.addr = lis.Addr().String()
	p.stop = sync.OnceFunc(func() {
		cancel()
		server.Stop()
		running.Wait()
	})
	t.Cleanup(p.stop)
	p.conn = p.dial()
	p.jobs = jobsv1.NewJobServiceClient(p.conn)
}

func (p *plane) dial() *grpc.ClientConn {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if p.memory != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.memory.DialContext(ctx) }))
	}
	conn, err := grpc.NewClient("passthrough:///"+p.addr, options...)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// job is a pushable job for the linux pool.
func job(id string) *typesv1.Job {
	return &typesv1.Job{Id: id, Script: "true", Requirement: &typesv1.Requirement{Tags: []string{"linux"}}}
}

// push pushes jobs on one stream and returns the acknowledgements.
func (p *plane) push(jobs ...*typesv1.Job) []*jobsv1.PushResponse {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rpc, err := p.jobs.Push(ctx)
	require.NoError(p.t, err)
	for _, j := range jobs {
		require.NoError(p.t, rpc.Send(&jobsv1.PushRequest{Job: j}))
	}
	require.NoError(p.t, rpc.CloseSend())
	acks := make([]*jobsv1.PushResponse, len(jobs))
	for i := range acks {
		acks[i], err = rpc.Recv()
		require.NoError(p.t, err)
		require.Equal(p.t, jobs[i].GetId(), acks[i].GetJobId())
	}
	return acks
}

// mustPush pushes and wants all of them accepted.
func (p *plane) mustPush(jobs ...*typesv1.Job) {
	p.t.Helper()
	for _, ack := range p.push(jobs...) {
		require.Equal(p.t, jobsv1.PushStatus_PUSH_STATUS_ACCEPTED, ack.GetStatus(), ack.GetDetail())
	}
}

// record asks for one job.
func (p *plane) record(id string) *typesv1.JobRecord {
	p.t.Helper()
	resp, err := p.jobs.Get(context.Background(), &jobsv1.GetRequest{JobId: id})
	require.NoError(p.t, err)
	return resp.GetRecord()
}

// waitFor waits until a job is in a state, and returns its record.
func (p *plane) waitFor(id string, state typesv1.JobState) *typesv1.JobRecord {
	p.t.Helper()
	var last *typesv1.JobRecord
	require.Eventually(p.t, func() bool {
		last = p.record(id)
		return last.GetState() == state
	}, patience, 5*time.Millisecond, "job %s never came to %s", id, state)
	return last
}

// machine waits until the record of a machine satisfies ok.
func (p *plane) machine(id string, ok func(*router.Machine) bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		all, err := p.store.Machines(context.Background())
		require.NoError(p.t, err)
		for i := range all {
			if string(all[i].ID) == id && ok(&all[i]) {
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond)
}

// runner is a scripted machine.
type runner struct {
	t    testing.TB
	rpc  runnerv1.RunnerService_ConnectClient
	conn *grpc.ClientConn
	end  context.CancelFunc

	registered *runnerv1.Registered
	messages   chan *runnerv1.RouterMessage
	err        error // once messages is closed
	asides     []*runnerv1.RouterMessage
}

// connect opens a stream with a register and waits for the answer.
func (p *plane) connect(token string, reg *runnerv1.Register) *runner {
	p.t.Helper()
	r := p.open(token)
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: reg}})
	r.registered = expect(r, (*runnerv1.RouterMessage).GetRegistered)
	return r
}

// linux connects a machine of the linux pool that runs nothing.
func (p *plane) linux(id string, capacity int32) *runner {
	p.t.Helper()
	return p.connect(linuxToken, &runnerv1.Register{MachineId: id, InstanceId: "i-" + id, Capacity: capacity, Version: "1.0"})
}

// open opens a stream and says nothing.
func (p *plane) open(token string) *runner {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	r := &runner{t: p.t, conn: p.dial(), end: cancel, messages: make(chan *runnerv1.RouterMessage, 4096)}
	var err error
	r.rpc, err = runnerv1.NewRunnerServiceClient(r.conn).Connect(ctx)
	require.NoError(p.t, err)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(r.messages)
		for {
			m, err := r.rpc.Recv()
			if err != nil {
				r.err = err
				return
			}
			r.messages <- m
		}
	})
	p.t.Cleanup(func() { cancel(); reading.Wait() })
	return r
}

func (r *runner) say(m *runnerv1.RunnerMessage) {
	r.t.Helper()
	require.NoError(r.t, r.rpc.Send(m))
}

// ended waits for the stream's end and returns its error.
func (r *runner) ended() error {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-r.messages:
			if !open {
				return r.err
			}
		case <-deadline:
			require.Fail(r.t, "the stream did not end")
		}
	}
}

// expect waits for the next message of one kind; others are kept aside.
func expect[T any](r *runner, get func(*runnerv1.RouterMessage) *T) *T {
	r.t.Helper()
	for i, m := range r.asides {
		if found := get(m); found != nil {
			r.asides = append(r.asides[:i], r.asides[i+1:]...)
			return found
		}
	}
	deadline := time.After(patience)
	for {
		select {
		case m, open := <-r.messages:
			if !open {
				require.Failf(r.t, "stream ended", "while waiting for %T: %v", *new(T), r.err)
			}
			if found := get(m); found != nil {
				return found
			}
			r.asides = append(r.asides, m)
		case <-deadline:
			require.Failf(r.t, "nothing came", "no %T", *new(T))
		}
	}
}

// assigned waits for a job.
func (r *runner) assigned() *runnerv1.Assign {
	r.t.Helper()
	return expect(r, (*runnerv1.RouterMessage).GetAssign)
}

// acked waits for a StatusAck.
func (r *runner) acked() *runnerv1.StatusAck {
	r.t.Helper()
	return expect(r, (*runnerv1.RouterMessage).GetStatusAck)
}

// noAssignAfter makes the machine say something whose answer proves that all that
// was said before has been taken in, and reports whether a job came meanwhile.
func (r *runner) assignedBeforeAnswer() bool {
	r.t.Helper()
	r.finish("no-such-job", 1)
	r.acked()
	for _, m := range r.asides {
		if m.GetAssign() != nil {
			return true
		}
	}
	return false
}

func (r *runner) accept(id string, attempt int32) {
	r.t.Helper()
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: attempt}}})
}

func (r *runner) refuse(id string, attempt int32, code runnerv1.RefusalCode) {
	r.t.Helper()
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{JobId: id, Attempt: attempt, Code: code}}})
}

func (r *runner) finish(id string, attempt int32) {
	r.t.Helper()
	r.result(id, attempt, &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED, Output: []byte("done")})
}

func (r *runner) result(id string, attempt int32, result *typesv1.JobResult) {
	r.t.Helper()
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{JobId: id, Attempt: attempt, Result: result}}})
}

func (r *runner) heartbeat(busy int32, draining bool, running ...*runnerv1.RunningJob) {
	r.t.Helper()
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{Busy: busy, Draining: draining, Running: running}}})
}

// seen collects what the session tells.
type seen struct {
	mu struct {
		sync.Mutex
		lines []string
		count map[string]int
	}
}

func newSeen() *seen {
	s := &seen{}
	s.mu.count = map[string]int{}
	return s
}

func (s *seen) note(kind string, e fmt.Stringer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lines = append(s.mu.lines, e.String())
	s.mu.count[kind]++
}

func (s *seen) times(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.count[kind]
}

// text is all that was told.
func (s *seen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.mu.lines)
}

func (s *seen) events() session.Events {
	return session.Events{
		MachineConnected:    func(e session.MachineConnected) { s.note("connected", e) },
		MachineDisconnected: func(e session.MachineDisconnected) { s.note("disconnected", e) },
		MachineInterrupted:  func(e session.MachineInterrupted) { s.note("interrupted", e) },
		MachineHealth:       func(e session.MachineHealth) { s.note("health", e) },
		StreamRefused:       func(e session.StreamRefused) { s.note("refused stream", e) },
		JobAssigned:         func(e session.JobAssigned) { s.note("assigned", e) },
		JobRefused:          func(e session.JobRefused) { s.note("refused", e) },
		JobStarted:          func(e session.JobStarted) { s.note("started", e) },
		JobFinished:         func(e session.JobFinished) { s.note("finished", e) },
		JobLost:             func(e session.JobLost) { s.note("lost", e) },
		JobQuarantined:      func(e session.JobQuarantined) { s.note("quarantined", e) },
		JobRetried:          func(e session.JobRetried) { s.note("retried", e) },
		JobRejected:         func(e session.JobRejected) { s.note("rejected", e) },
		JobsPushed:          func(e session.JobsPushed) { s.note("pushed", e) },
		Dispatched:          func(e session.Dispatched) { s.note("dispatched", e) },
		StoreTrouble:        func(e session.StoreTrouble) { s.note("trouble", e) },
		Panicked:            func(e session.Panicked) { s.note("panicked", e) },
	}
}

// openDeaf opens a stream that nobody reads.
func (p *plane) openDeaf(token string) runnerv1.RunnerService_ConnectClient {
	p.t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token))
	p.t.Cleanup(cancel)
	rpc, err := runnerv1.NewRunnerServiceClient(p.dial()).Connect(ctx)
	require.NoError(p.t, err)
	return rpc
}

func drainAck(id uint64, draining bool) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_DrainAck{DrainAck: &runnerv1.DrainAck{DrainId: id, Draining: draining}}}
}

// inventedJobs are running jobs that nobody gave out.
func inventedJobs(n int) []*runnerv1.RunningJob {
	list := make([]*runnerv1.RunningJob, n)
	for i := range list {
		list[i] = &runnerv1.RunningJob{JobId: fmt.Sprintf("invented-%d", i), Attempt: 1}
	}
	return list
}
