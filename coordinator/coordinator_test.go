package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

func TestAWorkerRunsAJob(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu", "cuda")
	w := p.worker("w1", "gpu")
	require.Contains(t, w.none(p), "no job for runner w1")
	p.submit("gpu", "a")
	got := w.fetch(p)
	require.Equal(t, "a", got.GetId())
	require.Equal(t, int64(7), got.GetProjectId())
	require.Equal(t, "echo a", got.GetScript())
	require.Equal(t, map[string]string{"ID": "a"}, got.GetEnvVariables())
	require.Equal(t, int32(60), got.GetTimeoutSeconds())
	require.Equal(t, int32(1), got.GetAttempt())
	p.waitFor("a", in(spillway.Running))
	require.Empty(t, w.beat(p, 1).GetEndedJobIds())
	p.machine("w1", func(m *router.Machine) bool {
		return m.Busy == 1 && m.InstanceID == "w1" && m.Pool == "gpu" && m.Capacity == 1
	})
	require.NoError(t, w.report(p, "a", 0))
	r := p.record("a")
	require.Equal(t, spillway.Completed, r.State)
	require.Equal(t, "worker:w1", string(r.Machine))
	require.Equal(t, "ran a\n--- stderr ---\nby w1", string(r.Result.Output))
	w.none(p)
	require.Equal(t, 1, p.seen.polled[coordinator.PollJob])
	require.Equal(t, 1, p.seen.reported[coordinator.ReportStored])
}

func TestHowAJobEnds(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	w := p.worker("w1", "gpu")
	for i, c := range []struct {
		report *pb.ReportJobResultRequest
		state  spillway.JobState
		reason spillway.FailureReason
	}{
		{&pb.ReportJobResultRequest{Success: true}, spillway.Completed, ""},
		{&pb.ReportJobResultRequest{ExitCode: 3}, spillway.Failed, spillway.ScriptFailure},
		{&pb.ReportJobResultRequest{ExitCode: -9}, spillway.Failed, spillway.ScriptFailure},
		{&pb.ReportJobResultRequest{ExitCode: coordinator.TimeLimitExitCode}, spillway.Failed, spillway.JobExecutionTimeout},
		{&pb.ReportJobResultRequest{}, spillway.Failed, spillway.RunnerSystemFailure},
	} {
		id := fmt.Sprint("job-", i)
		p.submit("gpu", id)
		require.Equal(t, id, w.fetch(p).GetId())
		c.report.JobId, c.report.RunnerId, c.report.Attempt = id, "w1", 1
		_, err := p.ReportJobResult(as("workers"), c.report)
		require.NoError(t, err)
		r := p.record(id)
		require.Equal(t, c.state, r.State)
		require.Equal(t, c.reason, r.Result.Reason)
		require.Equal(t, int(c.report.GetExitCode()), r.Result.ExitCode)
	}
}

// C2: a worker that waits gets a job as soon as it is there.
func TestAWaitingWorkerGetsAJobAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings{options: coordinator.Options{PollWait: coordinator.MaxPollWait}, timing: session.Options{SilentAfter: 4 * coordinator.MaxPollWait}})
		p.register("gpu")
		got := make(chan *pb.Job, 1)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			j, _ := p.worker("w1", "gpu").poll(p)
			got <- j
		})
		p.machine("w1", func(m *router.Machine) bool { return m.Connected })
		submitted := time.Now()
		p.submit("gpu", "a")
		waiting.Wait() // it waits for one poll only
		require.Equal(t, "a", (<-got).GetId())
		require.Less(t, time.Since(submitted), time.Second)
	})
}

// The answer has to be there before the caller gives up.
func TestAPollEndsBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings{options: coordinator.Options{PollWait: coordinator.MaxPollWait}, timing: session.Options{SilentAfter: 4 * coordinator.MaxPollWait}})
		p.register("gpu")
		ctx, cancel := context.WithTimeout(as("workers"), 400*time.Millisecond)
		defer cancel()
		_, err := p.PollJob(ctx, &pb.PollJobRequest{RunnerId: "w1", PoolName: "gpu"})
		requireStatus(t, err, codes.NotFound)
		require.NoError(t, ctx.Err())
	})
}

func TestTheNewestPollGetsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings{options: coordinator.Options{PollWait: coordinator.MaxPollWait}, timing: session.Options{SilentAfter: 4 * coordinator.MaxPollWait}})
		p.register("gpu")
		older := make(chan error, 1)
		var waiting sync.WaitGroup
		waiting.Go(func() { _, err := p.worker("w1", "gpu").poll(p); older <- err })
		p.machine("w1", func(m *router.Machine) bool { return m.Connected })
		newer := make(chan *pb.Job, 1)
		require.Eventually(t, func() bool { // until the older one is there to be replaced
			ctx, cancel := context.WithTimeout(as("workers"), 20*time.Millisecond)
			defer cancel()
			_, _ = p.PollJob(ctx, &pb.PollJobRequest{RunnerId: "w1", PoolName: "gpu"})
			return len(older) == 1
		}, patience, tick)
		requireStatus(t, <-older, codes.NotFound, "a newer poll of runner w1")
		waiting.Go(func() { j, _ := p.worker("w1", "gpu").poll(p); newer <- j })
		p.submit("gpu", "a")
		require.Equal(t, "a", (<-newer).GetId())
		waiting.Wait()
	})
}

func TestPools(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu", "b", "a")
	for name, req := range map[string]*pb.RegisterPoolRequest{
		"pool gpu is registered already":                    {Name: "gpu"},
		"pool linux is one of the configuration":            {Name: "linux"},
		"pool of-a-cell is one of the configuration":        {Name: "of-a-cell"},
		"pool of-gitlab is one of the configuration, which": {Name: "of-gitlab"},
	} {
		_, err := p.RegisterPool(as("ops"), req)
		requireStatus(t, err, codes.AlreadyExists, name)
	}
	tags := make([]string, coordinator.MaxTags+1)
	for i := range tags {
		tags[i] = fmt.Sprint("tag-", i)
	}
	for part, req := range map[string]*pb.RegisterPoolRequest{
		"pool name":                   {Name: "Not a name"},
		"pool name \"\"":              {},
		"49 tags, at most 48":         {Name: "p", Tags: tags},
		"min_idle -1":                 {Name: "p", MinIdle: -1},
		"max -1":                      {Name: "p", Max: -1},
		"max 100001":                  {Name: "p", Max: 100_001},
		"min_idle 3 is more than":     {Name: "p", MinIdle: 3, Max: 2},
		"an empty tag":                {Name: "p", Tags: []string{""}},
		"tags that begin with pool: ": {Name: "p", Tags: []string{"pool:gpu"}},
	} {
		_, err := p.RegisterPool(as("ops"), req)
		requireStatus(t, err, codes.InvalidArgument, part)
	}
	_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "p", Tags: tags[1:], MinIdle: 100_000, Max: 100_000})
	require.NoError(t, err)
	_, err = p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "q", MinIdle: 5}) // without a maximum
	require.NoError(t, err)

	list, err := p.ListPools(as("ops"), &pb.ListPoolsRequest{})
	require.NoError(t, err)
	var names []string
	for _, pool := range list.GetPools() {
		names = append(names, pool.GetName())
	}
	require.Equal(t, []string{"gpu", "linux", "p", "q"}, names)
	gpu, linux := list.GetPools()[0], list.GetPools()[1]
	require.Equal(t, []string{"b", "a"}, gpu.GetTags())
	require.Equal(t, []any{int32(1), int32(20), false, int32(1000)}, []any{gpu.GetMinIdle(), gpu.GetMax(), gpu.GetConfigured(), gpu.GetMaxQueued()})
	require.Equal(t, []any{int32(1), int32(7), true}, []any{linux.GetMinIdle(), linux.GetMax(), linux.GetConfigured()})
}

// A pool that is registered is known to the router from then on, whatever else is
// registered meanwhile.
func TestARegisteredPoolIsNotForgotten(t *testing.T) {
	trying, first := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := start(t, settings{known: func(registered []spillway.Pool) {
		knows := func(name string) bool {
			return slices.ContainsFunc(registered, func(p spillway.Pool) bool { return p.Name == name })
		}
		if knows("second") {
			once.Do(func() {
				close(trying)
				select { // for a while, in which the other one is registered, unless it has to wait
				case <-first:
				case <-time.After(300 * time.Millisecond):
				}
			})
		}
		select {
		case <-first:
			if !knows("first") {
				t.Error("the first pool is forgotten")
			}
		default:
		}
	}})
	var registering sync.WaitGroup
	registering.Go(func() {
		<-trying
		_, err := p.RegisterPool(as("ops"), &pb.RegisterPoolRequest{Name: "first"})
		if err != nil {
			t.Error(err)
		}
		close(first)
	})
	p.register("second")
	registering.Wait()
}

