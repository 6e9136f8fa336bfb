package realrunner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Variable names the environment variable with the path of the program.
const Variable = "GITLAB_RUNNER_BIN"

// Binary is the path of the real gitlab-runner, or skips the test: without is what
// is not tried then.
func Binary(t testing.TB, without string) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		t.Skipf("SKIPPED: %s names no gitlab-runner: %s", Variable, without)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("SKIPPED: bash is not installed, and a shell runner needs it: %s", without)
	}
	_, err := os.Stat(path)
	require.NoError(t, err, Variable)
	return path
}

// Options are what stands in the runner's config.toml.
type Options struct {
	URL, Token, Name string
	Router           bool // FF_USE_JOB_ROUTER
	Concurrent       int  // 0 = 1
	Labels           map[string]string
	Metrics          string // the address of its metrics; "" = none
	CAFile           string // authorities that may vouch for GitLab and the router; "" = the system's
}

// Process is a running gitlab-runner.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  struct {
		sync.Mutex
		text bytes.Buffer
	}
}

// Start runs a gitlab-runner with the shell executor until the test ends.
func Start(t testing.TB, binary string, o Options) *Process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(file, []byte(o.Config(dir)), 0o600))
	p := &Process{cmd: exec.Command(binary, "run", "--config", file, "--working-directory", dir), done: make(chan struct{})}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("gitlab-runner said:\n%s", p.Log())
		}
	})
	return p
}

// Config is the config.toml of a runner that keeps everything in dir.
func (o Options) Config(dir string) string {
	var c strings.Builder
	_, _ = fmt.Fprintf(&c, "concurrent = %d\ncheck_interval = 1\nshutdown_timeout = 10\nlisten_address = %q\n", max(o.Concurrent, 1), o.Metrics)
	_, _ = fmt.Fprintf(&c, "[[runners]]\nname = %q\nurl = %q\ntoken = %q\nexecutor = \"shell\"\nshell = \"bash\"\n", o.Name, o.URL, o.Token)
	if o.CAFile != "" {
		_, _ = fmt.Fprintf(&c, "tls-ca-file = %q\n", o.CAFile)
	}
	_, _ = fmt.Fprintf(&c, "builds_dir = %q\ncache_dir = %q\n", filepath.Join(dir, "builds"), filepath.Join(dir, "cache"))
	_, _ = fmt.Fprintf(&c, "[runners.feature_flags]\nFF_USE_JOB_ROUTER = %t\n", o.Router)
	c.WriteString("[runners.labels]\n")
	for key, value := range o.Labels {
		_, _ = fmt.Fprintf(&c, "%q = %q\n", key, value)
	}
	return c.String()
}

// Write implements [io.Writer], for the program's output.
func (p *Process) Write(b []byte) (int, error) {
	p.log.Lock()
	defer p.log.Unlock()
	return p.log.text.Write(b)
}

// Log is what the program has written.
func (p *Process) Log() string {
	p.log.Lock()
	defer p.log.Unlock()
	return p.log.text.String()
}

// Signal sends the program a signal.
func (p *Process) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(signal))
}

// ExitCode waits for the program's end.
func (p *Process) ExitCode(t testing.TB, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatal("gitlab-runner does not end")
		return 0
	}
}
