package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/store/storetest"
)

// grpcurl is the real one, at the version that go.tools.mod pins.
func grpcurl(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "grpcurl")
	build := exec.Command("go", "build", "-modfile=go.tools.mod", "-o", program, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		peertest.Broken(t, "grpcurl can't be built, so nobody called the coordinator without our messages: %v\n%s", err, out)
	}
	return program
}

// C4: whoever has grpcurl, a certificate and nothing of ours finds the service by its
// reflection, and can do all of it.
func TestC4_ByGrpcurlOverMTLS(t *testing.T) {
	t.Parallel()
	shows(t, "C1", "C4")
	program := grpcurl(t)
	authority := tlstest.New(t, "authority")
	s := newPKIStand(t, authority, `access:
  - {name: operator, certificate: "CN=human", roles: [read, operate, push]}
  - {name: workers, certificate: "CN=machine", roles: [coordinate]}
coordinator: {poll_wait: 200ms}
`)
	as := func(f tlsfiles.Files, data string, what ...string) (string, error) {
		args := []string{"-cacert", f.CA}
		if f.Cert != "" {
			args = append(args, "-cert", f.Cert, "-key", f.Key)
		}
		if data != "" {
			args = append(args, "-d", data)
		}
		out, err := exec.Command(program, append(append(args, s.api), what...)...).CombinedOutput()
		return string(out), err
	}
	call := func(f tlsfiles.Files, method, data string) string {
		t.Helper()
		out, err := as(f, data, "coordinator.PoolCoordinator/"+method)
		require.NoError(t, err, "%s: %s\n%v", method, out, s.err)
		return out
	}
	refused := func(f tlsfiles.Files, method, data string, says ...string) {
		t.Helper()
		out, err := as(f, data, "coordinator.PoolCoordinator/"+method)
		require.Error(t, err, "%s: %s", method, out)
		for _, word := range says {
			require.Contains(t, out, word)
		}
	}
	out, err := as(s.human, "", "list")
	require.NoError(t, err, out)
	require.Contains(t, out, "coordinator.PoolCoordinator")
	out, err = as(s.human, "", "describe", "coordinator.PoolCoordinator")
	require.NoError(t, err, out)
	for _, method := range []string{"RegisterPool", "ListPools", "SendHeartbeat", "PollJob", "ReportJobResult"} {
		require.Contains(t, out, "rpc "+method)
	}

	call(s.human, "RegisterPool", `{"name": "gpu", "tags": ["cuda"], "min_idle": 1, "max": 5}`)
	refused(s.human, "RegisterPool", `{"name": "gpu"}`, "AlreadyExists", "pool gpu is registered already")
	refused(s.human, "SubmitJob", `{"pool_name": "tpu", "job": {"script": "true"}}`, "NotFound", "pool not found: tpu")
	require.Regexp(t, `"name": "gpu",\s+"tags": \[\s+"cuda"\s+\],\s+"minIdle": 1,\s+"max": 5`, call(s.human, "ListPools", ""))

	worker := `{"runner_id": "w1", "pool_name": "gpu"}`
	refused(s.machine, "PollJob", worker, "NotFound", "no job")
	call(s.human, "SubmitJob", `{"pool_name": "gpu", "job": {"id": "1", "project_id": 7, "script": "nvidia-smi", "env_variables": {"A": "b"}, "timeout_seconds": 60}}`)
	require.Eventually(t, func() bool {
		out, err = as(s.machine, worker, "coordinator.PoolCoordinator/PollJob")
		return err == nil
	}, within, poll, "%v", lazily(func() string { return out }))
	for _, field := range []string{`"hasJob": true`, `"id": "1"`, `"projectId": "7"`, `"script": "nvidia-smi"`, `"A": "b"`, `"timeoutSeconds": 60`} {
		require.Contains(t, out, field)
	}
	require.Contains(t, call(s.machine, "SendHeartbeat", `{"runner_id": "w1", "pool_name": "gpu", "status": "RUNNER_STATUS_BUSY", "active_job_count": 1}`), `"acknowledged": true`)
	require.Contains(t, call(s.human, "ListPools", ""), `"busy": 1`)
	require.Contains(t, call(s.machine, "ReportJobResult", `{"runner_id": "w1", "job_id": "1", "success": true, "stdout": "fine"}`), `"acknowledged": true`)
	require.Contains(t, s.do("jobs", "show", "1"), "fine")

	nobody := tlsfiles.Files{CA: s.human.CA}
	refused(nobody, "ListPools", "", "Unauthenticated")
	refused(s.human, "PollJob", worker, "PermissionDenied", `does not have the role "coordinate"`)
	refused(s.machine, "RegisterPool", `{"name": "Bad Name"}`, "InvalidArgument")
}

