package sidecartest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// within bounds what happens at once on an idle machine.
const within = 80 * time.Second

// Runner is one stand-in, which may be started many times, one after the other.
type Runner struct {
	Address string // where it serves its metrics
	dir     string
}

// New returns a runner that isn't started: it takes three jobs at once, and has none.
func New(t *testing.T) *Runner {
	t.Helper()
	r := &Runner{Address: peertest.FreeAddress(t), dir: t.TempDir()}
	r.Jobs(t, 0)
	t.Cleanup(func() {
		if pid := r.PID(); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			require.Eventually(t, func() bool { return r.PID() == 0 }, within, time.Millisecond)
		}
	})
	return r
}

// Command is the command line that starts it.
func (r *Runner) Command() []string { return []string{os.Args[0], role, r.dir, r.Address} }

// CommandAt is Command for another address than its own.
func (r *Runner) CommandAt(address string) []string {
	return []string{os.Args[0], role, r.dir, address}
}

// Shell is Command, for /bin/sh, in the background.
func (r *Runner) Shell() string {
	return "'" + strings.Join(r.Command(), "' '") + "' </dev/null >/dev/null 2>&1 &"
}

// Metrics is the URL of its metrics.
func (r *Runner) Metrics() string { return "http://" + r.Address + "/metrics" }

// PIDFile is the file in which it writes its process id.
func (r *Runner) PIDFile() string { return filepath.Join(r.dir, pidName) }

// Jobs says how many jobs it has from now on.
func (r *Runner) Jobs(t *testing.T, n int) { r.write(t, jobsName, strconv.Itoa(n)) }

// Serve has it answer with content instead of its metrics; "" = with its metrics.
func (r *Runner) Serve(t *testing.T, content string) { r.write(t, contentName, content) }

// Stay has it stay after SIGQUIT, though it has no job.
func (r *Runner) Stay(t *testing.T, stay bool) { r.write(t, stayName, strconv.FormatBool(stay)) }

// Start starts it, as somebody else's process.
func (r *Runner) Start(t *testing.T) {
	t.Helper()
	argv := r.Command()
	cmd := exec.Command(argv[0], argv[1:]...)
	require.NoError(t, cmd.Start())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // an exit code other than 0 is what a test may want
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
	})
	require.Eventually(t, func() bool { return r.PID() == cmd.Process.Pid }, within, time.Millisecond)
}

// PID is the process that runs; 0 = none.
func (r *Runner) PID() int {
	pid, err := strconv.Atoi(strings.TrimSpace(r.read(pidName)))
	if err != nil {
		return 0
	}
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil || strings.Contains(string(line), ") Z ") {
		return 0
	}
	return pid
}

// Story is what befell it, in order: "start", "QUIT", "TERM", "end".
func (r *Runner) Story() []string { return strings.Fields(r.read(storyName)) }

// AwaitStory waits until that befell it and no more: a process that was sent a signal has
// it when it gets to run.
func (r *Runner) AwaitStory(t *testing.T, story ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Equal(story, r.Story()) }, within, time.Millisecond, "%v", story)
}

// Environment is that of its last start.
func (r *Runner) Environment() string { return r.read(environmentName) }

func (r *Runner) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func (r *Runner) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(r.dir, name)) // not there: nothing was written yet
	return string(content)
}
