package coordinator_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

const (
	// patience is how long a test waits for what must come; nothing is asserted about how
	// long it takes.
	patience = 80 * time.Second
	tick     = 5 * time.Millisecond
)

// configured is the pool of the configuration of the tests.
func configured() spillway.Pool {
	return spillway.Pool{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 1, Provider: "cloud"}
}

// plane is one replica.
type plane struct {
	*coordinator.Server
	t          testing.TB
	store      *store.Store
	dispatcher *session.Dispatcher
	stop       func()
	seen       *seen
}

// settings are what a test changes; zero fields mean what most tests want.
type settings struct {
	store   *store.Store
	replica string
	options coordinator.Options
	timing  session.Options
	wrapped func(*store.Store) session.Store // what the dispatcher has for a store
	known   func(registered []spillway.Pool) // told what the router knows; may be nil
}

// brief is times in which silence and the like come to pass while a test waits. A worker
// of a test is slower than that on a busy machine, so that all but the one test that does
// not mind use it in a bubble, where only who waits lets time pass.
func brief(s settings) settings {
	s.timing.HeartbeatEvery, s.timing.SilentAfter, s.timing.Grace = 200*time.Millisecond, 700*time.Millisecond, 300*time.Millisecond
	s.timing.Timeouts.Assigned = 800 * time.Millisecond
	return s
}

// inItsTime brings the clock of a bubble, which begins in 2000, to times that a store keeps.
func inItsTime() { time.Sleep(time.Until(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))) }

func start(t testing.TB, cfg settings) *plane {
	t.Helper()
	inItsTime()
	p := &plane{t: t, store: cfg.store, seen: &seen{}}
	if p.store == nil {
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		p.store = s
	}
	pools := []spillway.Pool{configured()}
	timing := cfg.timing
	timing.Replica, timing.Pools, timing.AckDelay = cfg.replica, pools, time.Millisecond
	if timing.Replica == "" {
		timing.Replica = "replica-1"
	}
	var err error
	known := session.Store(p.store)
	if cfg.wrapped != nil {
		known = cfg.wrapped(p.store)
	}
	p.dispatcher, err = session.NewDispatcher(known, timing)
	require.NoError(t, err)
	opt := cfg.options
	opt.Replica, opt.SilentAfter, opt.AcceptTimeout = timing.Replica, timing.SilentAfter, timing.Timeouts.Assigned
	opt.Configured = func() []coordinator.Configured {
		return []coordinator.Configured{
			{Pool: pools[0], MinIdle: 1, Max: 7},
			{Pool: spillway.Pool{Name: "of-gitlab", Capability: spillway.Capability{Tags: []string{"x"}, Origin: "https://gitlab.example.com"}, CapacityPerInstance: 1}},
		}
	}
	opt.Replace = func(registered []spillway.Pool) error {
		for _, r := range registered {
			if r.Name == "of-a-cell" {
				return fmt.Errorf("pool %s: %w", r.Name, spillway.ErrInvalid)
			}
		}
		if cfg.known != nil {
			cfg.known(registered)
		}
		p.dispatcher.SetPools(append(registered, pools...))
		return nil
	}
	if opt.PollWait == 0 {
		opt.PollWait = 100 * time.Millisecond
	}
	opt.Events = p.seen.events()
	jobs := session.NewJobs(p.dispatcher, p.store, p.store, nil)
	p.Server, err = coordinator.New(p.dispatcher, jobs, p.store, opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.dispatcher.Run(ctx) })
	running.Go(func() { p.Run(ctx) })
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.stop)
	return p
}

// seen is what a replica has told.
type seen struct {
	mu       sync.Mutex
	detached []coordinator.WorkerDetached
	polled   map[coordinator.PollOutcome]int
	reported map[coordinator.ReportOutcome]int
	submits  map[coordinator.SubmitOutcome]int
}

func (s *seen) events() coordinator.Events {
	s.polled, s.reported, s.submits = map[coordinator.PollOutcome]int{}, map[coordinator.ReportOutcome]int{}, map[coordinator.SubmitOutcome]int{}
	locked := func(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }
	return coordinator.Events{
		WorkerAttached: func(e coordinator.WorkerAttached) { _ = e.String() },
		WorkerDetached: func(e coordinator.WorkerDetached) {
			_ = e.String()
			locked(func() { s.detached = append(s.detached, e) })
		},
		Polled:      func(o coordinator.PollOutcome) { locked(func() { s.polled[o]++ }) },
		Reported:    func(o coordinator.ReportOutcome) { locked(func() { s.reported[o]++ }) },
		Submitted:   func(o coordinator.SubmitOutcome) { locked(func() { s.submits[o]++ }) },
		PoolChanged: func(e coordinator.PoolChanged) { _ = e.String() },
	}
}

