package coordinator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
)

// chaos is workers that do at random what workers do, and what they should not.
type chaos struct {
	t        *testing.T
	replicas []*plane
	jobs     int

	beside sync.WaitGroup // what workers do besides

	mu    sync.Mutex
	given map[string]bool // "job attempt worker"
	taken map[string][]string
}

// Whatever workers do (die, poll twice, report twice, lie, call other replicas), each
// accepted job ends in exactly one terminal state, with a result of a worker that was
// given that attempt.
func TestEachJobEndsOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	a, b := replicas(t, brief)
	c := &chaos{t: t, replicas: []*plane{a, b}, jobs: 60, given: map[string]bool{}, taken: map[string][]string{}}
	a.register("gpu")
	for i := range c.jobs {
		j := job(fmt.Sprint("job-", i))
		_, err := c.replicas[i%2].SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: j})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var working sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		working.Go(func() { c.work(ctx, r, fmt.Sprint("w", i)) })
	}
	require.Eventually(t, func() bool { return c.open() == 0 }, 2*time.Minute, 50*time.Millisecond)
	cancel()
	working.Wait()
	c.beside.Wait()
	for i := range c.jobs {
		c.judge(fmt.Sprint("job-", i))
	}
}

func (c *chaos) open() (n int) {
	for i := range c.jobs {
		if r := c.replicas[0].record(fmt.Sprint("job-", i)); !r.State.Terminal() {
			n++
		}
	}
	return n
}

// work is one worker's life, and those of its successors under the same name.
func (c *chaos) work(ctx context.Context, r *rand.Rand, id string) {
	for ctx.Err() == nil {
		p := c.replicas[r.IntN(2)]
		switch r.IntN(8) {
		case 0:
			c.beat(p, id, int32(r.IntN(2)))
		case 1: // lies about a job that it may have had, or never had
			job := fmt.Sprint("job-", r.IntN(c.jobs))
			c.report(p, id, job, 1+int32(r.IntN(2)), "a lie of "+id)
		default:
			c.poll(ctx, r, p, id)
		}
	}
}

func (c *chaos) poll(ctx context.Context, r *rand.Rand, p *plane, id string) {
	as := as("workers")
	if r.IntN(10) == 0 { // gives up: the answer may get lost
		var cancel context.CancelFunc
		as, cancel = context.WithTimeout(as, time.Duration(r.IntN(20))*time.Millisecond)
		defer cancel()
	}
	resp, err := p.PollJob(as, &pb.PollJobRequest{RunnerId: id, PoolName: "gpu"})
	if err != nil {
		switch status.Code(err) {
		case codes.NotFound, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		default:
			c.t.Errorf("poll: %v", err)
		}
		return
	}
	got := resp.GetJob()
	c.mu.Lock()
	c.given[fmt.Sprint(got.GetId(), " ", got.GetAttempt(), " ", id)] = true
	c.mu.Unlock()
	switch r.IntN(6) {
	case 0: // dies, and stays away for a while
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(1500)) * time.Millisecond):
		}
		return
	case 1:
		c.beat(p, id, 1)
	case 2:
		c.beside.Go(func() { c.report(p, id, got.GetId(), got.GetAttempt(), "twice") })
	}
	other := c.replicas[r.IntN(2)]
	for range 20 { // until it is stored, or not wanted
		if !c.report(other, id, got.GetId(), got.GetAttempt(), "honest") {
			return
		}
	}
}

func (c *chaos) beat(p *plane, id string, busy int32) {
	req := &pb.SendHeartbeatRequest{RunnerId: id, PoolName: "gpu", Status: pb.RunnerStatus_RUNNER_STATUS_IDLE + pb.RunnerStatus(busy), ActiveJobCount: busy}
	if _, err := p.SendHeartbeat(as("workers"), req); err != nil && status.Code(err) != codes.Unavailable {
		c.t.Errorf("heartbeat: %v", err)
	}
}

// report reports whether it should be done again.
func (c *chaos) report(p *plane, id, job string, attempt int32, what string) (again bool) {
	_, err := p.ReportJobResult(as("workers"), &pb.ReportJobResultRequest{
		JobId: job, RunnerId: id, Attempt: attempt, Success: true, Stdout: fmt.Sprint(job, " ", attempt, " ", id, " ", what),
	})
	switch status.Code(err) {
	case codes.OK:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.taken[job] = append(c.taken[job], fmt.Sprint(job, " ", attempt, " ", id))
		return false
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.FailedPrecondition, codes.NotFound:
		return false
	default:
		c.t.Errorf("report: %v", err)
		return false
	}
}

