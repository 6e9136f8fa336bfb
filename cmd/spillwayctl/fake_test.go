package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

var noon = time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-ago)) }

// fakeAdmin knows two pools.
type fakeAdmin struct {
	adminv1.UnimplementedAdminServiceServer
}

func (fakeAdmin) ListPools(context.Context, *adminv1.ListPoolsRequest) (*adminv1.ListPoolsResponse, error) {
	return &adminv1.ListPoolsResponse{At: at(0), Pools: []*adminv1.PoolStatus{
		{
			Name: "linux", Provider: "aws", Group: "asg", Fingerprint: "aa", Capability: &typesv1.Capability{Tags: []string{"docker", "linux"}, Type: "instance", RunUntagged: true},
			CapacityPerInstance: 2, Max: 10, Pending: 7, Running: 4, Desired: 5, InService: 2, Booting: 3, LastReason: "demand", DecidedAt: at(1500 * time.Millisecond),
		},
		{
			Name: "deploy", Capability: &typesv1.Capability{Tags: []string{"deploy"}, Protected: true, Type: "group"}, Priority: 1, Min: 1, Max: 2,
			Desired: 1, Draining: 1, Lost: 1, Hold: "hold_stale", LastReason: "hold_stale", DecidedAt: at(3 * time.Hour), Finding: "provider_down: the plugin \x1b[31mdoes not answer",
		},
		{Name: "fresh", Capability: &typesv1.Capability{RunUntagged: true}, Max: 1},
	}}, nil
}

func (fakeAdmin) ListDemand(context.Context, *adminv1.ListDemandRequest) (*adminv1.ListDemandResponse, error) {
	return &adminv1.ListDemandResponse{
		At: at(0),
		Signals: []*typesv1.Signal{
			{Fingerprint: "0123456789abcdef0123", TotalJobs: 9, TotalRunners: 4, DemandPerRunner: 2.25, At: at(0)},
			{Fingerprint: "fedcba9876543210", TotalJobs: 1},
		},
		Classes: []*adminv1.ClassDemand{
			{JobClass: "c1", Requirement: &typesv1.Requirement{Tags: []string{"docker"}}, Pending: 9, JobIds: []string{"71", "72", "80", "81"}, Oldest: durationpb.New(95 * time.Second), Attributed: map[string]int64{"linux": 6, "big": 2}, Overflow: 1},
			{JobClass: "c2", Requirement: &typesv1.Requirement{Tags: []string{"gpu"}, Protected: true}, Pending: 1, Oldest: durationpb.New(30 * time.Hour), Unmatched: 1, Reason: "tags"},
			{JobClass: "c3", Requirement: &typesv1.Requirement{}, Pending: 0},
		},
	}, nil
}

func (fakeAdmin) ListRunners(_ context.Context, r *adminv1.ListRunnersRequest) (*adminv1.ListRunnersResponse, error) {
	all := []*adminv1.Runner{
		{MachineId: "m-1", InstanceId: "i-1", Pool: "linux", Capacity: 2, Busy: 1, HeardAt: at(3 * time.Second), Version: "1.0.0", Fingerprint: "0123456789abcdef"},
		{MachineId: "m-2", Pool: "linux", Capacity: 2, Draining: true, HeardAt: at(11 * time.Minute)},
		{MachineId: "m-3", Pool: "deploy", Capacity: 1, Silent: true},
		{MachineId: "m-4", Pool: "deploy", Capacity: 1, HeardAt: at(0)},
		{MachineId: "worker:w1", InstanceId: "i-9", Pool: "gpu", Capacity: 1, Busy: 1, HeardAt: at(2 * time.Second), Version: "worker"},
		{MachineId: "worker:w2", Pool: "gpu", Capacity: 1, HeardAt: at(time.Minute), Silent: true, Version: "worker"},
	}
	if r.GetPool() != "" {
		all = slices.DeleteFunc(all, func(x *adminv1.Runner) bool { return x.GetPool() != r.GetPool() })
	}
	return &adminv1.ListRunnersResponse{Runners: all, At: at(0)}, nil
}

func (fakeAdmin) ListSources(context.Context, *adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error) {
	return &adminv1.ListSourcesResponse{At: timestamppb.New(noon), Sources: []*adminv1.Source{
		{Name: "gitlab jobs", Every: durationpb.New(10 * time.Second), GoodAt: timestamppb.New(noon.Add(-4 * time.Second)), Calls: 120},
		{Name: "gitlab webhooks", Calls: 3, GoodAt: timestamppb.New(noon.Add(-time.Minute)), Partial: true},
		{Name: "prometheus linux", Every: durationpb.New(time.Minute), Error: "the query has 2 values\x1b[2J"},
		{Name: "runner metrics linux", Every: durationpb.New(15 * time.Second)},
	}}, nil
}

