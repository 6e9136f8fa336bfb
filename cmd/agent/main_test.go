package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

const (
	// asAgent, set in the environment, makes the test's own binary the agent.
	asAgent = "SPILLWAY_TEST_AS_AGENT"
	token   = "runner-token-for-tests"
	// within bounds the wait for what must come; nothing is said about how long it takes.
	within = time.Minute
)

func TestMain(m *testing.M) {
	sidecartest.Main()
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

// router gives each machine that registers one job, and tells its story.
type router struct {
	runnerv1.UnimplementedRunnerServiceServer
	address string
	script  string
	story   chan *runnerv1.RunnerMessage
}

func startRouter(t *testing.T, script string) *router {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &router{address: listener.Addr().String(), script: script, story: make(chan *runnerv1.RunnerMessage, 1000)}
	server := grpc.NewServer()
	runnerv1.RegisterRunnerServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r
}

func (r *router) Connect(s runnerv1.RunnerService_ConnectServer) error {
	if got := metadata.ValueFromIncomingContext(s.Context(), "authorization"); len(got) != 1 || got[0] != "Bearer "+token {
		return status.Error(codes.Unauthenticated, "unknown token")
	}
	for first := true; ; first = false {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		r.story <- m
		var answers []*runnerv1.RouterMessage
		switch {
		case first:
			answers = append(answers,
				&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Registered{Registered: &runnerv1.Registered{HeartbeatEvery: durationpb.New(20 * time.Millisecond)}}},
				&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Assign{Assign: &runnerv1.Assign{Job: &typesv1.Job{Id: "1", Script: r.script}, Attempt: 1}}})
		case m.GetJobStatus().GetResult() != nil:
			answers = append(answers,
				&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_StatusAck{StatusAck: &runnerv1.StatusAck{JobId: "1", Attempt: 1}}})
		}
		for _, answer := range answers {
			if err := s.Send(answer); err != nil {
				return err
			}
		}
	}
}

func (r *router) wait(t *testing.T, what func(*runnerv1.RunnerMessage) bool) *runnerv1.RunnerMessage {
	t.Helper()
	timeout := time.After(within)
	for {
		select {
		case m := <-r.story:
			if what(m) {
				return m
			}
		case <-timeout:
			require.FailNow(t, "the agent never said it")
		}
	}
}

// process is the agent as its own process.
type process struct {
	*exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
}

func startProcess(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.Env = append([]string{asAgent + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}, env...)
	p.Stderr = &p.stderr
	p.WaitDelay = time.Second // what it started may have inherited it
	require.NoError(t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) requireExit(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		require.FailNow(t, "the agent is still there")
	}
	require.Equal(t, code, p.ProcessState.ExitCode(), p.stderr.String())
	require.NotContains(t, p.stderr.String(), token)
}

// job is a script that says that it runs and the ids of its processes, and waits
// for a file.
type job struct{ pids, goOn string }

func newJob(t *testing.T) job {
	dir := t.TempDir()
	return job{filepath.Join(dir, "pids"), filepath.Join(dir, "go-on")}
}

func (j job) script() string {
	return "sleep 1000 & echo $$ $! >" + j.pids + ".new; mv " + j.pids + ".new " + j.pids +
		"; while ! [ -e " + j.goOn + " ]; do sleep 0.02; done; [ -z \"$" + tokenVariable + "\" ] || exit 9"
}

func (j job) awaitStart(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(j.pids); return err == nil }, within, 5*time.Millisecond)
}

func (j job) requireGone(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(j.pids)
	require.NoError(t, err)
	for _, field := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !runs(pid) }, within, 5*time.Millisecond, "process %d of the job is left", pid)
	}
}

func runs(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(line, []byte(") Z "))
}

func TestSigtermWaitsForTheJob(t *testing.T) {
	j := newJob(t)
	r := startRouter(t, j.script())
	work := filepath.Join(t.TempDir(), "made", "here")
	p := startProcess(t, []string{tokenVariable + "=" + token}, "--router", r.address, "--plaintext", "--work-dir", work, "--instance-id", "i-1")
	j.awaitStart(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	r.wait(t, func(m *runnerv1.RunnerMessage) bool {
		return m.GetHeartbeat().GetDraining() && m.GetHeartbeat().GetBusy() == 1
	})
	require.NoError(t, os.WriteFile(j.goOn, nil, 0o600))
	ended := r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetJobStatus().GetResult() != nil })
	require.Equal(t, typesv1.JobState_JOB_STATE_COMPLETED, ended.GetJobStatus().GetResult().GetState())
	p.requireExit(t, exitLeft)
	j.requireGone(t)
	left, err := os.ReadDir(work)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSignalsThatCutJobsShort(t *testing.T) {
	for name, signals := range map[string][]os.Signal{
		"second SIGTERM":       {syscall.SIGTERM, syscall.SIGTERM},
		"SIGTERM, then SIGINT": {syscall.SIGTERM, syscall.SIGINT},
		"SIGHUP":               {syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			r := startRouter(t, j.script())
			tokenFile := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
			p := startProcess(t, nil, "--router", r.address, "--plaintext", "--token-file", tokenFile)
			j.awaitStart(t)
			for i, s := range signals {
				if i > 0 {
					r.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetHeartbeat().GetDraining() })
				}
				require.NoError(t, p.Process.Signal(s))
			}
			p.requireExit(t, exitCut)
			j.requireGone(t)
		})
	}
}

