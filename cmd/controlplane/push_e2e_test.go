package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// follower is somebody who pushes jobs on one stream and follows them on it, over as many
// connections as that takes.
type follower struct {
	t      *testing.T
	stream jobsv1.JobService_PushClient
	told   map[string][]*typesv1.JobTransition // all that came, over all connections
	acks   map[string]jobsv1.PushStatus
	result map[string]*typesv1.JobResult
}

// connect opens a stream to a replica, and goes on with each job where it was.
func (p *follower) connect(r *replica) {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	p.t.Cleanup(cancel)
	p.stream, err = jobsv1.NewJobServiceClient(conn).Push(ctx)
	require.NoError(p.t, err)
	var resume []*jobsv1.JobPosition
	for id, told := range p.told {
		resume = append(resume, &jobsv1.JobPosition{JobId: id, AfterSequence: told[len(told)-1].GetSequence()})
	}
	if len(resume) > 0 {
		require.NoError(p.t, p.stream.Send(&jobsv1.PushRequest{Resume: resume}))
	}
}

func (p *follower) push(job *typesv1.Job, report bool) {
	p.t.Helper()
	require.NoError(p.t, p.stream.Send(&jobsv1.PushRequest{Job: job, Report: report}))
}

// hear takes in one message.
func (p *follower) hear() error {
	m, err := p.stream.Recv()
	if err != nil {
		return err
	}
	id := m.GetJobId()
	if m.GetReport() == nil {
		p.acks[id] = m.GetStatus()
		return nil
	}
	require.False(p.t, m.GetReport().GetGap())
	require.False(p.t, m.GetReport().GetUnknown())
	p.told[id] = append(p.told[id], m.GetReport().GetTransitions()...)
	if m.GetReport().GetResult() != nil {
		p.result[id] = m.GetReport().GetResult()
	}
	return nil
}

// until hears until something is so.
func (p *follower) until(so func() bool) {
	p.t.Helper()
	for !so() {
		require.NoError(p.t, p.hear())
	}
}

// is reports whether the last that was told of a job is a state.
func (p *follower) is(id, state string) bool {
	told := p.told[id]
	return len(told) > 0 && plainState(told[len(told)-1].GetState().String()) == state
}

// way is the states that a job was told to be in. Each must have the number after the
// one before.
func (p *follower) way(id string) (states []string) {
	p.t.Helper()
	for i, tr := range p.told[id] {
		require.Equal(p.t, int64(i+1), tr.GetSequence(), "job %s: %v", id, p.told[id])
		states = append(states, plainState(tr.GetState().String()))
	}
	return states
}

func linuxJob(id, script, image string) *typesv1.Job {
	return &typesv1.Job{Id: id, Script: script, Image: image, Requirement: &typesv1.Requirement{Tags: []string{"linux"}}}
}

// A16: jobs are pushed on a stream on which all that becomes of them is told, once and in
// order, also when the replica at its other end is killed and another one goes on.
func TestA16_OneClientFollowsItsJobsOverTheLossOfAReplica(t *testing.T) {
	t.Parallel()
	shows(t, "A16", "A17")
	s := newSteadyStand(t, "admission: {controllers: [{name: image-policy, scope: instance, deadline: 2m}]}\n", handPool{"linux", linuxPool})
	controller(t, "admission-image-policy", s.a().api, "-allow", "ruby:*")
	s.machine("a", "linux", "m1")
	script, gate := scriptGate(t)

	p := &follower{t: t, told: map[string][]*typesv1.JobTransition{}, acks: map[string]jobsv1.PushStatus{}, result: map[string]*typesv1.JobResult{}}
	p.connect(s.b())
	p.push(linuxJob("good", script+"; exit 3", "ruby:3.3"), true)
	p.push(linuxJob("bad", "true", "miner:1"), true)
	p.push(linuxJob("good", script+"; exit 3", "ruby:3.3"), false)
	p.until(func() bool { return p.acks["good"] == jobsv1.PushStatus_PUSH_STATUS_DUPLICATE })
	p.push(linuxJob("good", "another script", "ruby:3.3"), false)
	p.until(func() bool { return p.acks["good"] == jobsv1.PushStatus_PUSH_STATUS_CONFLICT })
	p.until(func() bool { return p.is("good", "running") && p.is("bad", "rejected") })
	require.Equal(t, jobsv1.PushStatus_PUSH_STATUS_ACCEPTED, p.acks["bad"])

	// The replica is gone in the middle. What happens meanwhile is told by the other one.
	s.kill("b")
	require.Error(t, p.hear())
	open(t, gate)
	s.a().await("good", "failed")
	p.connect(s.a())
	p.push(linuxJob("third", "true", "ruby:3.3"), true)
	require.NoError(t, p.stream.CloseSend())
	for err := error(nil); !errors.Is(err, io.EOF); err = p.hear() {
		require.NoError(t, err)
	}
	require.Equal(t, []string{"pending", "routing", "admitted", "assigned", "running", "failed"}, p.way("good"))
	require.Equal(t, []string{"pending", "routing", "admitted", "assigned", "running", "completed"}, p.way("third"))
	require.Equal(t, []string{"pending", "routing", "rejected"}, p.way("bad"))
	require.Equal(t, []any{"script_failure", int32(3)}, []any{p.result["good"].GetReason(), p.result["good"].GetExitCode()})
	require.Contains(t, p.result["bad"].GetDetail(), "image miner:1 is not allowed")
	require.Equal(t, "m1", p.told["good"][4].GetMachineId())
	require.NotEmpty(t, s.a().record("good").Fingerprint)
}
