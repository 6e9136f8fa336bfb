package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// dial connects to an address, for somebody with a token.
func dial(t *testing.T, address, token string) (*grpc.ClientConn, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return conn, metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// Machines and controllers that speak of jobs which they were never given change nothing,
// and are told so.
func TestBadInput_WhoWasGivenNothingChangesNothing(t *testing.T) {
	t.Parallel()
	shows(t, "A2", "A8", "A19")
	s := newSteadyStand(t, "admission: {controllers: [{name: image-policy, scope: project, projects: [7], deadline: 2m}]}\n", handPool{"linux", linuxPool}, handPool{"mac", "capability: {tags: [mac]}"})
	s.machine("a", "linux", "honest")
	script, gate := scriptGate(t)
	s.b().submit(job{"id": "theirs", "script": script}, job{"id": "reviewed", "script": "true", "project": 7})
	before := s.b().await("theirs", "running")

	conn, ctx := dial(t, s.runners["b"], "a-token-of-mac")
	liar, err := runnerv1.NewRunnerServiceClient(conn).Connect(ctx)
	require.NoError(t, err)
	require.NoError(t, liar.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "liar", Capacity: 1}}}))
	for _, id := range []string{"theirs", "reviewed", "nobodys"} {
		require.NoError(t, liar.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
			JobId: id, Attempt: 1, Result: &typesv1.JobResult{State: typesv1.JobState_JOB_STATE_COMPLETED},
		}}}))
		for {
			m, err := liar.Recv()
			require.NoError(t, err)
			require.Nil(t, m.GetAssign(), "nothing of another pool is sent to it")
			if ack := m.GetStatusAck(); ack != nil {
				require.Equal(t, []any{id, true}, []any{ack.GetJobId(), ack.GetStale()})
				break
			}
		}
	}

	conn, ctx = dial(t, s.b().api, "")
	controller, err := admissionv1.NewAdmissionServiceClient(conn).Connect(ctx)
	require.NoError(t, err)
	require.NoError(t, controller.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{Controller: "image-policy", Instance: "liar"}}}))
	m, err := controller.Recv()
	require.NoError(t, err)
	require.Equal(t, "image-policy", m.GetWelcome().GetController())
	require.NoError(t, controller.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Verdicts{Verdicts: &admissionv1.Verdicts{
		BatchId: 4711, Verdicts: []*admissionv1.Verdict{{JobId: "theirs", Allow: false}},
	}}}))
	for err == nil {
		_, err = controller.Recv()
	}
	require.Equal(t, grpccodes.InvalidArgument, status.Code(err), "%v", err)
	require.Contains(t, err.Error(), "batch")

	var tags []string
	for range 50 {
		tags = append(tags, "t"+strings.Repeat("x", len(tags)))
	}
	out, err := s.b().ctl("jobs", "submit", "--id", "many-tags", "--script", "true", "--tag", strings.Join(tags, ","))
	require.Error(t, err)
	require.Contains(t, out, "a job must have fewer than 50")
	require.Equal(t, before, s.b().record("theirs"))
	open(t, gate)
	require.Equal(t, "honest", s.b().await("theirs", "completed").Machine)
}