// judge looks at what has become of a job.
func (c *chaos) judge(id string) {
	t := c.t
	r := c.replicas[0].record(id)
	require.True(t, r.State.Terminal())
	ends := 0
	for _, change := range r.Transitions {
		if change.State.Terminal() {
			ends++
		}
	}
	require.Equal(t, 1, ends, "%s: %v", id, r.Transitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.State == spillway.Failed { // three workers were lost under it
		require.Equal(t, spillway.RunnerSystemFailure, r.Result.Reason)
		require.Empty(t, c.taken[id], "a result that was taken counts")
		return
	}
	words := strings.Fields(string(r.Result.Output))
	by := strings.Join(words[:3], " ")
	require.True(t, c.given[by], "%s: the stored result is of %q, who was not given that", id, by)
	for _, taken := range c.taken[id] {
		require.Equal(t, by, taken, "%s: two attempts were told that theirs counts", id)
	}
}

// A runner that lies gets nothing of the jobs of others, whatever it says.
func TestALiarGetsNoForeignByte(t *testing.T) {
	sequences := 1000
	if testing.Short() {
		sequences = 100
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := start(t, settings{options: coordinator.Options{PollWait: time.Millisecond}})
	p.register("victims")
	p.register("liars")
	victim := p.worker("victim", "victims")
	secret := &pb.Job{Id: "theirs", Script: "echo s3cret-script", EnvVariables: map[string]string{"TOKEN": "s3cret-value"}}
	_, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "victims", Job: secret})
	require.NoError(t, err)
	require.Equal(t, "theirs", victim.fetch(p).GetId())
	before := p.waitFor("theirs", in(spillway.Running))
	for i := range sequences {
		id := fmt.Sprint("liar-", i%7)
		for range 1 + r.IntN(8) {
			runner := []string{id, "victim", "worker:victim"}[r.IntN(3)]
			pool := []string{"liars", "victims", "linux"}[r.IntN(3)]
			if pool == "victims" {
				runner = "victim" // who holds the role may serve any pool, under a name of its own
			}
			answer, err := lie(p, r, runner, pool)
			requireNoSecret(t, answer, err)
		}
		if i%50 == 0 {
			victim.beat(p, 1)
		}
	}
	require.Equal(t, before, p.record("theirs"))
	require.NoError(t, victim.report(p, "theirs", 0))
}

func lie(p *plane, r *rand.Rand, runner, pool string) (proto.Message, error) {
	liar := as("liar")
	switch r.IntN(4) {
	case 0:
		return p.PollJob(liar, &pb.PollJobRequest{RunnerId: runner, PoolName: pool, InstanceId: "victim"})
	case 1:
		return p.SendHeartbeat(liar, &pb.SendHeartbeatRequest{
			RunnerId: runner, PoolName: pool, Status: pb.RunnerStatus(r.IntN(4)), ActiveJobCount: int32(r.IntN(4) - 1), Draining: r.IntN(2) == 0,
		})
	case 2:
		return p.ReportJobResult(liar, &pb.ReportJobResultRequest{
			JobId: []string{"theirs", "nothing", ""}[r.IntN(3)], RunnerId: runner, Success: r.IntN(2) == 0, Attempt: int32(r.IntN(3)), Stdout: "mine",
		})
	default:
		return p.ListPools(liar, &pb.ListPoolsRequest{})
	}
}

func requireNoSecret(t *testing.T, answer proto.Message, err error) {
	t.Helper()
	text := ""
	if err == nil {
		text = prototext.Format(answer)
	}
	require.NotContains(t, text+fmt.Sprint(err), "s3cret")
}

// BenchmarkWorkers holds ten thousand idle workers, each attached and called once, and
// tells what each costs.
//
//	go test ./coordinator -run '^$' -bench Workers -benchtime 1x
func BenchmarkWorkers(b *testing.B) {
	for b.Loop() {
		p := start(b, settings{options: coordinator.Options{PollWait: time.Millisecond}})
		before := heap()
		for i := range coordinator.DefaultMaxWorkers {
			p.worker(fmt.Sprint("w", i), "linux").none(p)
		}
		b.ReportMetric(float64(heap()-before)/coordinator.DefaultMaxWorkers/1024, "KiB/worker")
		p.stop()
	}
}
