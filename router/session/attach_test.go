package session_test

import (
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// attach connects a machine of the linux pool from within the process.
func (p *plane) attach(id string) *session.Attached {
	p.t.Helper()
	a := session.NewRunners(p.dispatcher, nil).Attach(p.t.Context(), linuxPool(1))
	p.t.Cleanup(a.Close)
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: id, Capacity: 1}}})
	require.Equal(p.t, "linux", hears(p, a, (*runnerv1.RouterMessage).GetRegistered).GetPool())
	return a
}

func (p *plane) tell(a *session.Attached, m *runnerv1.RunnerMessage) {
	p.t.Helper()
	require.NoError(p.t, a.Send(m))
}

// hears waits for the next message of one kind.
func hears[T any](p *plane, a *session.Attached, get func(*runnerv1.RouterMessage) *T) *T {
	p.t.Helper()
	for {
		m, err := a.Recv()
		require.NoError(p.t, err)
		if found := get(m); found != nil {
			return found
		}
	}
}

func TestAnAttachedMachineRunsJobs(t *testing.T) {
	p := startPlane(t, planeConfig{})
	a := p.attach("within")
	p.mustPush(job("1"))
	assign := hears(p, a, (*runnerv1.RouterMessage).GetAssign)
	require.Equal(t, "1", assign.GetJob().GetId())
	p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: "1", Attempt: assign.GetAttempt(), Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
	}}})
	require.False(t, hears(p, a, (*runnerv1.RouterMessage).GetStatusAck).GetStale())
	p.waitFor("1", typesv1.JobState_JOB_STATE_COMPLETED)
}

func TestAnAttachedMachineIsEndedAsOneOnAConnection(t *testing.T) {
	p := startPlane(t, planeConfig{})
	silent := session.NewRunners(p.dispatcher, nil).Attach(t.Context(), linuxPool(1))
	t.Cleanup(silent.Close)
	p.tell(silent, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{}}})
	requireCode(t, codes.InvalidArgument, endOf(silent))

	older := p.attach("m")
	newer := p.attach("m")
	requireCode(t, codes.AlreadyExists, endOf(older))
	require.Error(t, older.Send(&runnerv1.RunnerMessage{}))

	newer.Close()
	requireCode(t, codes.Canceled, endOf(newer))
	last := p.attach("m")
	p.stop()
	requireCode(t, codes.Unavailable, endOf(last))
}

// endOf is with what a conversation ends.
func endOf(a *session.Attached) error {
	for {
		if _, err := a.Recv(); err != nil {
			return err
		}
	}
}

// What a machine says before it leaves is heard.
func TestAnAttachedMachineLeavesInOrder(t *testing.T) {
	p := startPlane(t, planeConfig{})
	for i := range 50 {
		a := p.attach("m")
		id := strconv.Itoa(i)
		p.mustPush(job(id))
		assign := hears(p, a, (*runnerv1.RouterMessage).GetAssign)
		require.Equal(t, id, assign.GetJob().GetId())
		p.tell(a, &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
			JobId: id, Attempt: assign.GetAttempt(), Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
		}}})
		a.Leave()
		a.Leave()
		require.ErrorIs(t, endOf(a), io.EOF)
		p.waitFor(id, typesv1.JobState_JOB_STATE_COMPLETED)
	}
}
