package coordinator

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// usage is what the replicas know of machines and queues.
type usage struct {
	counts   []router.ClassCount
	machines []router.Machine
}

func (s *Server) usage(ctx context.Context) (u usage, err error) {
	if u.counts, err = s.store.Counts(ctx); err == nil {
		u.machines, err = s.store.Machines(ctx)
	}
	return u, err
}

// workers counts the machines of a pool.
func (u *usage) workers(pool string) (idle, busy int) {
	for i := range u.machines {
		switch m := &u.machines[i]; {
		case m.Pool != pool || !m.Connected:
		case m.InUse() > 0:
			busy++
		default:
			idle++
		}
	}
	return idle, busy
}

// jobs counts those that ask for what a pool offers.
func (u *usage) jobs(e *entry) (waiting, running int) {
	asks := needs(e, 0)
	for i := range u.counts {
		c := &u.counts[i]
		r := c.Requirement
		if r.Origin == "" && r.Protected == asks.Protected && slices.Equal(r.Normalize().Tags, asks.Tags) {
			waiting += c.Pending + c.Unadmitted
			running += c.Claimed
		}
	}
	return waiting, running
}

// needs is what a job asks for that is submitted to a pool: all that the pool offers.
func needs(e *entry, project int64) spillway.Requirement {
	r := spillway.Requirement{Tags: e.Pool.Capability.Tags, Protected: e.Pool.Capability.Protected, Project: project}
	if !e.configured {
		r.Tags = []string{PoolTag(e.Pool.Name)}
	}
	if groups := e.Pool.Capability.Groups; len(groups) > 0 {
		r.Groups = groups[:1]
	}
	return r.Normalize()
}

// ListPools returns all pools that workers can serve.
func (s *Server) ListPools(ctx context.Context, _ *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	if err := s.pools.readOnce(ctx); err != nil {
		return nil, storeStatus(err)
	}
	use, err := s.usage(ctx)
	if err != nil {
		return nil, storeStatus(err)
	}
	resp := &pb.ListPoolsResponse{}
	for _, e := range s.pools.entries() {
		idle, busy := use.workers(e.Pool.Name)
		waiting, running := use.jobs(&e)
		p := &pb.Pool{
			Name: e.Pool.Name, Tags: e.tags, MinIdle: int32(e.MinIdle), Max: int32(e.Max), Configured: e.configured,
			Idle: int32(idle), Busy: int32(busy), Queued: int32(waiting), MaxQueued: int32(s.opt.MaxQueued),
		}
		if !e.configured {
			p.Wanted = int32(e.Wanted(waiting + max(running, busy)))
		}
		resp.Pools = append(resp.Pools, p)
	}
	return resp, nil
}

// SubmitJob puts a job into the queue of a pool.
func (s *Server) SubmitJob(ctx context.Context, req *pb.SubmitJobRequest) (resp *pb.SubmitJobResponse, err error) {
	outcome := SubmitRefused
	defer func() { tell(s.opt.Events.Submitted, outcome) }()
	e, err := s.pools.lookUp(ctx, req.GetPoolName())
	if err != nil {
		return nil, err
	}
	job, err := jobFor(&e, req.GetJob())
	if err != nil {
		return nil, err
	}
	select {
	case s.submitting <- struct{}{}: // so that what was counted still holds
	case <-ctx.Done():
		outcome = SubmitUnavailable
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-s.submitting }()
	if err := s.room(ctx, &e, &job); err != nil {
		outcome = submitOutcome(err)
		return nil, err
	}
	pushed, err := s.jobs.Submit(ctx, job)
	switch pushed {
	case store.Accepted:
		outcome = SubmitAccepted
		return &pb.SubmitJobResponse{JobId: string(job.ID)}, nil
	case store.Duplicate:
		outcome = SubmitDuplicate
		return &pb.SubmitJobResponse{JobId: string(job.ID), Duplicate: true}, nil
	case store.Conflict:
		return nil, status.Errorf(codes.AlreadyExists, "job %s is known with another content: nothing was changed", job.ID)
	case store.Full:
		outcome = SubmitFull
		return nil, status.Error(codes.ResourceExhausted, "the queue of the whole control plane is full: submit it again later")
	default:
		outcome = SubmitUnavailable
		if err == nil {
			err = store.ErrUnknown
		}
		return nil, storeStatus(err)
	}
}

func submitOutcome(err error) SubmitOutcome {
	if status.Code(err) == codes.ResourceExhausted {
		return SubmitFull
	}
	return SubmitUnavailable
}

// room reports whether the pool's queue has no place for another job. One that it has
// already needs none. Replicas count for themselves: several that are called in the same
// moment may each add one above the bound.
func (s *Server) room(ctx context.Context, e *entry, job *spillway.Job) error {
	counts, err := s.store.Counts(ctx)
	if err != nil {
		return storeStatus(err)
	}
	use := usage{counts: counts}
	waiting, _ := use.jobs(e)
	if waiting < s.opt.MaxQueued {
		return nil
	}
	known, err := s.store.GetMany(ctx, []spillway.JobID{job.ID})
	switch {
	case err != nil:
		return storeStatus(err)
	case known[0] != nil:
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "queue of pool %s is full: %d jobs wait, at most %d may: submit it again later", e.Pool.Name, waiting, s.opt.MaxQueued)
}

// jobFor checks a submitted job.
func jobFor(e *entry, j *pb.Job) (spillway.Job, error) {
	job := spillway.Job{
		ID: spillway.JobID(j.GetId()), Script: j.GetScript(), Env: j.GetEnvVariables(),
		Requirement: needs(e, j.GetProjectId()), Timeout: time.Duration(j.GetTimeoutSeconds()) * time.Second,
	}
	if job.ID == "" {
		job.ID = spillway.JobID(strings.ToLower(rand.Text()))
	}
	if j.GetAttempt() != 0 {
		return job, status.Error(codes.InvalidArgument, "attempt is not for whoever submits a job")
	}
	if err := job.Validate(); err != nil {
		return job, status.Error(codes.InvalidArgument, err.Error())
	}
	if v := router.Explain(&e.Pool.Capability, &job.Requirement); !v.OK() {
		return job, status.Errorf(codes.InvalidArgument, "pool %s can't take this job: %s", e.Pool.Name, v.Detail)
	}
	return job, nil
}