func (fakeAdmin) ListPlugins(context.Context, *adminv1.ListPluginsRequest) (*adminv1.ListPluginsResponse, error) {
	return &adminv1.ListPluginsResponse{Plugins: []*adminv1.Plugin{
		{Provider: "aws", Name: "ec2asg", Version: "1.2.0", ContractVersion: 2, Path: "/p", Sha256: "abcdefabcdefabcdef", State: "ready", Pid: 42, Capabilities: []string{"withdraw", "watch"}, StartedAt: at(time.Hour)},
		{Provider: "lab", State: "backoff", Restarts: 3, LastError: "exited with status 1"},
	}}, nil
}

func (fakeAdmin) Explain(_ context.Context, r *adminv1.ExplainRequest) (*adminv1.ExplainResponse, error) {
	switch r.GetPool() {
	case "linux":
	case "fresh":
		return &adminv1.ExplainResponse{}, nil
	default:
		return nil, status.Errorf(codes.NotFound, "there is no pool %q; there are linux, fresh", r.GetPool())
	}
	return &adminv1.ExplainResponse{Decisions: []*adminv1.Decision{
		{
			At: at(time.Minute), Pool: "linux", From: 2, To: 5, Direction: "out", Reason: "demand", Epoch: 7,
			Trace: []*adminv1.Step{
				{Name: "need", Before: 2, After: 6, Why: "4 running and 7 pending jobs, 2 to an instance"},
				{Name: "max", Before: 6, After: 5, Why: "at most 5 instances"},
				{Name: "hold", Before: 5, After: 5, Why: "nothing holds"},
			},
			Action: "set_desired(5)", Result: "ok",
		},
		{At: at(time.Hour), Pool: "linux", From: 3, To: 2, Direction: "in", Reason: "idle", Action: "drain(i-9)", Result: "unavailable: no answer"},
		{At: at(2 * time.Hour), Pool: "linux", From: 3, To: 3, Direction: "in", Reason: "idle", Action: "remove(i-8: idle)", Result: "ok"},
		{At: at(3 * time.Hour), Pool: "linux", From: 3, To: 3, Direction: "none", Reason: "steady"},
	}[:min(4, r.GetLimit())]}, nil
}

func (fakeAdmin) ListPriorities(context.Context, *adminv1.ListPrioritiesRequest) (*adminv1.ListPrioritiesResponse, error) {
	return &adminv1.ListPrioritiesResponse{Pools: []*adminv1.PoolPriority{
		{Pool: "linux", Fingerprint: "0123456789abcdef", Configured: 10, SetBy: "kim\x1b[2J", SetAt: at(time.Hour)},
		{Pool: "cheap", Fingerprint: "0123456789abcdef", Priority: 5, Configured: 5},
	}}, nil
}

func (fakeAdmin) SetPriority(_ context.Context, r *adminv1.SetPriorityRequest) (*adminv1.SetPriorityResponse, error) {
	if r.GetPool() != "linux" {
		return nil, status.Errorf(codes.NotFound, "there is no pool %q; there are linux, fresh", r.GetPool())
	}
	p := &adminv1.PoolPriority{Pool: "linux", Fingerprint: "0123456789abcdef", Priority: 10, Configured: 10}
	if !r.GetClear() {
		p.Priority, p.SetBy, p.SetAt = r.GetPriority(), "anyone", at(0)
	}
	return &adminv1.SetPriorityResponse{Pool: p}, nil
}

func (fakeAdmin) WhyNot(_ context.Context, r *adminv1.WhyNotRequest) (*adminv1.WhyNotResponse, error) {
	if r.GetJobId() != "j-gpu" {
		return nil, status.Errorf(codes.NotFound, "there is no job %q", r.GetJobId())
	}
	return &adminv1.WhyNotResponse{
		Record:  &typesv1.JobRecord{Job: &typesv1.Job{Id: "j-gpu", Requirement: &typesv1.Requirement{Tags: []string{"gpu"}}}, State: typesv1.JobState_JOB_STATE_PENDING},
		Summary: "None of 2 pools can take the job.",
		Verdicts: []*adminv1.PoolVerdict{
			{Pool: "linux", Predicate: "tags", Detail: `the runner lacks the tag "gpu"`},
			{Pool: "gpu", CanTake: true, Detail: "could take it; 1 instances may still be launched"},
		},
	}, nil
}

