package shell_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/shell"
)

const within = 80 * time.Second // of something that happens at once on an idle machine

func spec(t *testing.T, script string) shell.Spec {
	t.Helper()
	return shell.Spec{Parent: t.TempDir(), Script: script, Timeout: time.Minute, Grace: 5 * time.Second}
}

func run(t *testing.T, s shell.Spec) shell.Outcome {
	t.Helper()
	out, err := shell.Run(t.Context(), s, func(*shell.Place) {})
	require.NoError(t, err)
	require.NoError(t, out.CleanUp)
	requireEmpty(t, s.Parent)
	return out
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the work directory is still there")
}

func TestExitCodeAndOutput(t *testing.T) {
	for name, c := range map[string]struct {
		script   string
		exitCode int
		output   string
	}{
		"success":          {"echo out; echo err >&2", 0, "out\nerr\n"},
		"failure":          {"echo no; exit 3", 3, "no\n"},
		"ended by signal":  {"kill -9 $$", 137, ""},
		"reads no input":   {"cat; echo end", 0, "end\n"},
		"private":          {"stat -c %a .. .", 0, "700\n700\n"},
		"script is hidden": {"tr '\\0' ' ' </proc/$$/cmdline | grep -c hidden-word || true", 0, "0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, spec(t, c.script))
			require.Equal(t, shell.Exited, out.Cause)
			require.Equal(t, c.exitCode, out.ExitCode)
			require.Equal(t, c.output, string(out.Output))
			require.Zero(t, out.Dropped)
		})
	}
}

func TestEnvironmentIsMinimalPlusOwn(t *testing.T) {
	t.Setenv("SECRET_OF_THE_RUNNER", "s3cret")
	s := spec(t, "env")
	s.Env = []string{"GREETING=hi = there", "HOME=/first", "HOME=/own", "EMPTY="}
	lines := strings.Split(strings.TrimSpace(string(run(t, s).Output)), "\n")
	require.Contains(t, lines, "GREETING=hi = there")
	require.Contains(t, lines, "HOME=/own")
	require.Contains(t, lines, "EMPTY=")
	var names []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	require.Subset(t, []string{
		"PATH", "HOME", "TMPDIR", "SHELL", "LANG", "CI_PROJECT_DIR", "SPILLWAY_RUN", // ours
		"GREETING", "EMPTY", // its own
		"PWD", "OLDPWD", "_", "SHLVL", // of the shell
	}, names)
}

func TestTimeLimit(t *testing.T) {
	s := spec(t, "echo begun; sleep 1000")
	s.Timeout = 100 * time.Millisecond
	out := run(t, s)
	require.Equal(t, shell.TimedOut, out.Cause)
	require.Equal(t, shell.TimedOutExitCode, out.ExitCode)
}

// A script that ignores SIGTERM gets its grace and is then ended all the same.
func TestGraceThenKill(t *testing.T) {
	s := spec(t, `trap "" TERM; while :; do sleep 0.05; done`)
	s.Timeout, s.Grace = 50*time.Millisecond, 200*time.Millisecond
	out := run(t, s)
	require.Equal(t, shell.TimedOut, out.Cause)
}

// The first reason to end a script is the one that is reported, whatever else comes
// while it puts things in order.
func TestX13_TheFirstReasonCounts(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		stopOn  string // the file that makes us stop it
		want    shell.Cause
	}{
		"time is up, then it is stopped": {timeout: 300 * time.Millisecond, stopOn: "told", want: shell.TimedOut},
		"stopped, then time is up":       {timeout: 2 * time.Second, stopOn: "ready", want: shell.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// On a busy machine the second reason may come before the script is ready for the first.
			for limit := c.timeout; ; limit *= 4 {
				cause, told := endTwice(t, limit, c.stopOn)
				if told && cause == c.want {
					return
				}
				require.Less(t, limit, 10*time.Second, "%v", cause)
			}
		})
	}
}

// endTwice runs a script that goes on until its time is up and it was stopped, which is done
// when it has made a file. told is whether it has heard of its end.
func endTwice(t *testing.T, limit time.Duration, stopOn string) (cause shell.Cause, told bool) {
	t.Helper()
	dir := t.TempDir()
	s := spec(t, `cd `+dir+`; trap ": >told" TERM; : >ready; while [ ! -e over ]; do sleep 0.05; done`)
	s.Timeout, s.Grace = limit, within
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, ended := time.Now(), make(chan struct{})
	until := func(is func() bool) bool {
		for !is() {
			select {
			case <-ended:
				return false
			case <-time.After(5 * time.Millisecond):
			}
		}
		return true
	}
	exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	var stopping sync.WaitGroup
	out, err := shell.Run(ctx, s, func(*shell.Place) {
		stopping.Go(func() {
			if !until(func() bool { return exists(stopOn) }) {
				return
			}
			stop()
			if until(func() bool { return time.Since(began) > limit }) {
				_ = os.WriteFile(filepath.Join(dir, "over"), nil, 0o600) // else it is killed
			}
		})
	})
	close(ended)
	stopping.Wait()
	require.NoError(t, err)
	return out.Cause, exists("told")
}

