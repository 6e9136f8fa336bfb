package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// hiccups is a toxic store whose events get lost, too: the reader is told, as it is when
// a connection has broken.
type hiccups struct {
	toxic

	rng  *rand.Rand
	mu   sync.Mutex
	lost atomic.Int64
	calm atomic.Bool
}

func (h *hiccups) unlucky() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.calm.Load() && h.rng.IntN(3) == 0
}

func (h *hiccups) Subscribe(ctx context.Context) (<-chan store.EventBatch, error) {
	batches, err := h.toxic.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan store.EventBatch)
	go func() {
		defer close(out)
		lost := false
		for batch := range batches {
			if h.unlucky() {
				h.lost.Add(1)
				lost = true
				batch.Events = nil
			}
			batch.Lost = batch.Lost || lost && (h.unlucky() || h.calm.Load())
			lost = lost && !batch.Lost
			select {
			case out <- batch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// cluster is some planes over one store, of which one may be killed at any time and is
// replaced by another.
type cluster struct {
	t     *testing.T
	store *store.Store
	rng   *rand.Rand // of the one who kills
	mu    sync.Mutex
	live  []*plane
	ill   []*hiccups
	made  int
}

func (c *cluster) start() {
	c.made++
	h := &hiccups{rng: rand.New(rand.NewPCG(c.rng.Uint64(), 1))}
	p := startPlane(c.t, planeConfig{
		store: c.store, quiet: true,
		wrap: func(s *store.Store) fullStore { h.Store = s; return h },
		options: session.Options{
			Replica: fmt.Sprintf("replica-%d", c.made), ClaimTTL: 600 * time.Millisecond, ReapEvery: 100 * time.Millisecond,
			Timeouts: router.Timeouts{Assigned: 300 * time.Millisecond},
		},
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.ill = append(c.live, p), append(c.ill, h)
}

// kill ends a plane without a last word to the store.
func (c *cluster) kill() {
	c.mu.Lock()
	p, h := c.live[0], c.ill[0]
	c.live, c.ill = c.live[1:], c.ill[1:]
	c.mu.Unlock()
	h.away.Store(true)
	p.stop()
}

// addr is where some live plane listens.
func (c *cluster) addr(rng *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[rng.IntN(len(c.live))].addr
}

// weather lets calls of the store fail now and then, and planes die, one at least.
func (c *cluster) weather(until time.Time) {
	for first := c.made; time.Now().Before(until) || c.made == first; {
		c.mu.Lock()
		for _, h := range c.ill {
			h.away.Store(c.rng.IntN(3) == 0)
		}
		c.mu.Unlock()
		<-time.After(time.Duration(20+c.rng.IntN(60)) * time.Millisecond)
		if c.rng.IntN(8) == 0 {
			c.start()
			c.kill()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.ill {
		h.away.Store(false)
		h.calm.Store(true)
	}
}

// dialTo opens a connection that belongs to the caller.
func dialTo(t *testing.T, addr string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return conn
}

// follower pushes jobs and keeps what it is told of them, over streams that it breaks.
type follower struct {
	c       *cluster
	rng     *rand.Rand
	jobs    []*typesv1.Job
	acked   map[string]bool
	told    map[string][]*typesv1.JobTransition
	wrong   []string
	streams int
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil && !f.complete() {
		f.oneStream(ctx)
	}
}

func (f *follower) complete() bool {
	for _, j := range f.jobs {
		told := f.told[j.GetId()]
		if len(told) == 0 || !terminal(last(told).GetState()) {
			return false
		}
	}
	return true
}

func terminal(s typesv1.JobState) bool {
	return s == completed || s == failed || s == canceled || s == rejected
}

func (f *follower) oneStream(ctx context.Context) {
	f.streams++
	conn := dialTo(f.c.t, f.c.addr(f.rng))
	defer conn.Close()
	// In the middle of whatever comes; on a busy machine nothing might ever come in time.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(30+f.rng.IntN(400)+10*f.streams)*time.Millisecond)
	defer cancel()
	rpc, err := jobsv1.NewJobServiceClient(conn).Push(ctx)
	if err != nil {
		return
	}
	for _, j := range f.jobs {
		request := &jobsv1.PushRequest{Job: j, Report: true}
		if f.acked[j.GetId()] {
			request = &jobsv1.PushRequest{Resume: []*jobsv1.JobPosition{{JobId: j.GetId(), AfterSequence: int64(len(f.told[j.GetId()]))}}}
		}
		_ = rpc.Send(request) // when it fails, Recv does
	}
	for n := 0; n < 1+f.rng.IntN(300); n++ {
		m, err := rpc.Recv()
		if err != nil {
			return
		}
		f.take(m)
	}
}

func (f *follower) take(m *jobsv1.PushResponse) {
	id, report := m.GetJobId(), m.GetReport()
	if report == nil {
		if s := m.GetStatus(); s == jobsv1.PushStatus_PUSH_STATUS_ACCEPTED || s == jobsv1.PushStatus_PUSH_STATUS_DUPLICATE {
			f.acked[id] = true
		}
		return
	}
	if report.GetGap() || report.GetUnknown() || len(report.GetTransitions()) == 0 {
		f.wrong = append(f.wrong, fmt.Sprintf("%s: %v", id, report))
	}
	for _, tr := range report.GetTransitions() {
		if tr.GetSequence() != int64(len(f.told[id])+1) {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: %d after %d", id, tr.GetSequence(), len(f.told[id])))
		}
		f.told[id] = append(f.told[id], tr)
	}
}

// restless runs jobs, refuses some, leaves some behind, and moves from plane to plane.
type restless struct {
	c   *cluster
	id  string
	rng *rand.Rand
	has map[string]int32
}

func (m *restless) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.oneStream(ctx)
	}
}

func (m *restless) oneStream(ctx context.Context) {
	conn := dialTo(m.c.t, m.c.addr(m.rng))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+linuxToken), time.Duration(100+m.rng.IntN(900))*time.Millisecond)
	defer cancel()
	rpc, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	if err != nil {
		return
	}
	if m.rng.IntN(4) == 0 {
		m.has = map[string]int32{} // it was started anew
	}
	reg := &runnerv1.Register{MachineId: m.id, Capacity: 1}
	for id, attempt := range m.has {
		reg.Running = append(reg.Running, &runnerv1.RunningJob{JobId: id, Attempt: attempt})
	}
	_ = rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: reg}})
	for {
		message, err := rpc.Recv()
		if err != nil {
			return
		}
		switch {
		case message.GetAssign() != nil:
			m.do(rpc, message.GetAssign())
		case message.GetStatusAck() != nil:
			delete(m.has, message.GetStatusAck().GetJobId())
		}
		for id, attempt := range m.has {
			if m.rng.IntN(3) > 0 {
				_ = rpc.Send(doneWith(&runnerv1.Assign{Job: &typesv1.Job{Id: id}, Attempt: attempt}))
			}
		}
	}
}