// Whoever reads our standard error may be dead when we are told to go. What the job
// has started in the background is ended all the same.
func TestI9_ABrokenStandardErrorDoesNotLeaveTheJobBehind(t *testing.T) {
	j := newJob(t)
	r := startRouter(t, j.script())
	from, to, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "--router", r.address, "--plaintext")
	cmd.Env = []string{asAgent + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), tokenVariable + "=" + token}
	cmd.Stderr = to
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill() //nolint:errcheck // it has ended, if all went well
	require.NoError(t, to.Close())
	j.awaitStart(t)
	require.NoError(t, from.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	_ = cmd.Wait()
	require.Equal(t, exitCut, cmd.ProcessState.ExitCode(), cmd.ProcessState)
	j.requireGone(t)
}

func TestDrainTimeout(t *testing.T) {
	j := newJob(t)
	r := startRouter(t, j.script())
	p := startProcess(t, []string{tokenVariable + "=" + token}, "--router", r.address, "--plaintext", "--drain-timeout", "100ms")
	j.awaitStart(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.requireExit(t, exitCut)
	j.requireGone(t)
}

// The kernel ends a job's script when the agent dies without a chance to.
func TestKilledAgentTakesTheScriptAlong(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	r := startRouter(t, "echo $$ >"+pid+".new; mv "+pid+".new "+pid+"; while :; do sleep 0.05; done")
	p := startProcess(t, []string{tokenVariable + "=" + token}, "--router", r.address, "--plaintext")
	j := job{pids: pid}
	j.awaitStart(t)
	require.NoError(t, p.Process.Kill())
	j.requireGone(t)
}

func TestRefusedToken(t *testing.T) {
	r := startRouter(t, "true")
	p := startProcess(t, []string{tokenVariable + "=another"}, "--router", r.address, "--plaintext")
	p.requireExit(t, exitRefused)
	require.Contains(t, p.stderr.String(), "refused the runner token")
}

func TestCommandLine(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":                    {[]string{"--help"}, exitLeft, "Exit codes"},
		"version":                 {[]string{"--version"}, exitLeft, "spillway-agent version"},
		"unknown flag":            {[]string{"--nonsense"}, exitUsage, "nonsense"},
		"argument":                {[]string{"nonsense"}, exitUsage, "nonsense"},
		"no router":               {[]string{"--plaintext"}, exitUsage, "host:port"},
		"plaintext too far":       {[]string{"--plaintext", "--router", "192.0.2.1:1"}, exitUsage, "loopback"},
		"plaintext and authority": {[]string{"--plaintext", "--router", "127.0.0.1:1", "--ca-file", "x"}, exitUsage, "--ca-file"},
		"no capacity":             {[]string{"--plaintext", "--router", "127.0.0.1:1", "--capacity", "0"}, exitUsage, "capacity"},
		"no drain timeout":        {[]string{"--plaintext", "--router", "127.0.0.1:1", "--drain-timeout", "0"}, exitUsage, "drain-timeout"},
		"log level":               {[]string{"--plaintext", "--router", "127.0.0.1:1", "--log-level", "loud"}, exitUsage, "loud"},
		"debugging":               {[]string{"--plaintext", "--router", "127.0.0.1:1", "--debug", "perhaps"}, exitUsage, "on or off"},
		"cloud":                   {[]string{"--plaintext", "--router", "127.0.0.1:1", "--cloud", "azure"}, exitUsage, "aws, gce"},
		"metadata elsewhere":      {[]string{"--plaintext", "--router", "127.0.0.1:1", "--cloud", "aws", "--metadata-endpoint", "http://192.0.2.1"}, exitUsage, "link-local"},
		"restless health check":   {[]string{"--plaintext", "--router", "127.0.0.1:1", "--health-check", "true", "--health-check-every", "1ms"}, exitUsage, "health-check-every"},
		"no health check":         {[]string{"--plaintext", "--router", "127.0.0.1:1", "--health-check", " "}, exitUsage, "health-check"},
		"no such authority file":  {[]string{"--router", "127.0.0.1:1", "--ca-file", absent}, exitFailed, absent},
		"no such token file":      {[]string{"--plaintext", "--router", "127.0.0.1:1", "--token-file", absent}, exitFailed, absent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tokenVariable, token)
			var stdout, stderr bytes.Buffer
			require.Equal(t, c.code, run(t.Context(), c.args, &stdout, &stderr), stderr.String())
			require.Contains(t, stdout.String()+stderr.String(), c.says)
			require.NotContains(t, stdout.String()+stderr.String(), token)
		})
	}
	t.Run("no token", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(t.Context(), []string{"--plaintext", "--router", "127.0.0.1:1"}, &stdout, &stderr))
		require.Contains(t, stderr.String(), tokenVariable)
	})
}
