package session_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

const (
	pending   = typesv1.JobState_JOB_STATE_PENDING
	assigned  = typesv1.JobState_JOB_STATE_ASSIGNED
	running   = typesv1.JobState_JOB_STATE_RUNNING
	completed = typesv1.JobState_JOB_STATE_COMPLETED
	failed    = typesv1.JobState_JOB_STATE_FAILED
	rejected  = typesv1.JobState_JOB_STATE_REJECTED
	canceled  = typesv1.JobState_JOB_STATE_CANCELED
)

func TestOneJobsWayIsWatched(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watch, err := p.jobs.Watch(ctx, &jobsv1.WatchRequest{JobIds: []string{"j1"}, UntilTerminal: true})
	require.NoError(t, err)
	next := func() *typesv1.JobRecord {
		m, err := watch.Recv()
		require.NoError(t, err)
		return m.GetRecord()
	}
	require.Equal(t, pending, next().GetState())

	r := p.linux("m1", 1)
	require.Equal(t, "linux", r.registered.GetPool())
	a := r.assigned()
	require.Equal(t, "true", a.GetJob().GetScript())
	require.Equal(t, assigned, next().GetState())
	r.accept("j1", a.GetAttempt())
	require.Equal(t, running, next().GetState())
	r.finish("j1", a.GetAttempt())
	require.False(t, r.acked().GetStale())

	last := next()
	require.Equal(t, completed, last.GetState())
	require.Equal(t, "m1", last.GetMachineId())
	require.Equal(t, "linux", last.GetPool())
	require.Equal(t, r.registered.GetFingerprint(), last.GetCapabilityFingerprint())
	require.Equal(t, "done", string(last.GetResult().GetOutput()))
	require.Empty(t, last.GetJob().GetScript(), "a script is the runner's only")
	_, err = watch.Recv()
	require.Error(t, err, "the watch ends with the job")
	require.Eventually(t, func() bool { return p.seen.times("finished") == 1 }, patience, tick)
}

func TestPushAnswersForEachJobInOrder(t *testing.T) {
	p := startPlane(t, planeConfig{})
	other := job("j1")
	other.Script = "false"
	bad := &typesv1.Job{Id: "bad", Priority: 12}
	acks := p.push(job("j1"), job("j1"), other, bad, job("j2"), &typesv1.Job{})
	var got []jobsv1.PushStatus
	for _, ack := range acks {
		got = append(got, ack.GetStatus())
	}
	require.Equal(t, []jobsv1.PushStatus{
		jobsv1.PushStatus_PUSH_STATUS_ACCEPTED,
		jobsv1.PushStatus_PUSH_STATUS_DUPLICATE,
		jobsv1.PushStatus_PUSH_STATUS_CONFLICT,
		jobsv1.PushStatus_PUSH_STATUS_INVALID,
		jobsv1.PushStatus_PUSH_STATUS_ACCEPTED,
		jobsv1.PushStatus_PUSH_STATUS_INVALID,
	}, got)
	require.Contains(t, acks[3].GetDetail(), "priority 12")
	require.Contains(t, acks[3].GetDetail(), "a job needs a script", "every reason is told")
}

func TestPushIsPipelined(t *testing.T) {
	p := startPlane(t, planeConfig{})
	jobs := make([]*typesv1.Job, 3000)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("j%d", i))
	}
	p.mustPush(jobs...)
}

// waiting is a store that takes nothing before it is let.
type waiting struct {
	*store.Store

	let    chan struct{}
	pushes atomic.Int32
}

func (w *waiting) Push(ctx context.Context, jobs []spillway.Job) ([]store.PushOutcome, error) {
	w.pushes.Add(1)
	<-w.let
	return w.Store.Push(ctx, jobs)
}

// pushedAtOnce is a stream on which jobs are there before the store answers for the first.
type pushedAtOnce struct {
	grpc.ServerStream

	ctx  context.Context
	jobs []*typesv1.Job
	all  func() // is called when all were taken in
	acks []*jobsv1.PushResponse
}

func (s *pushedAtOnce) Context() context.Context { return s.ctx }

func (s *pushedAtOnce) Recv() (*jobsv1.PushRequest, error) {
	if len(s.jobs) == 0 {
		s.all()
		return nil, io.EOF
	}
	next := &jobsv1.PushRequest{Job: s.jobs[0]}
	s.jobs = s.jobs[1:]
	return next, nil
}

func (s *pushedAtOnce) Send(m *jobsv1.PushResponse) error {
	s.acks = append(s.acks, m)
	return nil
}