func TestAPoolIsTakenAwayWhenNobodyUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, brief(settings{}))
		p.register("gpu", "cuda")
		unregister := func() error {
			_, err := p.UnregisterPool(as("ops"), &pb.UnregisterPoolRequest{Name: "gpu"})
			return err
		}
		p.submit("gpu", "a")
		requireStatus(t, unregister(), codes.FailedPrecondition, "pool gpu has 1 jobs")
		w := p.worker("w1", "gpu")
		w.fetch(p)
		require.NoError(t, w.report(p, "a", 0))
		p.machine("w1", func(m *router.Machine) bool { return m.Connected })
		requireStatus(t, unregister(), codes.FailedPrecondition, "pool gpu has 1 workers")
		require.Eventually(t, func() bool { return unregister() == nil }, patience, tick, "a silent worker is none")
		requireStatus(t, unregister(), codes.NotFound, "pool not found: gpu; there are linux")
		_, err := p.UnregisterPool(as("ops"), &pb.UnregisterPoolRequest{Name: "linux"})
		requireStatus(t, err, codes.FailedPrecondition, "remove it there")
		_, err = w.poll(p)
		requireStatus(t, err, codes.NotFound, "pool not found: gpu")
		p.register("gpu")
		w.none(p)
	})
}

func TestUnknownPools(t *testing.T) {
	p := start(t, settings{})
	for _, pool := range []string{"", "gpu", "of-gitlab"} {
		_, err := p.PollJob(as("w"), &pb.PollJobRequest{RunnerId: "w1", PoolName: pool})
		requireStatus(t, err, codes.NotFound, "pool not found: "+pool, "there are linux")
		_, err = p.SendHeartbeat(as("w"), &pb.SendHeartbeatRequest{RunnerId: "w1", PoolName: pool, Status: pb.RunnerStatus_RUNNER_STATUS_IDLE})
		requireStatus(t, err, codes.NotFound, "pool not found: "+pool)
		_, err = p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: pool, Job: job("a")})
		requireStatus(t, err, codes.NotFound, "pool not found: "+pool)
	}
	require.Zero(t, p.Workers())
	require.Equal(t, 3, p.seen.polls(coordinator.PollRefused))
	require.Zero(t, p.seen.polls(coordinator.PollNone), "nobody was asked")
}

func TestAQueueIsBounded(t *testing.T) {
	p := start(t, settings{options: coordinator.Options{MaxQueued: 3}})
	p.register("gpu")
	p.register("cpu")
	for _, id := range []string{"a", "b", "c"} {
		p.submit("gpu", id)
	}
	_, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: job("d")})
	requireStatus(t, err, codes.ResourceExhausted, "queue of pool gpu is full: 3 jobs wait, at most 3 may")
	p.submit("cpu", "of-another-pool")
	resp, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: job("c")})
	require.NoError(t, err)
	require.True(t, resp.GetDuplicate(), "one that is there needs no place")
	other := job("c")
	other.Script = "another"
	_, err = p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: other})
	requireStatus(t, err, codes.AlreadyExists, "job c is known with another content")
	list, err := p.ListPools(as("ops"), &pb.ListPoolsRequest{})
	require.NoError(t, err)
	require.Equal(t, int32(3), list.GetPools()[1].GetQueued())
	require.Equal(t, "gpu", list.GetPools()[1].GetName())

	w := p.worker("w1", "gpu")
	require.Equal(t, "a", w.fetch(p).GetId())
	p.submit("gpu", "d") // there is room again
	require.Equal(t, 1, p.seen.submits[coordinator.SubmitFull])
	require.Equal(t, 1, p.seen.submits[coordinator.SubmitDuplicate])
}

func TestJobsAreOfTheirPool(t *testing.T) {
	p := start(t, settings{})
	p.register("one", "linux")
	p.register("two", "linux")
	p.submit("one", "a")
	other := p.worker("w2", "two")
	other.none(p)
	configured := p.worker("w3", "linux")
	configured.none(p)
	require.Equal(t, "a", p.worker("w1", "one").fetch(p).GetId())

	// The pool's tag is for whoever pushes.
	_, err := p.store.Push(t.Context(), []spillway.Job{{ID: "b", Script: "true", Requirement: spillway.Requirement{Tags: []string{coordinator.PoolTag("two")}}}})
	require.NoError(t, err)
	p.dispatcher.Poke()
	require.Equal(t, "b", other.fetch(p).GetId())
	// And a pool of the configuration has what asks for its tags.
	p.submit("linux", "c")
	got := ""
	require.Eventually(t, func() bool {
		j, _ := configured.poll(p)
		got = j.GetId()
		return got != ""
	}, patience, tick)
	require.Equal(t, "c", got)
}

