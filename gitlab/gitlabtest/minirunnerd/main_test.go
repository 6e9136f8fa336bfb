package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

const patience = 90 * time.Second

// asItself makes this test binary the program.
const asItself = "MINIRUNNERD_AS_ITSELF"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		os.Exit(run(os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

// process is a minirunnerd.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   struct {
		sync.Mutex
		stderr bytes.Buffer
	}
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.stderr.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.stderr.String()
}

// says waits until something is logged: what the process has written may come later than
// what it has done.
func (p *process) says(t *testing.T, pattern string) (found []string) {
	t.Helper()
	compiled := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool {
		found = compiled.FindStringSubmatch(p.log())
		return found != nil
	}, patience, 5*time.Millisecond, "%s is not said", pattern)
	return found
}

func start(t *testing.T, token string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asItself+"=1", tokenVariable+"="+token)
	p.cmd.Stderr = p
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("it does not end: %s", p.log())
		return 0
	}
}

func lab(t *testing.T) (g *gitlabtest.Server, url, token string, project int64) {
	t.Helper()
	g = gitlabtest.New(gitlabtest.Options{})
	web := httptest.NewServer(g)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		g.Close()
	})
	_, token = g.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	return g, web.URL, token, g.AddProject("acme/web")
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestQUITFinishesTheJob(t *testing.T) {
	g, url, token, project := lab(t)
	gate := filepath.Join(t.TempDir(), "gate")
	id := g.Enqueue(gitlabtest.JobSpec{Project: project, Script: []string{"until [ -e " + gate + " ]; do sleep 0.02; done", `echo "token: [$GITLAB_RUNNER_TOKEN]"`}})
	p := start(t, token, "--url", url, "--time-scale", "0.02", "--system-id", "s_d", "--labels", "a=b,c=d", "--listen-metrics", "127.0.0.1:0", "--work-dir", t.TempDir())
	_, err := g.Wait(within(t), id, gitlabtest.Running)
	require.NoError(t, err)
	address := p.says(t, `address=(\S+)`)
	response, err := http.Get("http://" + address[1] + "/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGQUIT))
	p.says(t, "no new jobs from now on")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, exitLeft, p.exit(t), p.log())
	v, _ := g.Job(id)
	require.Equal(t, gitlabtest.Success, v.Status)
	require.Equal(t, "s_d", v.SystemID)
	require.Contains(t, v.Trace, "token: []", "a job must not see it")
	require.NotContains(t, p.log(), token)
	require.NotContains(t, p.log(), g.JobToken(id))
}

func TestTERMCutsTheJob(t *testing.T) {
	g, url, token, project := lab(t)
	id := g.Enqueue(gitlabtest.JobSpec{Project: project, Script: []string{"sleep 600"}})
	p := start(t, token, "--url", url, "--time-scale", "0.02", "--work-dir", t.TempDir())
	_, err := g.Wait(within(t), id, gitlabtest.Running)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitCut, p.exit(t), p.log())
	v, _ := g.Job(id)
	require.Equal(t, gitlabtest.Failed, v.Status)
	require.Equal(t, "runner_interrupted", v.FailureReason)
}

func TestSignalsOfAnIdleRunner(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt} {
		g, url, token, _ := lab(t)
		p := start(t, token, "--url", url, "--time-scale", "0.02")
		require.Eventually(t, func() bool { return len(g.CallsTo(gitlabtest.RouteRequestJob)) > 0 }, patience, 5*time.Millisecond)
		require.NoError(t, p.cmd.Process.Signal(signal))
		require.Equal(t, exitLeft, p.exit(t), p.log())
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--url", "http://a"},
		{"--token", "t"},
		{"--nothing"},
		{"--url", "http://a", "--token", "t", "more"},
		{"--url", "http://a", "--token", "t", "--labels", "x"},
		{"--url", "http://a", "--token", "t", "--time-scale", "0"},
		{"--url", "http://a", "--token", "t", "--ca-file", "/nothing"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, exitUsage, run(args, &stderr), "%q", args)
		require.NotEmpty(t, stderr.String())
	}
	var stderr bytes.Buffer
	require.Equal(t, exitFailed, run([]string{"--url", "http://a", "--token", "t", "--listen-metrics", "nowhere:x"}, &stderr))
}
