package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/store/storetest"
)

// pythonWorker is the command of examples/python-worker, or the test is skipped.
func pythonWorker(t *testing.T, args ...string) []string {
	t.Helper()
	script, err := filepath.Abs("../../examples/python-worker/worker.py")
	require.NoError(t, err)
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import grpc, google.protobuf").Run() == nil {
			return append([]string{name, "-B", script}, args...)
		}
	}
	t.Skip("SKIPPED: no python3 with grpcio and protobuf, so no worker in Python was tried")
	return nil
}

// poolClient calls the coordinator of a replica.
type poolClient struct {
	coordinatorpb.PoolCoordinatorClient
	t    *testing.T
	conn *grpc.ClientConn
}

func (r *replica) pools(creds credentials.TransportCredentials) *poolClient {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.api, grpc.WithTransportCredentials(creds))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return &poolClient{coordinatorpb.NewPoolCoordinatorClient(conn), r.t, conn}
}

func (c *poolClient) submit(pool, id, script string) error {
	_, err := c.SubmitJob(c.t.Context(), &coordinatorpb.SubmitJobRequest{PoolName: pool, Job: &coordinatorpb.Job{Id: id, Script: script, TimeoutSeconds: 1000}})
	return err
}

func (c *poolClient) pool(name string) *coordinatorpb.Pool {
	c.t.Helper()
	list, err := c.ListPools(c.t.Context(), &coordinatorpb.ListPoolsRequest{})
	require.NoError(c.t, err)
	at := slices.IndexFunc(list.GetPools(), func(p *coordinatorpb.Pool) bool { return p.GetName() == name })
	require.GreaterOrEqual(c.t, at, 0, "%v", list)
	return list.GetPools()[at]
}

// fetch polls until there is a job.
func (c *poolClient) fetch(runner, pool string) (job *coordinatorpb.Job) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		resp, err := c.PollJob(c.t.Context(), &coordinatorpb.PollJobRequest{RunnerId: runner, PoolName: pool})
		job = resp.GetJob()
		return err == nil
	}, within, poll)
	return job
}

func (c *poolClient) report(runner, job string) error {
	_, err := c.ReportJobResult(c.t.Context(), &coordinatorpb.ReportJobResultRequest{JobId: job, RunnerId: runner, Success: true, Stdout: "by " + runner})
	return err
}

// ended waits for the end of a job.
func (r *replica) ended(id string) (record struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	Machine string `json:"machine_id"`
},
) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		out := r.must("jobs", "show", id, "-o", "json")
		require.NoError(r.t, json.Unmarshal([]byte(out), &record), out)
		return record.State == "JOB_STATE_COMPLETED" || record.State == "JOB_STATE_FAILED"
	}, within, 5*poll, "job %s: %v", id, r.err)
	return record
}

// A pool at zero, whose instances are workers in Python: a job starts one, the next job is
// given to it at once, and when there are no more it is drained and goes.
func TestC2_AJobStartsAnInstanceWhoseWorkerRunsIt(t *testing.T) {
	t.Parallel()
	shows(t, "C2", "C5")
	api := peertest.FreeAddress(t)
	command, err := json.Marshal(pythonWorker(t, "--addr", api, "--plaintext", "--pool", "linux", "--runner-id", "{instance}", "--work-dir", "{work_dir}", "--heartbeat", "0.5"))
	require.NoError(t, err)
	path := write(t, fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: %q, metrics: "127.0.0.1:0"}
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 10s}
plugin_dir: %s
providers:
  local: {plugin: spillway-provider-local, env: [PATH], config: {stop_grace: 8s, groups: [{name: linux, max: 2, command: %s}]}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: local, policy: {max: 2, idle_time: 1h}}