func TestBadJobs(t *testing.T) {
	p := start(t, settings{})
	p.register("gpu")
	for part, j := range map[string]*pb.Job{
		"a job needs a script":           {},
		"job id of 129 bytes":            {Id: strings.Repeat("j", 129), Script: "true"},
		"project -1":                     {Script: "true", ProjectId: -1},
		"timeout -1s":                    {Script: "true", TimeoutSeconds: -1},
		"timeout 744h0m1s":               {Script: "true", TimeoutSeconds: 31*24*3600 + 1},
		"environment variable name":      {Script: "true", EnvVariables: map[string]string{"a b": ""}},
		"attempt is not for whoever":     {Script: "true", Attempt: 1},
		"script of 131073 bytes, at mos": {Script: strings.Repeat("x", spillway.MaxScriptBytes+1)},
	} {
		_, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: j})
		requireStatus(t, err, codes.InvalidArgument, part)
	}
	_, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu"})
	requireStatus(t, err, codes.InvalidArgument, "a job needs a script")
	resp, err := p.SubmitJob(as("ci"), &pb.SubmitJobRequest{PoolName: "gpu", Job: &pb.Job{Script: "true"}})
	require.NoError(t, err)
	got := p.worker("w1", "gpu").fetch(p)
	require.Equal(t, resp.GetJobId(), got.GetId(), "an id is made")
	require.Equal(t, int32(3600), got.GetTimeoutSeconds())
}

func TestBadWorkers(t *testing.T) {
	p := start(t, settings{options: coordinator.Options{MaxWorkers: 2}})
	for _, id := range []string{"", "a b", "ä", strings.Repeat("r", coordinator.MaxRunnerIDBytes+1)} {
		_, err := p.PollJob(as("w"), &pb.PollJobRequest{RunnerId: id, PoolName: "linux"})
		requireStatus(t, err, codes.InvalidArgument, "runner_id")
		_, err = p.ReportJobResult(as("w"), &pb.ReportJobResultRequest{RunnerId: id, JobId: "a"})
		requireStatus(t, err, codes.InvalidArgument, "runner_id")
	}
	long := p.worker(strings.Repeat("r", coordinator.MaxRunnerIDBytes), "linux")
	long.none(p)
	for part, req := range map[string]*pb.SendHeartbeatRequest{
		"RUNNER_STATUS_UNSPECIFIED":                    {},
		"status 7":                                     {Status: 7},
		"active_job_count -1":                          {Status: pb.RunnerStatus_RUNNER_STATUS_BUSY, ActiveJobCount: -1},
		"active_job_count 1001":                        {Status: pb.RunnerStatus_RUNNER_STATUS_BUSY, ActiveJobCount: 1001},
		"RUNNER_STATUS_IDLE with active_job_count 1: ": {Status: pb.RunnerStatus_RUNNER_STATUS_IDLE, ActiveJobCount: 1},
		"instance_id":                                  {Status: pb.RunnerStatus_RUNNER_STATUS_IDLE, InstanceId: "a b"},
	} {
		req.RunnerId, req.PoolName = "w1", "linux"
		_, err := p.SendHeartbeat(as("w"), req)
		requireStatus(t, err, codes.InvalidArgument, part)
	}
	p.worker("w2", "linux").none(p)
	_, err := p.worker("w3", "linux").poll(p)
	requireStatus(t, err, codes.ResourceExhausted, "2 workers are attached")
	stranger := &worker{t: t, id: "w2", pool: "linux", by: "somebody"}
	_, err = stranger.poll(p)
	requireStatus(t, err, codes.PermissionDenied, "runner w2 is in use by somebody else")
	requireStatus(t, stranger.report(p, "a", 0), codes.PermissionDenied)
}

func TestOptionsAreValidated(t *testing.T) {
	good := coordinator.Options{Replica: "r", Configured: func() []coordinator.Configured { return nil }, Replace: func([]spillway.Pool) error { return nil }}
	require.NoError(t, good.Validate())
	for _, change := range []func(*coordinator.Options){
		func(o *coordinator.Options) { o.Replica = "" },
		func(o *coordinator.Options) { o.Configured = nil },
		func(o *coordinator.Options) { o.Replace = nil },
		func(o *coordinator.Options) { o.MaxWorkers = coordinator.MaxWorkers + 1 },
		func(o *coordinator.Options) { o.MaxQueued = coordinator.MaxQueued + 1 },
		func(o *coordinator.Options) { o.PollWait = coordinator.MaxPollWait + 1 },
	} {
		bad := good
		change(&bad)
		require.Error(t, bad.Validate())
	}
}
