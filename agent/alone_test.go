package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// A job that may not go on without a router ends; others go on.
func TestJobOfAnotherCellEndsWithoutARouter(t *testing.T) {
	dir := t.TempDir()
	ready, told := filepath.Join(dir, "ready"), filepath.Join(dir, "told")
	exists := func(path string) func() bool {
		return func() bool { _, err := os.Stat(path); return err == nil }
	}
	r := startRouterToReturn(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "own", 1, script("sleep 1000"))
	s.begun(t)
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{
		Job: named("theirs", script("trap 'touch %s; exit 1' TERM; : >%s; while :; do sleep 0.02; done", told, ready)), Attempt: 1,
		AloneFor: durationpb.New(300 * time.Millisecond),
	}}})
	s.begun(t)
	require.Eventually(t, exists(ready), within, 10*time.Millisecond)
	r.server.Stop()
	require.Eventually(t, exists(told), within, 10*time.Millisecond)
	r.listen(t, r.address)
	s, register := r.accept(t)
	require.Len(t, register.GetRunning(), 2, "the ended one is answered for until its result is stored")
	got := s.result(t)
	require.Equal(t, "theirs", got.GetJobId())
	require.Equal(t, typesv1.JobState_JOB_STATE_CANCELED, got.GetResult().GetState())
	require.Equal(t, "no router heard this machine for 300ms", got.GetResult().GetDetail())
	busy := s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 1 })
	require.Equal(t, "own", busy.GetRunning()[0].GetJobId())
}

func named(id string, job *typesv1.Job) *typesv1.Job {
	job.Id = id
	return job
}