`, api, filepath.Join(bin, "plugins"), command))
	r := startReplicaAt(t, nil, path)
	c := r.pools(insecure.NewCredentials())
	p := c.pool("linux")
	require.Equal(t, []any{int32(0), int32(0), int32(2), true}, []any{p.GetIdle(), p.GetBusy(), p.GetMax(), p.GetConfigured()})
	_, err = c.RegisterPool(t.Context(), &coordinatorpb.RegisterPoolRequest{Name: "linux"})
	require.Equal(t, grpccodes.AlreadyExists, status.Code(err), "%v", err)

	require.NoError(t, c.submit("linux", "first", "echo hello"))
	first := r.ended("first")
	require.Equal(t, "JOB_STATE_COMPLETED", first.State)
	require.True(t, strings.HasPrefix(first.Machine, "worker:"), first.Machine)
	require.Contains(t, r.must("jobs", "show", "first"), "hello")

	require.Eventually(t, func() bool { return c.pool("linux").GetIdle() == 1 }, within, poll)
	require.NoError(t, c.submit("linux", "second", "true"))
	require.Equal(t, first.Machine, r.ended("second").Machine, "the idle worker has it")

	config, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(config, []byte("idle_time: 1h"), []byte("idle_time: 1s"), 1), 0o600))
	r.readAgain()
	require.Eventually(t, func() bool { return c.pool("linux").GetIdle() == 0 && r.pool().InService == 0 }, within, 10*poll, "%v", r.err)
	r.awaitEmpty()
	r.stop()
}

// coordinated is the configuration of a replica with a pool of instances that never start.
func coordinated(redis string, more string) string {
	return fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
coordinator: {max_queued: 3, poll_wait: 500ms}
plugin_dir: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {linux: {max: 1}}}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: cloud, policy: {max: 1, paused: true}}
%s`, redis, filepath.Join(bin, "plugins"), more)
}

// Pools, queues and what workers have are kept where replicas meet: calls may go to any
// of them, and a replica that is killed takes nothing with it.
func TestC9_NothingLivesInOneReplica(t *testing.T) {
	t.Parallel()
	shows(t, "C1", "C2", "C9")
	redis := storetest.StartServer(t)
	first, second := startReplica(t, coordinated(redis.Addr, "")), startReplica(t, coordinated(redis.Addr, ""))
	a, b := first.pools(insecure.NewCredentials()), second.pools(insecure.NewCredentials())
	_, err := a.RegisterPool(t.Context(), &coordinatorpb.RegisterPoolRequest{Name: "gpu", Tags: []string{"cuda"}, MinIdle: 1, Max: 5})
	require.NoError(t, err)
	_, err = b.RegisterPool(t.Context(), &coordinatorpb.RegisterPoolRequest{Name: "gpu"})
	require.Equal(t, grpccodes.AlreadyExists, status.Code(err), "%v", err)
	require.NoError(t, b.submit("gpu", "1", "true"))
	require.Equal(t, "1", a.fetch("w1", "gpu").GetId())
	_, err = b.SendHeartbeat(t.Context(), &coordinatorpb.SendHeartbeatRequest{RunnerId: "w1", PoolName: "gpu", Status: coordinatorpb.RunnerStatus_RUNNER_STATUS_BUSY, ActiveJobCount: 1})
	require.NoError(t, err)
	require.NoError(t, b.report("w1", "1"))
	require.NoError(t, a.report("w1", "1"), "the same once more")
	require.Equal(t, grpccodes.FailedPrecondition, status.Code(a.report("w2", "1")))

	require.NoError(t, a.submit("gpu", "2", "true"))
	require.Equal(t, "2", b.fetch("w1", "gpu").GetId())
	for _, id := range []string{"3", "4", "5"} {
		require.NoError(t, a.submit("gpu", id, "true"))
	}
	above := 6
	require.Eventually(t, func() bool {
		// w1 is at both replicas for a moment, and may be offered one: then there is room.
		id := fmt.Sprint(above)
		if err = b.submit("gpu", id, "true"); err == nil {
			second.must("jobs", "cancel", id)
		}
		above++
		return err != nil
	}, within, 2*poll)
	require.Equal(t, grpccodes.ResourceExhausted, status.Code(err), "%v", err)
	require.Contains(t, err.Error(), "queue of pool gpu is full: 3 jobs wait")

	for _, r := range []*replica{first, second} {
		require.NoError(t, r.Process.Signal(syscall.SIGKILL))
		_ = r.code()
	}
	third := startReplica(t, coordinated(redis.Addr, ""))
	c := third.pools(insecure.NewCredentials())
	// What w1 was offered at that very moment is back when the offer's claim has expired.
	require.Eventually(t, func() bool { return c.pool("gpu").GetQueued() == 3 }, within, 2*poll)
	gpu := c.pool("gpu")
	require.Equal(t, []any{"cuda", int32(5)}, []any{gpu.GetTags()[0], gpu.GetMax()})
	require.NoError(t, c.report("w1", "2"), "what it has is still its own")
	for range 3 {
		job := c.fetch("w1", "gpu")
		require.NoError(t, c.report("w1", job.GetId()))
	}
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		record := third.ended(id)
		require.Equal(t, "JOB_STATE_COMPLETED", record.State)
		require.Equal(t, "worker:w1", record.Machine)
	}
	_, err = c.PollJob(t.Context(), &coordinatorpb.PollJobRequest{RunnerId: "w1", PoolName: "nowhere"})
	require.Equal(t, grpccodes.NotFound, status.Code(err))
	require.Contains(t, err.Error(), "pool not found: nowhere; there are gpu, linux")
}

