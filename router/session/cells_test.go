package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// pushHandedOver adds a job of another cell, as only the service for cells does.
func (p *plane) pushHandedOver(id string) {
	p.t.Helper()
	_, err := p.store.Push(p.t.Context(), []spillway.Job{{
		ID: spillway.JobID(id), Script: "true", Requirement: spillway.Requirement{Tags: []string{"linux"}, Origin: spillway.CellOrigin},
	}})
	require.NoError(p.t, err)
}

// A job that its machine has lost counts as one whose machine was lost.
func TestAMachineMayGiveBackWhatItHasLost(t *testing.T) {
	p := startPlane(t, planeConfig{})
	a := p.attach("m")
	p.mustPush(&typesv1.Job{Id: "1", Script: "true", Requirement: &typesv1.Requirement{Tags: []string{"linux"}}, NoRetry: true})
	assign := hears(p, a, (*runnerv1.RouterMessage).GetAssign)
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: "1", Attempt: 1}}})
	p.waitFor("1", typesv1.JobState_JOB_STATE_RUNNING)
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
		JobId: "1", Attempt: assign.GetAttempt(), Code: runnerv1.RefusalCode_REFUSAL_CODE_LOST, Detail: "the cell is gone",
	}}})
	record := p.waitFor("1", typesv1.JobState_JOB_STATE_FAILED)
	require.Equal(t, "runner_system_failure", record.GetResult().GetReason(), "it must not run twice")
	require.EqualValues(t, 1, record.GetLost())
}

func TestOnlyJobsOfOtherCellsMayNotGoOnAlone(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{AloneFor: 7 * time.Second}})
	a := p.attach("m")
	p.mustPush(job("own"))
	require.Nil(t, hears(p, a, (*runnerv1.RouterMessage).GetAssign).GetAloneFor())
	b := p.attach("n")
	p.pushHandedOver("cell/a/1/1")
	require.Equal(t, 7*time.Second, hears(p, b, (*runnerv1.RouterMessage).GetAssign).GetAloneFor().AsDuration())
}

// What ends a job by its machine's word leaves the record to that word.
func TestEndJobsChangesNoRecord(t *testing.T) {
	p := startPlane(t, planeConfig{})
	a := p.attach("m")
	p.mustPush(job("1"))
	hears(p, a, (*runnerv1.RouterMessage).GetAssign)
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: "1", Attempt: 1}}})
	p.waitFor("1", typesv1.JobState_JOB_STATE_RUNNING)
	p.dispatcher.EndJobs(t.Context(), []spillway.JobID{"1", "unknown"}, "because")
	require.Equal(t, "because", hears(p, a, (*runnerv1.RouterMessage).GetCancelJob).GetReason())
	require.Equal(t, typesv1.JobState_JOB_STATE_RUNNING, p.record("1").GetState())
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: "1", Attempt: 1, Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_CANCELED, Reason: "job_canceled", Detail: "because"},
	}}})
	require.Equal(t, "because", p.waitFor("1", typesv1.JobState_JOB_STATE_CANCELED).GetResult().GetDetail())
}

// Jobs of a machine that was abandoned are nobody's here: another replica takes them over,
// or their claims end.
func TestJobsOfAnAbandonedMachineAreNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := session.Options{Grace: 50 * time.Millisecond, SilentAfter: 200 * time.Millisecond, HeartbeatEvery: 20 * time.Millisecond, ClaimTTL: 3 * time.Second}
		p := startPlane(t, planeConfig{bubble: true, options: options})
		a := p.attach("m")
		p.mustPush(job("1"))
		hears(p, a, (*runnerv1.RouterMessage).GetAssign)
		p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{JobId: "1", Attempt: 1}}})
		p.waitFor("1", typesv1.JobState_JOB_STATE_RUNNING)
		p.dispatcher.Abandon(context.Background(), "m")
		requireCode(t, codes.Aborted, endOf(a))
		time.Sleep(options.ClaimTTL / 2) // far longer than the grace of a machine that is not abandoned
		require.Equal(t, typesv1.JobState_JOB_STATE_RUNNING, p.record("1").GetState())

		other := startPlane(t, planeConfig{bubble: true, store: p.store, options: session.Options{Replica: "replica-2"}})
		b := session.NewRunners(other.dispatcher, nil).Attach(t.Context(), linuxPool(1))
		t.Cleanup(b.Close)
		other.tell(b, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{
			MachineId: "m", Capacity: 1, Running: []*runnerv1.RunningJob{{JobId: "1", Attempt: 1}},
		}}})
		require.Empty(t, hears(other, b, (*runnerv1.RouterMessage).GetRegistered).GetSuperseded())
		other.tell(b, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
			JobId: "1", Attempt: 1, Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
		}}})
		require.EqualValues(t, 1, other.waitFor("1", typesv1.JobState_JOB_STATE_COMPLETED).GetAttempt())
	})
}
