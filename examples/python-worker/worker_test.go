package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

const (
	patience = time.Minute
	tick     = 20 * time.Millisecond
	// silent is how long a worker may stand still without being given up.
	silent = 10 * time.Second
)

// interpreter is a Python that has grpcio, or the test is skipped.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import grpc, google.protobuf").Run() == nil {
			return name
		}
	}
	t.Skip("SKIPPED: no python3 with grpcio and protobuf, so the worker in Python was not tried")
	return ""
}

// The messages that the worker has by hand are those of the .proto.
func TestItsMessagesAreOurs(t *testing.T) {
	out, err := exec.Command(interpreter(t), "-B", "-c", "import json, worker; print(json.dumps(worker.MESSAGES))").CombinedOutput()
	require.NoError(t, err, string(out))
	var messages map[string]map[string][2]any
	require.NoError(t, json.Unmarshal(out, &messages))
	require.Len(t, messages, 7)
	for name, fields := range messages {
		ours := coordinatorpb.File_coordinator_coordinator_proto.Messages().ByName(protoreflect.Name(name)).Fields()
		require.Len(t, fields, ours.Len(), name)
		for field, is := range fields {
			f := ours.ByName(protoreflect.Name(field))
			require.NotNil(t, f, "%s.%s", name, field)
			require.Equal(t, []any{float64(f.Number()), kindOf(f)}, is[:], "%s.%s", name, field)
		}
	}
}

func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map"
	case f.IsList():
		return "repeated " + f.Kind().String()
	case f.Enum() != nil:
		return string(f.Enum().Name())
	case f.Message() != nil:
		return string(f.Message().Name())
	default:
		return f.Kind().String()
	}
}

// stand is a coordinator on a loopback port.
type stand struct {
	t      *testing.T
	store  *store.Store
	client coordinatorpb.PoolCoordinatorServer
	addr   string
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	timing := session.Options{Replica: "one", HeartbeatEvery: 200 * time.Millisecond, SilentAfter: silent, Grace: time.Second}
	d, err := session.NewDispatcher(s, timing)
	require.NoError(t, err)
	c, err := coordinator.New(d, session.NewJobs(d, s, s, nil), s, coordinator.Options{
		Replica: "one", SilentAfter: silent,
		Configured: func() []coordinator.Configured { return nil },
		Replace:    func(pools []spillway.Pool) error { d.SetPools(pools); return nil },
	})
	require.NoError(t, err)
	server := grpc.NewServer()
	coordinatorpb.RegisterPoolCoordinatorServer(server, c)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	running.Go(func() { c.Run(ctx) })
	running.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() { cancel(); server.Stop(); running.Wait() })
	_, err = c.RegisterPool(t.Context(), &coordinatorpb.RegisterPoolRequest{Name: "py"})
	require.NoError(t, err)
	return &stand{t, s, c, lis.Addr().String()}
}

func (s *stand) submit(id, script string, seconds int32) {
	s.t.Helper()
	_, err := s.client.SubmitJob(s.t.Context(), &coordinatorpb.SubmitJobRequest{PoolName: "py", Job: &coordinatorpb.Job{
		Id: id, Script: script, TimeoutSeconds: seconds, EnvVariables: map[string]string{"WORD": "a word"},
	}})
	require.NoError(s.t, err)
}

func (s *stand) await(id string, states ...spillway.JobState) (r spillway.JobRecord) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var err error
		r, err = s.store.Get(context.Background(), spillway.JobID(id))
		require.NoError(s.t, err)
		for _, state := range states {
			if r.State == state {
				return true
			}
		}
		return false
	}, patience, tick, "job %s is %s", id, r.State)
	return r
}

// process is a worker.
type process struct {
	*exec.Cmd
	t    *testing.T
	dir  string
	mu   sync.Mutex
	out  bytes.Buffer
	done chan struct{}
	err  error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (s *stand) start(id string, args ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, dir: s.t.TempDir(), done: make(chan struct{})}
	args = append([]string{"-B", "worker.py", "--addr", s.addr, "--plaintext", "--pool", "py", "--runner-id", id, "--work-dir", p.dir, "--heartbeat", "0.2"}, args...)
	p.Cmd = exec.Command(interpreter(s.t), args...)
	p.Stdout, p.Stderr = p, p
	p.Env = append(os.Environ(), "SECRET_OF_THE_WORKER=1")
	require.NoError(s.t, p.Start())
	go func() {
		defer close(p.done)
		p.err = p.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("worker %s: %s", id, p.said())
		}
	})
	return p
}