func (fakeAdmin) ExplainJob(_ context.Context, r *adminv1.ExplainJobRequest) (*adminv1.ExplainJobResponse, error) {
	if r.GetJobId() != "j-gpu" {
		return nil, status.Errorf(codes.NotFound, "there is no job %q", r.GetJobId())
	}
	return &adminv1.ExplainJobResponse{
		Record:  &typesv1.JobRecord{Job: &typesv1.Job{Id: "j-gpu", Requirement: &typesv1.Requirement{Tags: []string{"gpu"}}}, State: typesv1.JobState_JOB_STATE_PENDING},
		At:      at(0),
		Summary: "The job waits. It can run in spot, on-demand.",
		Waiting: 3, Unadmitted: 1, ProjectRunning: 2, ServedBefore: 4,
		Pools: []*adminv1.PoolChoice{
			{Pool: "spot", CanTake: true, Outcome: "growing", Room: 2, Detail: "no place; 2 places may still come"},
			{Pool: "linux", Predicate: "tags", Outcome: "no_match", Detail: `the runner lacks the tag "gpu"`},
			{
				Pool: "on-demand", Priority: 1, CostPerJob: 0.25, CanTake: true, Outcome: "waits_for_better", Free: 2, Elsewhere: 1, Until: at(-time.Minute),
				Detail: "2 places free here; until 12:01:00 UTC the job waits for spot, which has room to grow",
				Machines: []*adminv1.MachineScore{
					{MachineId: "m-1", Cost: 1, Sum: 1}, {MachineId: "m-2", Cost: 1, Affinity: 0.5, AntiAffinity: 4, Topology: 0.125, Sum: 5.625},
				},
			},
		},
	}, nil
}

// fakeJobs takes jobs and ends each as its id says.
type fakeJobs struct {
	jobsv1.UnimplementedJobServiceServer

	mu struct {
		sync.Mutex
		pushed  []*typesv1.Job
		watches int
	}
	breakWatches int // so many watches end early, without a terminal state
	hang         bool
	early        bool // with hang: its clock says before the caller's that the time is over
}

func (f *fakeJobs) Push(s jobsv1.JobService_PushServer) error {
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		job := req.GetJob()
		if job.GetId() == "breaks-the-stream" {
			return status.Error(codes.Unavailable, "the control plane is going away")
		}
		f.mu.Lock()
		f.mu.pushed = append(f.mu.pushed, job)
		f.mu.Unlock()
		ack := &jobsv1.PushResponse{JobId: job.GetId(), Status: jobsv1.PushStatus_PUSH_STATUS_ACCEPTED}
		switch job.GetId() {
		case "known":
			ack.Status = jobsv1.PushStatus_PUSH_STATUS_DUPLICATE
		case "other":
			ack.Status, ack.Detail = jobsv1.PushStatus_PUSH_STATUS_CONFLICT, "known with another script"
		case "too-many":
			ack.Status = jobsv1.PushStatus_PUSH_STATUS_QUEUE_FULL
		case "unsure":
			ack.Status = jobsv1.PushStatus_PUSH_STATUS_UNAVAILABLE
		}
		if err := s.Send(ack); err != nil {
			return err
		}
	}
}

func record(id string) *typesv1.JobRecord {
	r := &typesv1.JobRecord{
		Job:   &typesv1.Job{Id: id, Name: "the " + id, Requirement: &typesv1.Requirement{Tags: []string{"linux"}}, SubmittedAt: at(time.Minute), Timeout: durationpb.New(time.Hour)},
		State: typesv1.JobState_JOB_STATE_COMPLETED, Attempt: 1, Pool: "linux", MachineId: "m-1", CapabilityFingerprint: "0123456789abcdef",
		ClaimedAt: at(58 * time.Second), StartedAt: at(57 * time.Second), FinishedAt: at(50 * time.Second),
		Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED, Output: []byte("hello\tworld\n\x1b]0;title\x07bye\n")},
	}
	switch id {
	case "fails":
		r.State = typesv1.JobState_JOB_STATE_FAILED
		r.Result = &typesv1.JobResult{State: r.State, Reason: "script_failure", ExitCode: 3, Detail: "the script ended with 3"}
	case "waits":
		r.State, r.Result, r.StartedAt, r.FinishedAt, r.ClaimedAt, r.Pool, r.MachineId, r.CapabilityFingerprint, r.Attempt = typesv1.JobState_JOB_STATE_PENDING, nil, nil, nil, nil, "", "", "", 0
	case "times-out":
		r.State = typesv1.JobState_JOB_STATE_FAILED
		r.Result = &typesv1.JobResult{State: r.State, Reason: "job_execution_timeout"}
	case "poison":
		r.State, r.Attempt, r.Lost, r.Quarantined = typesv1.JobState_JOB_STATE_FAILED, 1, 1, true
		r.Result = &typesv1.JobResult{State: r.State, Reason: "runner_system_failure", Detail: "its machine is gone"}
	}
	r.Transitions = way(r)
	return r
}