func as(name string) context.Context {
	return access.With(context.Background(), access.Identity{Name: name, Via: access.ViaToken, Roles: access.Roles()})
}

func (p *plane) register(name string, tags ...string) {
	p.t.Helper()
	_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: name, Tags: tags, MinIdle: 1, Max: 20})
	require.NoError(p.t, err)
}

func (p *plane) submit(pool, id string) {
	p.t.Helper()
	resp, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: pool, Job: job(id)})
	require.NoError(p.t, err)
	require.Equal(p.t, id, resp.GetJobId())
}

func job(id string) *pb.Job {
	return &pb.Job{Id: id, ProjectId: 7, Script: "echo " + id, EnvVariables: map[string]string{"ID": id}, TimeoutSeconds: 60}
}

// worker is a scripted worker; its calls may go to any replica.
type worker struct {
	t        testing.TB
	id, pool string
	by       string
}

func (p *plane) worker(id, pool string) *worker { return &worker{p.t, id, pool, "workers"} }

func (w *worker) poll(p *plane) (*pb.Job, error) {
	w.t.Helper()
	resp, err := p.PollJob(as(w.by), &pb.PollJobRequest{RunnerId: w.id, PoolName: w.pool})
	if err == nil {
		require.True(w.t, resp.GetHasJob())
	}
	return resp.GetJob(), err
}

// none polls and wants no job.
func (w *worker) none(p *plane) string {
	w.t.Helper()
	_, err := w.poll(p)
	require.Equal(w.t, codes.NotFound, status.Code(err), "%v", err)
	return status.Convert(err).Message()
}

// fetch polls until there is a job.
func (w *worker) fetch(p *plane) (got *pb.Job) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		j, err := w.poll(p)
		if err != nil {
			require.Equal(w.t, codes.NotFound, status.Code(err), "%v", err)
		}
		got = j
		return j != nil
	}, patience, tick)
	return got
}

func (w *worker) beat(p *plane, busy int32) *pb.SendHeartbeatResponse {
	w.t.Helper()
	req := &pb.SendHeartbeatRequest{RunnerId: w.id, PoolName: w.pool, Status: pb.RunnerStatus_RUNNER_STATUS_IDLE, ActiveJobCount: busy}
	if busy > 0 {
		req.Status = pb.RunnerStatus_RUNNER_STATUS_BUSY
	}
	resp, err := p.SendHeartbeat(as(w.by), req)
	require.NoError(w.t, err)
	require.True(w.t, resp.GetAcknowledged())
	return resp
}

func (w *worker) report(p *plane, id string, code int32) error {
	resp, err := p.ReportJobResult(as(w.by), &pb.ReportJobResultRequest{
		JobId: id, RunnerId: w.id, Success: code == 0, ExitCode: code, Stdout: "ran " + id, Stderr: "by " + w.id,
	})
	if err == nil {
		require.True(w.t, resp.GetAcknowledged())
	}
	return err
}

func (p *plane) record(id string) spillway.JobRecord {
	p.t.Helper()
	r, err := p.store.Get(context.Background(), spillway.JobID(id))
	require.NoError(p.t, err)
	return r
}

func (p *plane) waitFor(id string, ok func(r *spillway.JobRecord) bool) (last spillway.JobRecord) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		last = p.record(id)
		return ok(&last)
	}, patience, tick)
	return last
}

func in(state spillway.JobState) func(*spillway.JobRecord) bool {
	return func(r *spillway.JobRecord) bool { return r.State == state }
}

// machine waits until what replicas share of a worker's machine is so.
func (p *plane) machine(runner string, ok func(*router.Machine) bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		all, err := p.store.Machines(context.Background())
		require.NoError(p.t, err)
		for i := range all {
			if string(all[i].ID) == "worker:"+runner && ok(&all[i]) {
				return true
			}
		}
		return false
	}, patience, tick)
}

func requireStatus(t testing.TB, err error, code codes.Code, parts ...string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, part := range parts {
		require.Contains(t, status.Convert(err).Message(), part)
	}
}

func code(err error) codes.Code { return status.Code(err) }

// heap is what is in use after a collection [bytes], stacks included.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
