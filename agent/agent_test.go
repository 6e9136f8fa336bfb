package agent_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/agent"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

func script(format string, args ...any) *typesv1.Job {
	return &typesv1.Job{Script: fmt.Sprintf(format, args...)}
}

func TestRegisterAndHeartbeat(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, register := r.accept(t)
	require.Equal(t, "machine-1", register.GetMachineId())
	require.Equal(t, "instance-1", register.GetInstanceId())
	require.Equal(t, "1.2.3", register.GetVersion())
	require.EqualValues(t, 2, register.GetCapacity())
	require.Empty(t, register.GetRunning())
	require.True(t, register.GetAcksInAssign())

	all := func(*runnerv1.Heartbeat) bool { return true }
	first := s.heartbeat(t, all)
	require.Zero(t, first.GetBusy())
	require.False(t, first.GetDraining())
	require.Equal(t, first.GetSequence()+1, s.heartbeat(t, all).GetSequence())

	s.assign(t, "7", 1, script("sleep 1000"))
	busy := s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 1 })
	require.Len(t, busy.GetRunning(), 1)
	require.Equal(t, "7", busy.GetRunning()[0].GetJobId())
}

func TestJobsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		job      *typesv1.Job
		state    typesv1.JobState
		reason   string
		exitCode int32
		output   string
	}{
		"success": {script("echo hello"), typesv1.JobState_JOB_STATE_COMPLETED, "", 0, "hello\n"},
		"failure": {script("echo oh >&2; exit 42"), typesv1.JobState_JOB_STATE_FAILED, "script_failure", 42, "oh\n"},
		"environment": {
			&typesv1.Job{
				Name: "unit tests", Env: map[string]string{"WORD": "from job", "CI_JOB_ID": "forged"},
				Script: `echo "$WORD $CI_JOB_ID $CI_JOB_NAME $SPILLWAY_JOB_ID $SPILLWAY_ATTEMPT $SPILLWAY_MACHINE_ID $SPILLWAY_INSTANCE_ID $SPILLWAY_POOL"`,
			},
			typesv1.JobState_JOB_STATE_COMPLETED, "", 0, "from job job-1 unit tests job-1 3 machine-1 instance-1 linux\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRouter(t)
			m := startAgent(t, r)
			s, _ := r.accept(t)
			s.assign(t, "job-1", 3, c.job)
			s.begun(t)
			got := s.result(t)
			require.Equal(t, "job-1", got.GetJobId())
			require.EqualValues(t, 3, got.GetAttempt())
			require.Equal(t, c.state, got.GetResult().GetState())
			require.Equal(t, c.reason, got.GetResult().GetReason())
			require.Equal(t, c.exitCode, got.GetResult().GetExitCode())
			require.Equal(t, c.output, string(got.GetResult().GetOutput()))
			left, err := os.ReadDir(m.options.WorkDir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestAJobEndsAtItsTimeLimit(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	// On a busy machine a script may have printed nothing when its time is up.
	for limit := 300 * time.Millisecond; ; limit *= 4 {
		require.Less(t, limit, within, "what it printed is not there")
		id := limit.String()
		s.assign(t, id, 1, &typesv1.Job{Script: "echo begun; sleep 1000", Timeout: durationpb.New(limit)})
		got := s.resultOf(t, id).GetResult()
		require.Equal(t, typesv1.JobState_JOB_STATE_FAILED, got.GetState())
		require.Equal(t, "job_execution_timeout", got.GetReason())
		require.EqualValues(t, 124, got.GetExitCode())
		if len(got.GetOutput()) > 0 {
			require.Equal(t, "begun\n", string(got.GetOutput()))
			return
		}
	}
}

func TestOutputIsATail(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("head -c 300000 /dev/zero | tr '\\0' x; printf END"))
	output := s.result(t).GetResult().GetOutput()
	require.Len(t, output, 64<<10)
	require.True(t, bytes.HasSuffix(output, []byte("xEND")))
}

func TestCancel(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 2, script("sh -c 'sleep 1000 & wait' & wait"))
	s.begun(t)
	s.cancel(t, "1", 1, "another attempt: not this one")
	s.cancel(t, "2", 1, "another job: not this one")
	s.cancel(t, "1", 2, "asked by a person")
	result := s.result(t).GetResult()
	require.Equal(t, typesv1.JobState_JOB_STATE_CANCELED, result.GetState())
	require.Equal(t, "job_canceled", result.GetReason())
	require.Equal(t, "asked by a person", result.GetDetail())
}

// What is said of a job fits into a message, whatever the router has sent.
func TestDetailsAreBounded(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	wrong := map[string]string{}
	for i := range 4000 {
		wrong[fmt.Sprintf("%d-%s", i, strings.Repeat("x", 30))] = ""
	}
	s.assign(t, "1", 1, &typesv1.Job{Script: "true", Env: wrong})
	refused := s.refusal(t)
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_INVALID, refused.GetCode())
	require.LessOrEqual(t, len(refused.GetDetail()), 1<<10)
	require.NotEmpty(t, refused.GetDetail())

	s.assign(t, "2", 1, script("sleep 1000"))
	s.begun(t)
	s.cancel(t, "2", 1, strings.Repeat("é", 100<<10))
	require.LessOrEqual(t, len(s.result(t).GetResult().GetDetail()), 1<<10)
}