// What the script called may put things in order within the grace, though sh
// itself ends at once.
func TestGraceIsForTheWholeGroup(t *testing.T) {
	dir := t.TempDir()
	tidied, ready := filepath.Join(dir, "tidied"), filepath.Join(dir, "ready")
	s := spec(t, `sh -c 'trap "sleep 0.3; : >`+tidied+`; exit" TERM; : >`+ready+`; while :; do sleep 0.05; done' & wait`)
	s.Grace = within
	ctx, stop := context.WithCancel(t.Context())
	out, err := shell.Run(ctx, s, func(*shell.Place) { stopWhenExists(t, ready, stop) })
	require.NoError(t, err)
	require.Equal(t, shell.Stopped, out.Cause)
	require.FileExists(t, tidied)
}

func TestNothingIsLeft(t *testing.T) {
	for name, start := range map[string]string{
		"in the background":    `sleep 1000 & echo $! >%s.new; mv %s.new %s`,
		"ignores SIGTERM":      `sh -c 'trap "" TERM; echo $$ >%s.new; mv %s.new %s; while :; do sleep 0.1; done' &`,
		"in its own session":   `setsid sh -c 'echo $$ >%s.new; mv %s.new %s; sleep 1000' >/dev/null 2>&1 &`,
		"holds our pipe too":   `setsid sh -c 'echo $$ >%s.new; mv %s.new %s; sleep 1000' &`,
		"leaves our directory": `cd / && sleep 1000 & echo $! >%s.new; mv %s.new %s`,
	} {
		for ending, end := range map[string]string{
			"script ends": "",
			"is stopped":  "sleep 1000",
		} {
			t.Run(name+", "+ending, func(t *testing.T) {
				pidFile := filepath.Join(t.TempDir(), "pid")
				started := strings.ReplaceAll(start, "%s", pidFile)
				s := spec(t, started+"\nwhile ! [ -s "+pidFile+" ]; do sleep 0.01; done\n"+end)
				s.Grace = 300 * time.Millisecond
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				onStart := func(*shell.Place) {}
				if end != "" {
					onStart = func(*shell.Place) { stopWhenExists(t, pidFile, stop) }
				}
				out, err := shell.Run(ctx, s, onStart)
				require.NoError(t, err)
				require.NoError(t, out.CleanUp)
				requireEmpty(t, s.Parent)
				requireGone(t, pidFile)
			})
		}
	}
}

// stopWhenExists calls stop once the file is there.
func stopWhenExists(t *testing.T, path string, stop func()) {
	go func() {
		defer stop()
		for t.Context().Err() == nil {
			if _, err := os.Stat(path); err == nil {
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
}

func requireGone(t *testing.T, pidFile string) {
	t.Helper()
	content, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid)
	}, within, 5*time.Millisecond, "process %d is still there", pid)
}

// isZombie: ended, but its new parent has not looked yet; in a container without
// an init nobody ever does.
func isZombie(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && bytes.Contains(line, []byte(") Z "))
}

func TestOutputTailAtItsEdge(t *testing.T) {
	const limit = shell.OutputTailBytes
	for name, c := range map[string]struct{ printed, dropped int }{
		"just fits": {limit, 0},
		"one more":  {limit + 1, 1},
		"much more": {5*limit + 7, 4*limit + 7},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, spec(t, "head -c "+strconv.Itoa(c.printed-1)+" /dev/zero | tr '\\0' x; printf E"))
			require.Len(t, out.Output, c.printed-c.dropped)
			require.EqualValues(t, c.dropped, out.Dropped)
			require.Equal(t, byte('E'), out.Output[len(out.Output)-1])
		})
	}
}

func TestLogFileHoldsTheWholeOutput(t *testing.T) {
	s := spec(t, "echo one; while ! grep -q one ../output.log; do sleep 0.01; done; stat -c %a ../output.log")
	s.LogFile = true
	require.Equal(t, "one\n600\n", string(run(t, s).Output))
}

func TestReadOnlyDirectoriesAreDeleted(t *testing.T) {
	run(t, spec(t, "mkdir -p a/b && : >a/b/c && chmod 500 a/b a"))
}

func TestInvalidSpecs(t *testing.T) {
	for name, change := range map[string]func(*shell.Spec){
		"NUL in script":      func(s *shell.Spec) { s.Script = "a\x00b" },
		"NUL in value":       func(s *shell.Spec) { s.Env = []string{"A=secret\x00"} },
		"no name":            func(s *shell.Spec) { s.Env = []string{"=secret"} },
		"no equals sign":     func(s *shell.Spec) { s.Env = []string{"secret"} },
		"no time limit":      func(s *shell.Spec) { s.Timeout = 0 },
		"negative time limi": func(s *shell.Spec) { s.Timeout = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, "true")
			change(&s)
			_, err := shell.Run(t.Context(), s, func(*shell.Place) { t.Error("it started") })
			require.ErrorIs(t, err, shell.ErrInvalid)
			require.NotContains(t, err.Error(), "secret")
			requireEmpty(t, s.Parent)
		})
	}
}

func TestNoPlaceForTheWorkDirectory(t *testing.T) {
	s := spec(t, "true")
	s.Parent = filepath.Join(s.Parent, "absent")
	_, err := shell.Run(t.Context(), s, func(*shell.Place) { t.Error("it started") })
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, shell.ErrInvalid)
}