// What comes while the store is asked goes into one call, and is acknowledged in order.
func TestJobsThatComeMeanwhileGoIntoOneCall(t *testing.T) {
	w := &waiting{let: make(chan struct{})}
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { w.Store = s; return w }})
	s := &pushedAtOnce{ctx: t.Context(), all: func() { close(w.let) }}
	for i := range 500 {
		s.jobs = append(s.jobs, job(fmt.Sprintf("j%d", i)))
	}
	pushed := s.jobs
	require.NoError(t, session.NewJobs(p.dispatcher, w, w, nil).Push(s))
	require.LessOrEqual(t, w.pushes.Load(), int32(2), "what was there at first, and all the rest")
	require.Len(t, s.acks, len(pushed))
	for i, ack := range s.acks {
		require.Equal(t, pushed[i].GetId(), ack.GetJobId())
		require.Equal(t, jobsv1.PushStatus_PUSH_STATUS_ACCEPTED, ack.GetStatus())
	}
}

func TestPushWhileTheStoreIsAway(t *testing.T) {
	x := &toxic{}
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { x.Store = s; return x }})
	x.away.Store(true)
	require.Equal(t, jobsv1.PushStatus_PUSH_STATUS_UNAVAILABLE, p.push(job("j1"))[0].GetStatus())
	x.away.Store(false)
	p.mustPush(job("j1"))
}

func TestAFullRunnerRefusesAndAnotherTakesTheJob(t *testing.T) { // A5
	p := startPlane(t, planeConfig{})
	full := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := full.assigned()
	full.refuse("j1", a.GetAttempt(), runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)
	other := p.linux("m2", 1)
	b := other.assigned()
	require.Equal(t, "j1", b.GetJob().GetId())
	require.Greater(t, b.GetAttempt(), a.GetAttempt())
	require.False(t, full.assignedBeforeAnswer(), "it said that it was full, and no heartbeat says otherwise")
	other.finish("j1", b.GetAttempt())
	require.False(t, other.acked().GetStale())
	p.waitFor("j1", completed)
	require.Zero(t, p.seen.times("lost"), "a refusal is not a loss")
}

func TestAJobThatNobodyAcceptsGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPlane(t, planeConfig{bubble: true, options: session.Options{Timeouts: router.Timeouts{Assigned: 100 * time.Millisecond}}})
		mute := p.linux("m1", 1)
		p.mustPush(job("j1"))
		a := mute.assigned()
		other := p.linux("m2", 1)
		b := other.assigned()
		require.Equal(t, a.GetAttempt()+1, b.GetAttempt())
		mute.accept("j1", a.GetAttempt()) // too late
		require.Equal(t, "j1", expect(mute, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())
		other.finish("j1", b.GetAttempt())
		p.waitFor("j1", completed)
	})
}

func TestCancel(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := r.assigned()
	r.accept("j1", a.GetAttempt())
	p.mustPush(job("j2"))
	resp, err := p.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{JobIds: []string{"j1", "j2", "nobody"}, Reason: "not needed"})
	require.NoError(t, err)
	require.Len(t, resp.GetResults(), 3)
	for i, id := range []string{"j1", "j2"} {
		require.Equal(t, id, resp.GetResults()[i].GetJobId())
		require.True(t, resp.GetResults()[i].GetFound())
		require.Equal(t, canceled, resp.GetResults()[i].GetState())
	}
	require.False(t, resp.GetResults()[2].GetFound())
	require.Equal(t, "j1", expect(r, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())
	r.result("j1", a.GetAttempt(), &typesv1.JobResult{State: canceled})
	require.True(t, r.acked().GetStale())
	require.Contains(t, p.record("j1").GetResult().GetDetail(), "not needed")

	_, err = p.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{JobIds: make([]string, session.MaxIDsPerCall+1)})
	requireCode(t, codes.InvalidArgument, err)
	_, err = p.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{})
	requireCode(t, codes.InvalidArgument, err)
}

func TestACancelOnAnotherReplicaReachesTheMachine(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{RenewEvery: 200 * time.Millisecond}})
	q := startPlane(t, planeConfig{store: p.store, options: session.Options{Replica: "replica-2"}})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	r.accept("j1", r.assigned().GetAttempt())
	p.waitFor("j1", running)
	_, err := q.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{JobIds: []string{"j1"}})
	require.NoError(t, err)
	require.Equal(t, "j1", expect(r, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())
}

func TestAnUnmatchedJobIsRejectedWithTheReason(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Timeouts: router.Timeouts{Unmatched: 50 * time.Millisecond}}})
	odd := job("odd")
	odd.Requirement.Tags = []string{"linux", "Mac"}
	p.mustPush(odd, job("fits"))
	r := p.waitFor("odd", rejected)
	require.Equal(t, string(spillway.Unmatched), r.GetResult().GetReason())
	require.Contains(t, r.GetResult().GetDetail(), `lacks the tag`)
	require.Contains(t, r.GetResult().GetDetail(), `"Mac"`)
	require.Equal(t, pending, p.record("fits").GetState(), "a job that a pool can take goes on waiting")
}