// way is how a job came to where it is.
func way(r *typesv1.JobRecord) []*typesv1.JobTransition {
	list := []*typesv1.JobTransition{{Sequence: 1, State: typesv1.JobState_JOB_STATE_PENDING, At: r.GetJob().GetSubmittedAt()}}
	if r.GetAttempt() == 0 {
		return list
	}
	list = append(list,
		&typesv1.JobTransition{Sequence: 2, State: typesv1.JobState_JOB_STATE_ASSIGNED, At: r.GetClaimedAt(), Attempt: 1, Pool: r.GetPool()},
		&typesv1.JobTransition{Sequence: 3, State: typesv1.JobState_JOB_STATE_RUNNING, At: r.GetStartedAt(), Attempt: 1, Pool: r.GetPool(), MachineId: r.GetMachineId()},
	)
	return append(list, &typesv1.JobTransition{
		Sequence: 4, State: r.GetState(), At: r.GetFinishedAt(), Attempt: 1, Pool: r.GetPool(), MachineId: r.GetMachineId(), Reason: r.GetResult().GetReason(),
	})
}

// Retry knows one job in quarantine.
func (f *fakeJobs) Retry(_ context.Context, r *jobsv1.RetryRequest) (*jobsv1.RetryResponse, error) {
	if r.GetJobId() != "poison" {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s is not in quarantine but completed", r.GetJobId())
	}
	after := record("poison")
	after.State, after.Lost, after.Quarantined, after.Result = typesv1.JobState_JOB_STATE_PENDING, 0, false, nil
	after.Transitions = append(after.Transitions, &typesv1.JobTransition{Sequence: 5, State: after.State, At: at(0), Attempt: 1, Reason: r.GetReason()})
	return &jobsv1.RetryResponse{Record: after}, nil
}

func (f *fakeJobs) Watch(r *jobsv1.WatchRequest, s jobsv1.JobService_WatchServer) error {
	f.mu.Lock()
	f.mu.watches++
	broken := f.mu.watches <= f.breakWatches
	f.mu.Unlock()
	for _, id := range r.GetJobIds() {
		running := proto.CloneOf(record(id))
		running.State, running.Result = typesv1.JobState_JOB_STATE_RUNNING, nil
		if err := s.Send(&jobsv1.WatchResponse{Record: running}); err != nil {
			return err
		}
	}
	if broken {
		return status.Error(codes.Unavailable, "restarting")
	}
	for i, id := range r.GetJobIds() {
		if f.hang && i == len(r.GetJobIds())-1 {
			if f.early {
				return status.Error(codes.DeadlineExceeded, "too late")
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
		if err := s.Send(&jobsv1.WatchResponse{Record: record(id)}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeJobs) Cancel(_ context.Context, r *jobsv1.CancelRequest) (*jobsv1.CancelResponse, error) {
	resp := &jobsv1.CancelResponse{}
	for _, id := range r.GetJobIds() {
		resp.Results = append(resp.Results, &jobsv1.CancelResult{JobId: id, Found: id != "none", State: typesv1.JobState_JOB_STATE_CANCELED})
	}
	return resp, nil
}

func (f *fakeJobs) Get(_ context.Context, r *jobsv1.GetRequest) (*jobsv1.GetResponse, error) {
	if r.GetJobId() == "none" {
		return nil, status.Error(codes.NotFound, `there is no job "none"`)
	}
	return &jobsv1.GetResponse{Record: record(r.GetJobId())}, nil
}

// List has three jobs on two pages.
func (f *fakeJobs) List(_ context.Context, r *jobsv1.ListRequest) (*jobsv1.ListResponse, error) {
	if len(r.GetStates()) > 0 && r.GetStates()[0] == typesv1.JobState_JOB_STATE_REJECTED {
		return nil, status.Error(codes.PermissionDenied, "a viewer may not")
	}
	if r.GetQuarantined() {
		return &jobsv1.ListResponse{At: at(0), Records: []*typesv1.JobRecord{record("poison")}}, nil
	}
	if r.GetPageToken() == "" {
		return &jobsv1.ListResponse{At: at(0), NextPageToken: "2", Records: []*typesv1.JobRecord{record("waits"), record("fails")}}, nil
	}
	return &jobsv1.ListResponse{At: at(0), Records: []*typesv1.JobRecord{record("done")}}, nil
}

// start serves both on a real listener and returns its address.
func start(t *testing.T, jobs *fakeJobs) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	adminv1.RegisterAdminServiceServer(s, fakeAdmin{})
	admissionv1.RegisterAdmissionServiceServer(s, fakeAdmission{})
	jobsv1.RegisterJobServiceServer(s, jobs)
	debugv1.RegisterDebugServiceServer(s, fakeDebug{})
	cellsv1.RegisterCellServiceServer(s, fakeCells{})
	coordinatorpb.RegisterPoolCoordinatorServer(s, fakeCoordinator{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}