func credentialsOf(t *testing.T, f tlsfiles.Files) credentials.TransportCredentials {
	t.Helper()
	roots, err := os.ReadFile(f.CA)
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(roots))
	config := &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config)
}

// Over mTLS, with roles: the worker in Python has a certificate, the operator another one,
// and what there is to call is shown by reflection.
func TestC4_WorkersAndOperatorsOverMTLS(t *testing.T) {
	t.Parallel()
	shows(t, "C4")
	command := pythonWorker(t)
	authority := tlstest.New(t, "authority")
	s := newPKIStand(t, authority, `access:
  - {name: operator, certificate: "CN=human", roles: [read, operate, push]}
  - {name: workers, certificate: "CN=machine", roles: [coordinate]}
coordinator: {poll_wait: 500ms}
`)
	human, worker := s.pools(credentialsOf(t, s.human)), s.pools(credentialsOf(t, s.machine))
	_, err := human.RegisterPool(t.Context(), &coordinatorpb.RegisterPoolRequest{Name: "py"})
	require.NoError(t, err)
	_, err = human.PollJob(t.Context(), &coordinatorpb.PollJobRequest{RunnerId: "h", PoolName: "py"})
	require.Equal(t, grpccodes.PermissionDenied, status.Code(err), "%v", err)
	nobody := s.pools(credentialsOf(t, tlsfiles.Files{CA: s.human.CA}))
	_, err = nobody.ListPools(t.Context(), &coordinatorpb.ListPoolsRequest{})
	require.Equal(t, grpccodes.Unauthenticated, status.Code(err), "%v", err)
	require.Contains(t, reflected(t, human.conn), "coordinator.PoolCoordinator")
	require.Equal(t, "py", worker.pool("py").GetName())

	args := append(command[1:], "--addr", s.api, "--pool", "py", "--runner-id", "p1", "--work-dir", t.TempDir(), "--heartbeat", "0.5",
		"--ca-file", s.machine.CA, "--cert-file", s.machine.Cert, "--key-file", s.machine.Key)
	p := exec.Command(command[0], args...)
	log := newOutput(t, "worker")
	p.Stdout, p.Stderr = log.file, log.file
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	require.NoError(t, human.submit("py", "secure", "echo by $0"))
	require.Eventually(t, func() bool {
		out, err := s.by(s.human, "jobs", "show", "secure", "-o", "json")
		return err == nil && strings.Contains(strings.ToLower(out), "completed")
	}, within, 5*poll, "%v %v", log, s.err)
	_, err = human.ReportJobResult(t.Context(), &coordinatorpb.ReportJobResultRequest{JobId: "secure", RunnerId: "p1", Success: true})
	require.Equal(t, grpccodes.PermissionDenied, status.Code(err))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%v", log)
}

// reflected are the services that a listener says it has.
func reflected(t *testing.T, conn *grpc.ClientConn) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	rpc, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(metadata.NewOutgoingContext(ctx, nil))
	require.NoError(t, err)
	require.NoError(t, rpc.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}))
	resp, err := rpc.Recv()
	require.NoError(t, err)
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	require.NoError(t, rpc.CloseSend())
	_, err = rpc.Recv()
	require.ErrorIs(t, err, io.EOF)
	return names
}
