package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// startIMDS is AWS's metadata service for an instance that ends when told to.
func startIMDS(t *testing.T, id string) (endpoint string, ends *atomic.Bool) {
	t.Helper()
	ends = &atomic.Bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			_, _ = w.Write([]byte("metadata-token"))
		case r.Header.Get("X-aws-ec2-metadata-token") != "metadata-token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/meta-data/instance-id":
			_, _ = w.Write([]byte(id))
		case r.URL.Path == "/latest/meta-data/autoscaling/target-lifecycle-state" && ends.Load():
			_, _ = w.Write([]byte("Terminated"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, ends
}

// An instance that a terminating hook of its group holds: the machine says so and
// drains, its job ends, and it stays until it is told to leave.
func TestTerminatingHook(t *testing.T) {
	j := newJob(t)
	r := startRouter(t, j.script())
	endpoint, ends := startIMDS(t, "i-0abc")
	work := t.TempDir()
	p := startProcess(t, []string{tokenVariable + "=" + token, cloudVariable + "=auto"},
		"--router", r.address, "--plaintext", "--metadata-endpoint", endpoint, "--work-dir", work)
	reg := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister() != nil }).GetRegister()
	require.Equal(t, "i-0abc", reg.GetInstanceId())
	require.Nil(t, reg.GetInterruption())
	j.awaitStart(t)
	ends.Store(true)
	told := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetHeartbeat().GetInterruption() != nil }).GetHeartbeat()
	require.Equal(t, runnerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING, told.GetInterruption().GetKind())
	require.True(t, told.GetDraining())
	require.EqualValues(t, 1, told.GetBusy())
	require.NoError(t, os.WriteFile(j.goOn, nil, 0o600))
	r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetJobStatus().GetResult() != nil })
	r.wait(t, func(m *runnerv1.RunnerMessage) bool {
		return m.GetHeartbeat().GetInterruption() != nil && m.GetHeartbeat().GetBusy() == 0
	})
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.requireExit(t, exitLeft)
	require.Contains(t, p.stderr.String(), "terminating")
	require.NotContains(t, p.stderr.String(), "metadata-token")
}

func TestTheInstanceIDThatIsGivenCounts(t *testing.T) {
	r := startRouter(t, "true")
	endpoint, _ := startIMDS(t, "i-0abc")
	startProcess(t, []string{tokenVariable + "=" + token}, "--router", r.address, "--plaintext",
		"--cloud", "aws", "--metadata-endpoint", endpoint, "--instance-id", "i-given")
	reg := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister() != nil }).GetRegister()
	require.Equal(t, "i-given", reg.GetInstanceId())
}

func TestHealthCheckOfTheCommandLine(t *testing.T) {
	r := startRouter(t, "true")
	work, bad := t.TempDir(), filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, nil, 0o600))
	p := startProcess(t, []string{tokenVariable + "=" + token}, "--router", r.address, "--plaintext", "--work-dir", work,
		"--health-check", "! [ -e "+bad+" ] || { echo broken; exit 1; }", "--health-check-every", time.Second.String(), "--health-check-failures", "1")
	said := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetHeartbeat().GetUnhealthy() != "" }).GetHeartbeat()
	require.Equal(t, "health check: exit code 1: broken", said.GetUnhealthy())
	require.NoError(t, os.Remove(bad))
	r.wait(t, func(m *runnerv1.RunnerMessage) bool {
		return m.GetHeartbeat() != nil && m.GetHeartbeat().GetUnhealthy() == ""
	})
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.requireExit(t, exitLeft)
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left)
}