func TestRefusals(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r, func(o *agent.Options) { o.Capacity = 1 })
	s, _ := r.accept(t)
	for name, job := range map[string]*typesv1.Job{
		"no script":        {},
		"bad variable":     {Script: "true", Env: map[string]string{"A-B": "secret"}},
		"NUL in variable":  {Script: "true", Env: map[string]string{"A": "secret\x00"}},
		"negative timeout": {Script: "true", Timeout: durationpb.New(-time.Second)},
	} {
		s.assign(t, "invalid", 1, job)
		refused := s.refusal(t)
		require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_INVALID, refused.GetCode(), name)
		require.NotContains(t, refused.GetDetail(), "secret")
	}

	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	s.assign(t, "2", 1, script("true"))
	refused := s.refusal(t)
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, refused.GetCode())
	require.Equal(t, "2", refused.GetJobId())

	s.assign(t, "1", 2, script("true")) // another attempt, while the first still runs
	refused = s.refusal(t)
	require.EqualValues(t, 2, refused.GetAttempt())
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, refused.GetCode())

	s.cancel(t, "1", 1, "")
	s.result(t)
	s.assign(t, "2", 2, script("true")) // the place is free, though nothing was acknowledged
	require.Equal(t, "2", s.result(t).GetJobId())
}

// A job that can't be started here goes back untouched, and takes no place.
func TestStartFailureIsARefusal(t *testing.T) {
	r := startRouter(t)
	workDir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(workDir, 0o700))
	startAgent(t, r, func(o *agent.Options) { o.WorkDir = workDir })
	s, _ := r.accept(t)
	require.NoError(t, os.Remove(workDir))
	s.assign(t, "1", 1, script("true"))
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, s.refusal(t).GetCode())
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 0 })
}

func TestSameAttemptTwiceStartsOnce(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	ran := filepath.Join(t.TempDir(), "ran")
	job := func() *typesv1.Job {
		return script("echo x >>%s; while ! [ -e %s.go ]; do sleep 0.01; done", ran, ran)
	}
	s.assign(t, "1", 1, job())
	s.begun(t)
	s.assign(t, "1", 1, job())
	until(t, s, func(m *runnerv1.RunnerMessage) (any, bool) { return nil, m.GetJobAccepted() != nil })
	require.NoError(t, os.WriteFile(ran+".go", nil, 0o600))
	s.result(t)
	s.assign(t, "1", 1, job()) // ended, not acknowledged: the result again
	s.result(t)
	content, err := os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(content))
}

func TestReconnectCarriesRunningJobs(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	goOn := filepath.Join(t.TempDir(), "go-on")
	s.assign(t, "keep", 1, script("while ! [ -e %s ]; do sleep 0.01; done; echo kept", goOn))
	s.begun(t)
	s.assign(t, "lose", 4, script("sleep 1000"))
	s.begun(t)
	s.end <- status.Error(codes.Unavailable, "going away")

	s, register := r.accept(t, &runnerv1.RunningJob{JobId: "lose", Attempt: 4})
	require.Equal(t, "machine-1", register.GetMachineId())
	require.Len(t, register.GetRunning(), 2)
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { // the superseded one is ended and not spoken of again
		return h.GetBusy() == 1 && h.GetRunning()[0].GetJobId() == "keep"
	})
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	result := s.result(t)
	require.Equal(t, "keep", result.GetJobId())
	require.Equal(t, "kept\n", string(result.GetResult().GetOutput()))
}

