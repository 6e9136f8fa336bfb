package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// unchanged wants a job to be after f exactly as before it.
func unchanged(p *plane, id string, f func()) {
	p.t.Helper()
	before := p.record(id)
	f()
	require.True(p.t, proto.Equal(before, p.record(id)), "job %s was changed", id)
}

// refusedPush wants a job to be refused with a sentence.
func refusedPush(p *plane, j *typesv1.Job, status jobsv1.PushStatus, sentence string) {
	p.t.Helper()
	ack := p.push(j)[0]
	require.Equal(p.t, status, ack.GetStatus())
	require.Contains(p.t, ack.GetDetail(), sentence)
}

// never wants a job not to be known.
func (p *plane) never(id string) {
	p.t.Helper()
	_, err := p.jobs.Get(context.Background(), &jobsv1.GetRequest{JobId: id})
	requireCode(p.t, codes.NotFound, err)
}

func TestTagsOverTheLimitAreRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	j := job("j1")
	for i := range spillway.MaxJobTags {
		j.Requirement.Tags = append(j.Requirement.Tags, fmt.Sprintf("t%d", i))
	}
	refusedPush(p, j, jobsv1.PushStatus_PUSH_STATUS_INVALID, "tags, a job must have fewer than")
	p.never("j1")
	j.Requirement.Tags = j.Requirement.Tags[2:] // at the edge
	p.mustPush(j)
}

func TestAReusedIDWithOtherContentIsRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	for name, change := range map[string]func(*typesv1.Job){
		"script":   func(j *typesv1.Job) { j.Script = "false" },
		"env":      func(j *typesv1.Job) { j.Env = map[string]string{"A": "1"} },
		"class":    func(j *typesv1.Job) { j.Requirement.Tags = []string{"mac"} },
		"priority": func(j *typesv1.Job) { j.Priority = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			other := job("j1")
			change(other)
			unchanged(p, "j1", func() {
				refusedPush(p, other, jobsv1.PushStatus_PUSH_STATUS_CONFLICT, "nothing was changed")
			})
		})
	}
}

func TestAResultForAJobNeverAssignedIsRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("theirs"))
	honest := p.linux("m1", 1)
	a := honest.assigned()
	honest.accept("theirs", a.GetAttempt())
	p.waitFor("theirs", running)
	waits := job("waits")
	waits.Requirement.Tags = []string{"mac"}
	p.mustPush(waits)

	r := p.linux("m2", 1)
	for _, id := range []string{"waits", "theirs"} {
		unchanged(p, id, func() {
			for attempt := int32(1); attempt < 4; attempt++ {
				r.finish(id, attempt)
				require.True(t, r.acked().GetStale())
			}
		})
	}
	r.finish("nobody", 1)
	require.True(t, r.acked().GetStale())
	p.never("nobody")
}

func TestAnOldAttemptsResultIsRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	old := r.assigned()
	r.refuse("j1", old.GetAttempt(), runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED)
	other := p.linux("m2", 1)
	a := other.assigned()
	other.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)
	unchanged(p, "j1", func() {
		r.finish("j1", old.GetAttempt())
		require.True(t, r.acked().GetStale())
		other.finish("j1", old.GetAttempt())
		require.True(t, other.acked().GetStale(), "not even of its own machine")
	})
	other.finish("j1", a.GetAttempt())
	require.False(t, other.acked().GetStale())
}

func TestUnknownEnumValuesAreRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	for name, m := range map[string]*runnerv1.RunnerMessage{
		"state":        {Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{JobId: "j1", Attempt: 1, Result: &typesv1.JobResult{State: 99}}}},
		"refusal code": {Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{JobId: "j1", Attempt: 1, Code: 99}}},
		"interruption": {Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{Interruption: &runnerv1.Interruption{Kind: 99}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.linux("m1", 1)
			a := r.assigned()
			unchanged(p, "j1", func() {
				if status := m.GetJobStatus(); status != nil {
					status.Attempt = a.GetAttempt()
				}
				if refused := m.GetJobRefused(); refused != nil {
					refused.Attempt = a.GetAttempt()
				}
				r.say(m)
				err := r.ended()
				requireCode(t, codes.InvalidArgument, err)
			})
			// It comes back, and the job is still its own.
			again := p.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1})
			again.refuse("j1", a.GetAttempt(), runnerv1.RefusalCode_REFUSAL_CODE_DRAINING)
			p.waitFor("j1", pending)
			again.end()
		})
	}
	_, err := p.jobs.List(context.Background(), &jobsv1.ListRequest{States: []typesv1.JobState{99}})
	requireCode(t, codes.InvalidArgument, err)
	require.ErrorContains(t, err, "no such state: 99")
}

func TestAScriptTooLargeIsRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	j := job("j1")
	j.Script = strings.Repeat("x", spillway.MaxScriptBytes+1)
	refusedPush(p, j, jobsv1.PushStatus_PUSH_STATUS_INVALID, "script of 131073 bytes, at most 131072 are allowed")
	p.never("j1")
	j.Script = j.Script[1:] // at the edge
	p.mustPush(j)
	require.Len(t, p.linux("m1", 1).assigned().GetJob().GetScript(), spillway.MaxScriptBytes)
}