// leaves waits for an orderly end that leaves nothing behind.
func (p *process) leaves() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("it goes on: %s", p.said())
	}
	require.NoError(p.t, p.err, p.said())
	p.clean()
}

func (p *process) clean() {
	p.t.Helper()
	left, err := os.ReadDir(p.dir)
	require.NoError(p.t, err)
	require.Empty(p.t, left)
}

func TestItRunsJobs(t *testing.T) {
	s := newStand(t)
	p := s.start("w1")
	s.submit("well", "echo out; echo err >&2; echo $WORD; cat; stat -c %a .. . ../script; pwd; env", 60)
	r := s.await("well", spillway.Completed)
	out := string(r.Result.Output)
	for _, part := range []string{"out\na word\n700\n700\n600\n", "--- stderr ---\nerr\n"} {
		require.Contains(t, out, part)
	}
	require.NotContains(t, out, "SECRET_OF_THE_WORKER")

	s.submit("badly", "exit 3", 60)
	r = s.await("badly", spillway.Failed)
	require.Equal(t, []any{spillway.ScriptFailure, 3}, []any{r.Result.Reason, r.Result.ExitCode})

	s.submit("killed", "kill -9 $$", 60)
	require.Equal(t, 137, s.await("killed", spillway.Failed).Result.ExitCode)

	s.submit("much", "i=0; while [ $i -lt 3000 ]; do printf '%0100d\\n' $i; i=$((i+1)); done", 60)
	r = s.await("much", spillway.Completed)
	require.Len(t, r.Result.Output, spillway.MaxOutputBytes)
	require.True(t, strings.HasSuffix(string(r.Result.Output), "2999\n"))

	// A time limit ends what the script has started, too.
	mark := filepath.Join(t.TempDir(), "mark")
	s.submit("long", fmt.Sprintf("trap '' TERM; (sleep 20; touch %s) & sleep 30", mark), 1)
	r = s.await("long", spillway.Failed)
	require.Equal(t, []any{spillway.JobExecutionTimeout, coordinator.TimeLimitExitCode}, []any{r.Result.Reason, r.Result.ExitCode})

	s.submit("unwanted", "sleep 60", 100)
	s.await("unwanted", spillway.Running)
	_, err := s.store.Cancel(t.Context(), []spillway.JobID{"unwanted"}, "not wanted")
	require.NoError(t, err)
	s.submit("next", "true", 60)
	s.await("next", spillway.Completed)
	require.Equal(t, spillway.Canceled, s.await("unwanted", spillway.Canceled).State)

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.leaves()
	require.NoFileExists(t, mark)
}

func TestItEndsItsJobBeforeItLeaves(t *testing.T) {
	s := newStand(t)
	p := s.start("w1")
	gate := filepath.Join(t.TempDir(), "gate")
	s.submit("a", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.1; done; echo done", gate), 60)
	s.await("a", spillway.Running)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(p.said(), "SIGTERM: no more jobs") }, patience, tick)
	s.submit("b", "true", 60)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	s.await("a", spillway.Completed)
	p.leaves()
	require.Equal(t, spillway.Pending, s.await("b", spillway.Pending, spillway.Assigned).State)
	require.Equal(t, "worker:w1", string(s.await("a", spillway.Completed).Machine))
}

// A job that takes too long for whoever has to leave is another worker's.
func TestItLeavesALongJobToAnother(t *testing.T) {
	s := newStand(t)
	p := s.start("w1", "--drain", "0.3")
	s.submit("a", "sleep 60", 100)
	s.await("a", spillway.Running)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.leaves()
	require.Contains(t, p.said(), "job a is left to another worker")
	next := s.start("w2", "--drain", "0.1")
	require.Eventually(t, func() bool { r := s.await("a", spillway.Running); return r.Machine == "worker:w2" && r.Attempt == 2 }, patience, tick)
	require.NoError(t, next.Process.Signal(syscall.SIGTERM))
	next.leaves()
}