func (m *restless) do(rpc runnerv1.RunnerService_ConnectClient, a *runnerv1.Assign) {
	id := a.GetJob().GetId()
	if m.rng.IntN(10) == 0 {
		return // and says nothing
	}
	_ = rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: id, Attempt: a.GetAttempt()}}})
	m.has[id] = a.GetAttempt()
}

// TestA16_EachTransitionIsToldOnceWhateverBreaks: streams break, replicas are killed, the
// store fails and its events get lost. A caller that resumes is told each transition of
// each of its jobs once, in order, to the end.
func TestA16_EachTransitionIsToldOnceWhateverBreaks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := &cluster{t: t, store: s, rng: rand.New(rand.NewPCG(seed, 0))}
	c.start()
	c.start()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var machines, callers sync.WaitGroup
	running, stopMachines := context.WithCancel(ctx)
	for i := range uint64(6) {
		m := &restless{c: c, id: fmt.Sprintf("m%d", i), rng: rand.New(rand.NewPCG(seed, 10+i)), has: map[string]int32{}}
		machines.Go(func() { m.run(running) })
	}
	followers := make([]*follower, 3)
	for i := range followers {
		f := &follower{c: c, rng: rand.New(rand.NewPCG(seed, 20+uint64(i))), acked: map[string]bool{}, told: map[string][]*typesv1.JobTransition{}}
		for k := range 40 {
			j := job(fmt.Sprintf("f%d-%d", i, k))
			j.MaxAttempts = 100 // that nothing ends in quarantine before the weather does
			f.jobs = append(f.jobs, j)
		}
		followers[i] = f
		callers.Go(func() { f.run(ctx) })
	}
	c.weather(time.Now().Add(2500 * time.Millisecond))
	callers.Wait()
	stopMachines()
	machines.Wait()
	again, lost := 0, int64(0)
	for _, f := range followers {
		require.Empty(t, f.wrong)
		require.True(t, f.complete(), "not everything was told")
		require.Greater(t, f.streams, 1)
		for id, told := range f.told {
			record, err := s.Get(t.Context(), spillway.JobID(id))
			require.NoError(t, err)
			kept := session.RecordToProto(&record, "").GetTransitions()
			require.Equal(t, len(told), int(record.Sequence()), id)
			for i, tr := range kept {
				require.True(t, proto.Equal(tr, told[len(told)-len(kept)+i]), "%s: %v", id, tr)
			}
			if record.Attempt > 1 {
				again++
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.ill {
		lost += h.lost.Load()
	}
	require.Greater(t, c.made, 2, "a run without a killed replica proves less")
	require.Positive(t, again, "nor does one without second attempts")
	t.Logf("%d replicas, %d jobs with several attempts, %d batches of events lost at the last replicas", c.made, again, lost)
}