// workerProcess is the worker in Python, as a process of the test.
type workerProcess struct {
	*exec.Cmd
	log *output
	dir string // where its jobs run
}

func (r *replica) worker(pool, id string, args ...string) *workerProcess {
	r.t.Helper()
	w := &workerProcess{log: newOutput(r.t, id), dir: r.t.TempDir()}
	command := pythonWorker(r.t, append([]string{"--addr", r.api, "--plaintext", "--pool", pool, "--runner-id", id, "--work-dir", w.dir, "--heartbeat", "0.3"}, args...)...)
	w.Cmd = exec.Command(command[0], command[1:]...)
	w.Stdout, w.Stderr = w.log.file, w.log.file
	require.NoError(r.t, w.Start())
	r.t.Cleanup(func() {
		_ = w.Process.Kill()
		_ = w.Wait()
	})
	return w
}

func registered(pool string) *coordinatorpb.RegisterPoolRequest {
	return &coordinatorpb.RegisterPoolRequest{Name: pool, MinIdle: 1, Max: 2}
}

// quick is a replica without workers' instances, which gives silent ones up soon.
func quick(t *testing.T, redis string) *replica {
	t.Helper()
	return startReplica(t, strings.Replace(coordinated(redis, ""), "tick: 500ms", "tick: 500ms\ntimeouts: {heartbeat_every: 500ms, silent: 10s, assign: 10s}", 1))
}