func TestResultIsSentAgainUntilAcknowledged(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("echo once"))
	s.result(t)
	for range 2 {
		s.end <- status.Error(codes.Unavailable, "before the acknowledgement")
		var register *runnerv1.Register
		s, register = r.accept(t)
		require.Len(t, register.GetRunning(), 1, "it still answers for a job whose result may be lost")
		require.Equal(t, "once\n", string(s.result(t).GetResult().GetOutput()))
		require.Zero(t, s.heartbeat(t, func(*runnerv1.Heartbeat) bool { return true }).GetBusy())
	}
	s.ack(t, "1", 1, false)
	s.ack(t, "1", 1, false) // twice harms nobody
	s.assign(t, "2", 1, script("true"))
	s.result(t) // so the acknowledgements before it have been read
	s.ack(t, "2", 1, true)
	s.assign(t, "3", 1, script("sleep 1000"))
	s.begun(t)
	s.end <- status.Error(codes.Unavailable, "")
	_, register := r.accept(t)
	require.Len(t, register.GetRunning(), 1)
	require.Equal(t, "3", register.GetRunning()[0].GetJobId())
}

func TestStaleAttemptIsEnded(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	s.ack(t, "1", 1, true)
	s.heartbeat(t, func(h *runnerv1.Heartbeat) bool { return h.GetBusy() == 0 })
}

// A machine whose results nobody acknowledges stops taking jobs before its memory
// is full of them.
func TestUnacknowledgedResultsAreBounded(t *testing.T) {
	r := startRouter(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	for i := range agent.MaxUnacked {
		s.assign(t, fmt.Sprint(i), 1, script(":"))
		s.resultOf(t, fmt.Sprint(i))
	}
	s.assign(t, "one-more", 1, script(":"))
	require.Equal(t, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, s.refusal(t).GetCode())
	s.ack(t, "0", 1, false)
	s.assign(t, "one-more", 2, script(":"))
	s.resultOf(t, "one-more")

	next := script(":")
	next.Id = "another"
	s.send(t, &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{
		Job: next, Attempt: 1, Acks: []*runnerv1.StatusAck{{JobId: "1", Attempt: 1}},
	}}})
	s.resultOf(t, "another") // what comes along has made room
}

// The router may be away for long, and come back at the same place.
func TestRouterIsAwayAndComesBack(t *testing.T) {
	r := startRouterToReturn(t)
	startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	r.server.Stop()
	s.requireGone(t)
	r.listen(t, r.address)
	_, register := r.accept(t)
	require.Len(t, register.GetRunning(), 1)
}

func TestTokenIsRefused(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r, func(o *agent.Options) { o.Token = agent.StaticToken("wrong-token") })
	err := m.requireEnd(t)
	require.ErrorIs(t, err, agent.ErrUnauthenticated)
	require.NotContains(t, err.Error(), "wrong-token")
}

// A token that is taken back ends the machine and its jobs: nobody would take
// their results.
func TestTokenIsRefusedLater(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r)
	s, _ := r.accept(t)
	s.assign(t, "1", 1, script("sleep 1000"))
	s.begun(t)
	s.end <- status.Error(codes.Unauthenticated, "taken back")
	require.ErrorIs(t, m.requireEnd(t), agent.ErrUnauthenticated)
}

func TestTokenIsReadAtEachConnection(t *testing.T) {
	r := startRouter(t)
	file := filepath.Join(t.TempDir(), "token")
	startAgent(t, r, func(o *agent.Options) { o.Token = agent.TokenFile(file) })
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600)) // absent at first: that is not "refused"
	r.accept(t)
}

func TestSecretsAreNotLogged(t *testing.T) {
	r := startRouter(t)
	var log lockedBuffer
	m := startAgent(t, r, func(o *agent.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s, _ := r.accept(t)
	s.assign(t, "1", 1, &typesv1.Job{Script: "echo in-the-script; exit 1", Env: map[string]string{"PASSWORD": "in-the-env"}})
	s.result(t)
	s.assign(t, "2", 1, &typesv1.Job{Script: "in-the-script", Env: map[string]string{"PASS-WORD": "in-the-env"}})
	s.refusal(t)
	s.ack(t, "1", 1, false)
	close(m.drain)
	require.NoError(t, m.requireEnd(t))
	require.Contains(t, log.String(), "job ended")
	for _, secret := range []string{"in-the-script", "in-the-env", token} {
		require.NotContains(t, log.String(), secret)
	}
}

type lockedBuffer struct {
	mu struct {
		sync.Mutex
		text strings.Builder
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text.String()
}