func TestAJobThatWaitsTooLongFails(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Timeouts: router.Timeouts{Pending: 50 * time.Millisecond}}})
	p.mustPush(job("j1"))
	require.Equal(t, string(spillway.PendingTimeout), p.waitFor("j1", failed).GetResult().GetReason())
}

func TestGetAndList(t *testing.T) {
	p := startPlane(t, planeConfig{})
	_, err := p.jobs.Get(context.Background(), &jobsv1.GetRequest{JobId: "nobody"})
	requireCode(t, codes.NotFound, err)
	_, err = p.jobs.Get(context.Background(), &jobsv1.GetRequest{JobId: "two words"})
	requireCode(t, codes.InvalidArgument, err)

	p.mustPush(job("j1"), job("j2"), job("j3"))
	ctx := context.Background()
	page, err := p.jobs.List(ctx, &jobsv1.ListRequest{PageSize: 2})
	require.NoError(t, err)
	require.Len(t, page.GetRecords(), 2)
	require.Equal(t, "j3", page.GetRecords()[0].GetJob().GetId(), "the newest first")
	rest, err := p.jobs.List(ctx, &jobsv1.ListRequest{PageSize: 2, PageToken: page.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, rest.GetRecords(), 1)
	none, err := p.jobs.List(ctx, &jobsv1.ListRequest{States: []typesv1.JobState{running}})
	require.NoError(t, err)
	require.Empty(t, none.GetRecords())

	for _, wrong := range []*jobsv1.ListRequest{
		{PageSize: -1},
		{PageSize: session.MaxPage + 1},
		{PageToken: "made up"},
		{States: []typesv1.JobState{99}},
		{States: make([]typesv1.JobState, 20)},
	} {
		_, err := p.jobs.List(ctx, wrong)
		requireCode(t, codes.InvalidArgument, err)
	}
}

func TestAPageIsCutToWhatClientsReceive(t *testing.T) {
	p := startPlane(t, planeConfig{})
	jobs := make([]*typesv1.Job, 60)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("j%d", i))
		jobs[i].Requirement.Groups = make([]int64, spillway.MaxScopeEntries)
		for g := range jobs[i].Requirement.Groups {
			jobs[i].Requirement.Groups[g] = 1<<62 + int64(g)
		}
	}
	p.mustPush(jobs...)
	listed, token := 0, ""
	for {
		page, err := p.jobs.List(context.Background(), &jobsv1.ListRequest{PageSize: 1000, PageToken: token})
		require.NoError(t, err, "a page must fit into a client's usual limit")
		listed += len(page.GetRecords())
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, len(jobs), listed)
}

func TestWatchRefuses(t *testing.T) {
	p := startPlane(t, planeConfig{})
	for want, req := range map[codes.Code]*jobsv1.WatchRequest{
		codes.NotFound:        {JobIds: []string{"nobody"}},
		codes.InvalidArgument: {UntilTerminal: true},
	} {
		watch, err := p.jobs.Watch(context.Background(), req)
		require.NoError(t, err)
		_, err = watch.Recv()
		requireCode(t, want, err)
	}
}

func TestWatchOfEverything(t *testing.T) {
	p := startPlane(t, planeConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watch, err := p.jobs.Watch(ctx, &jobsv1.WatchRequest{})
	require.NoError(t, err)
	// The watch is on when its first change arrives: push until one does.
	arrived := make(chan *jobsv1.WatchResponse, 1)
	go func() {
		if m, err := watch.Recv(); err == nil {
			arrived <- m
		}
	}()
	for i := 0; ; i++ {
		p.mustPush(job(fmt.Sprintf("j%d", i)))
		select {
		case m := <-arrived:
			require.Equal(t, pending, m.GetRecord().GetState())
			return
		case <-ctx.Done():
			require.Fail(t, "nothing was told")
		default:
		}
	}
}

func TestASlowWatcherIsEnded(t *testing.T) {
	ended := make(chan struct{})
	p := startPlane(t, planeConfig{server: []grpc.ServerOption{
		grpc.StreamInterceptor(func(srv any, rpc grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if info.FullMethod == jobsv1.JobService_Watch_FullMethodName {
				defer close(ended)
			}
			return next(srv, rpc)
		}),
	}})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watch, err := p.jobs.Watch(ctx, &jobsv1.WatchRequest{})
	require.NoError(t, err)
	for i, over := 0, false; !over; i++ { // nobody reads meanwhile
		require.NoError(t, ctx.Err(), "it is kept")
		jobs := make([]*typesv1.Job, 500)
		for k := range jobs {
			jobs[k] = job(fmt.Sprintf("j%d-%d", i, k))
			jobs[k].Name = strings.Repeat("n", spillway.MaxJobNameBytes)
		}
		p.mustPush(jobs...)
		select {
		case <-ended:
			over = true
		default:
		}
	}
	for err == nil {
		_, err = watch.Recv()
	}
	requireCode(t, codes.ResourceExhausted, err)
}