// C5: the worker ends a job at its time limit, gives a job to another when it is killed,
// and after SIGTERM runs the one that it has to its end.
func TestC5_TheWorkersPart(t *testing.T) {
	t.Parallel()
	shows(t, "C5")
	redis := storetest.StartServer(t)
	first, second := quick(t, redis.Addr), quick(t, redis.Addr)
	c := first.pools(insecure.NewCredentials())
	_, err := c.RegisterPool(t.Context(), registered("py"))
	require.NoError(t, err)
	w1 := second.worker("py", "w1")
	limited := &coordinatorpb.Job{Id: "limited", Script: "sleep 1000 & sleep 1000", TimeoutSeconds: 1}
	_, err = c.SubmitJob(t.Context(), &coordinatorpb.SubmitJobRequest{PoolName: "py", Job: limited})
	require.NoError(t, err)
	rec := first.await("limited", "failed")
	require.Equal(t, []any{"job_execution_timeout", 124}, []any{rec.Result.Reason, rec.Result.ExitCode})

	// Killed with its job: another worker has that, at another replica.
	script, gate := scriptGate(t)
	require.NoError(t, c.submit("py", "moves", script))
	require.Equal(t, "worker:w1", first.await("moves", "running").Machine)
	// The answer with the job has arrived, too: its script can be killed with the worker.
	require.Eventually(t, func() bool { return len(descendants(t, w1.Process.Pid)) > 0 }, within, poll, "%v", w1.log)
	for _, pid := range append(descendants(t, w1.Process.Pid), w1.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	w2 := first.worker("py", "w2")
	require.Eventually(t, func() bool { return first.record("moves").Machine == "worker:w2" }, within, 5*poll, "%v", second.err)
	require.Equal(t, 2, first.await("moves", "running").Attempt)
	require.Eventually(t, func() bool { return len(descendants(t, w2.Process.Pid)) > 0 }, within, poll, "%v", w2.log)

	// Told to leave: after its job, and with nothing left behind.
	require.NoError(t, w2.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(w2.log.String(), "SIGTERM: no more jobs") }, within, poll)
	require.NoError(t, c.submit("py", "late", "true"))
	entries, err := os.ReadDir(w2.dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	open(t, gate)
	require.NoError(t, w2.Wait(), "%v", w2.log)
	require.Equal(t, "completed", first.record("moves").State)
	require.Equal(t, "pending", first.await("late", "pending").State, "nobody took it")
	entries, err = os.ReadDir(w2.dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// C3: the loop keeps one worker idle: when that gets a job, another is started.
func TestC3_OneWorkerIsKeptIdle(t *testing.T) {
	t.Parallel()
	shows(t, "C3")
	api := peertest.FreeAddress(t)
	command, err := json.Marshal(pythonWorker(t, "--addr", api, "--plaintext", "--pool", "linux", "--runner-id", "{instance}", "--work-dir", "{work_dir}", "--heartbeat", "0.5"))
	require.NoError(t, err)
	redis := storetest.StartServer(t)
	r := startReplica(t, fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: %q, metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
timeouts: {heartbeat_every: 500ms}
plugin_dir: %s
providers:
  local: {plugin: spillway-provider-local, env: [PATH], config: {stop_grace: 2s, groups: [{name: linux, max: 3, command: %s}]}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: local, policy: {max: 3, idle_count: 1}}
`, api, redis.Addr, filepath.Join(bin, "plugins"), command))
	c := r.pools(insecure.NewCredentials())
	kept := func(busy, idle int32) {
		t.Helper()
		require.Eventually(t, func() bool {
			p := c.pool("linux")
			return p.GetBusy() == busy && p.GetIdle() == idle
		}, within, 5*poll, "%v", r.err)
	}
	kept(0, 1)
	script, gate := scriptGate(t)
	require.NoError(t, c.submit("linux", "one", script))
	kept(1, 1)
	require.Equal(t, int32(1), c.pool("linux").GetMinIdle())
	require.NoError(t, c.submit("linux", "two", script))
	kept(2, 1)
	require.NoError(t, c.submit("linux", "three", script))
	kept(3, 0) // which is all that there may be
	open(t, gate)
	for _, id := range []string{"one", "two", "three"} {
		r.await(id, "completed")
	}
}

// C7: a real Prometheus is asked for the idle workers of a pool that was registered, under
// the name that GitLab Runner's users have in their dashboards.
func TestC7_IdleWorkersOfARegisteredPoolInPrometheus(t *testing.T) {
	t.Parallel()
	shows(t, "C7")
	redis := storetest.StartServer(t)
	first, second := quick(t, redis.Addr), quick(t, redis.Addr)
	c := first.pools(insecure.NewCredentials())
	_, err := c.RegisterPool(t.Context(), registered("gpu"))
	require.NoError(t, err)
	// A job that waits for workers, who come by themselves, is not one that nobody can take.
	script, gate := scriptGate(t)
	require.NoError(t, c.submit("gpu", "1", script))
	require.Contains(t, first.must("why-not", "1"), "It can run in gpu")

	p := startPrometheus(t, first.metrics)
	p.scrape([]string{second.metrics}) // beside the first
	ask := func(query, want string) {
		t.Helper()
		var got string
		require.Eventually(t, func() bool {
			got, err = p.ask(query)
			return err == nil && got == want
		}, within, 10*poll, "%s is %v (%v), not %s", query, lazily(func() string { return got }), err, want)
	}
	ask(`count(gitlab_runner_pool_idle_count{pool_name="gpu"} == 0)`, "2")
	ask(`min(spillway_pool_pending_jobs{pool="gpu"})`, "1")
	ask(`max(spillway_unmatched_jobs)`, "0")
	first.worker("gpu", "w1")
	second.worker("gpu", "w2")
	ask(`count(gitlab_runner_pool_idle_count{pool_name="gpu"} == 1)`, "2")
	ask(`max(spillway_pool_running_jobs{pool="gpu"})`, "1")
	ask(`sum(spillway_runners_connected{pool="gpu"}) > bool 0`, "1")
	open(t, gate)
	ask(`count(gitlab_runner_pool_idle_count{pool_name="gpu"} == 2)`, "2")
}
