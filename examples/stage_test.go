package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

const (
	patience = 2 * time.Minute
	poll     = 50 * time.Millisecond
)

// builds are the programs that the pages tell to build, in bin/, and their packages.
var builds = map[string]string{
	"controlplane": "./cmd/controlplane", "spillwayctl": "./cmd/spillwayctl", "spillway-agent": "./cmd/agent",
	"plugins/spillway-provider-local": "./cmd/plugins/local", "minirunnerd": "./gitlab/gitlabtest/minirunnerd",
	"observe": "./examples/observe", "route": "./examples/route", "provider": "./examples/provider-in-60-lines",
	"admission-cel": "./examples/admission-cel", "admission-image-policy": "./examples/admission-image-policy",
}

// build builds all of them.
func build(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	runs := [][]string{{"build", "-trimpath", "-ldflags", "-s -w", "-o", bin + "/"}}
	for out, pkg := range builds {
		if out == path.Base(pkg) {
			runs[0] = append(runs[0], pkg)
			continue
		}
		runs = append(runs, []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, out), pkg})
	}
	for _, args := range runs {
		cmd := exec.Command("go", args...)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
	return bin
}

// stage is what a reader of an example's page has before him: the sources' folder with
// what is built in bin/, and a terminal. Its loopback ports are free ones in place of
// those of the files, so that examples run side by side.
type stage struct {
	*testing.T
	dir    string
	blocks []string // of commands
	played int
	opened int               // terminals
	ports  map[string]string // of the files → in use here
	env    []string
}

func newStage(t *testing.T, bin, name string) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "ex-") // short: there are sockets in it
	require.NoError(t, err)
	s := &stage{T: t, dir: dir, ports: map[string]string{}}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.dir)) })
	for _, dir := range []string{"tmp", "tools"} {
		require.NoError(t, os.Mkdir(filepath.Join(s.dir, dir), 0o700))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "bin", "plugins"), 0o700))
	for out := range builds {
		require.NoError(t, os.Link(filepath.Join(bin, out), filepath.Join(s.dir, "bin", out))) // no copy: they are large
	}
	sources, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, link := range []string{"proto", "Makefile"} {
		require.NoError(t, os.Symlink(filepath.Join(sources, link), filepath.Join(s.dir, link)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "tools", "go"), []byte(builder()), 0o700)) //nolint:gosec // a program
	s.copy(name)
	s.blocks = commands(read(t, filepath.Join(s.dir, "examples", name, "README.md")))
	s.env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "tools")+":"+os.Getenv("PATH"),
		"TMPDIR="+filepath.Join(s.dir, "tmp"), "SPILLWAY_ADDR="+s.at("127.0.0.1:7701"), "PYTHONDONTWRITEBYTECODE=1")
	return s
}

// builder is a `go build` that builds nothing, and accepts what is built.
func builder() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nout=bin\nfor arg; do\n case $before in -o) out=${arg%/} ;; esac\n before=$arg\n" +
		" case $arg in ./*)\n  [ -d \"$out\" ] && is=$out/${arg##*/} || is=$out\n  case \"$is $arg\" in\n")
	for out, pkg := range builds {
		fmt.Fprintf(&b, "  'bin/%s %s') ;;\n", out, pkg)
	}
	b.WriteString("  *) echo \"the tests build no $is from $arg\" >&2; exit 1 ;;\n  esac ;;\n esac\ndone\n")
	return b.String()
}

var (
	loopback = regexp.MustCompile(`127\.0\.0\.1:\d{4}\b`)
	// silent is when a machine that says nothing counts as gone: in examples soon, but here
	// a whole computer may stand still for some seconds.
	silent = regexp.MustCompile(`\bsilent: \d+s`)
)

// copy copies all folders' files: an example may name those of another.
func (s *stage) copy(name string) {
	s.Helper()
	for _, folder := range folders(s.T) {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		require.NoError(s, err)
		to := filepath.Join(s.dir, "examples", folder)
		require.NoError(s, os.MkdirAll(to, 0o700))
		for _, file := range files {
			info, err := os.Stat(file)
			require.NoError(s, err)
			if info.IsDir() || filepath.Ext(file) == ".go" {
				continue
			}
			text := silent.ReplaceAllString(loopback.ReplaceAllStringFunc(read(s.T, file), s.at), "silent: 1m")
			require.NoError(s, os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(text), info.Mode()))
		}
	}
	require.FileExists(s, filepath.Join(s.dir, "examples", name, "README.md"))
}

// change replaces a text in the copy of an example's file.
func (s *stage) change(file, from, to string) {
	s.Helper()
	path := filepath.Join(s.dir, "examples", file)
	text := read(s.T, path)
	require.Contains(s, text, from, file)
	require.NoError(s, os.WriteFile(path, []byte(strings.ReplaceAll(text, from, to)), 0o600))
}

// holdJobs has whatever sleeps by name, as the jobs of examples do, sleep until goOn is
// called.
func (s *stage) holdJobs() (goOn func()) {
	s.Helper()
	file := filepath.Join(s.dir, "go-on")
	script := fmt.Sprintf("#!/bin/sh\nPATH=/usr/bin:/bin\nwhile [ -e \"$0\" ] && ! [ -e %s ]; do sleep 0.1; done\n", file)
	require.NoError(s, os.WriteFile(filepath.Join(s.dir, "tools", "sleep"), []byte(script), 0o700)) //nolint:gosec // a program
	return func() { require.NoError(s, os.WriteFile(file, nil, 0o600)) }
}

// awaitBusy waits until so many machines say that they have a job.
func (s *stage) awaitBusy(n int) {
	s.Helper()
	s.awaitCtl(func(out string) bool { return strings.Count(out, "busy") == n }, "runners")
}

// awaitCtl waits until a command, in a terminal of its own, prints what it should.
func (s *stage) awaitCtl(is func(out string) bool, args ...string) {
	s.Helper()
	var last string
	require.Eventually(s, func() bool {
		cmd := exec.Command(filepath.Join(s.dir, "bin", "spillwayctl"), args...)
		cmd.Env = s.env
		out, err := cmd.CombinedOutput()
		last = string(out)
		return err == nil && is(last)
	}, patience, poll, "%v", args)
	s.Logf("%s", last)
}

// at is where something listens that the files have at that address.
func (s *stage) at(address string) string {
	if s.ports[address] == "" {
		s.ports[address] = peertest.FreeAddress(s)
	}
	return s.ports[address]
}

// next is the next block of commands of the page.
func (s *stage) next() string {
	s.Helper()
	require.Less(s, s.played, len(s.blocks), "the page has no more commands")
	s.played++
	return s.blocks[s.played-1]
}

func (s *stage) requireAllPlayed() {
	s.Helper()
	require.Len(s, s.blocks, s.played, "the page has commands that nobody has typed")
	// What remains of the plugins' host is a folder of the user, with a lock.
	host := filepath.Join(s.dir, "tmp", fmt.Sprint("spillway-", os.Getuid()))
	_ = os.Remove(filepath.Join(host, "lock"))
	_ = os.Remove(host) // if nothing else is in it
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	require.NoError(s, err)
	require.Empty(s, left, "left behind")
}

// run types the next block and waits for its end, which is to have that exit code.
func (s *stage) run(code int) (out string) {
	s.Helper()
	return s.start().ends(code)
}

// runWhole types the next block and waits for its end, unless that takes too long now.
func (s *stage) runWhole() (out string) {
	s.Helper()
	if !whole {
		s.Logf("left to `make examples`: %s", s.next())
		return ""
	}
	return s.run(0)
}

// terminal is one in which a block runs.
type terminal struct {
	s     *stage
	block string
	file  string
	cmd   *exec.Cmd
	done  chan struct{}
}

// start types the next block in a terminal of its own.
func (s *stage) start() *terminal {
	s.Helper()
	return s.open(s.next())
}

// open types a block in a terminal of its own.
func (s *stage) open(block string) *terminal {
	s.Helper()
	s.opened++
	t := &terminal{s: s, block: block, file: filepath.Join(s.dir, fmt.Sprint("screen-", s.opened)), done: make(chan struct{})}
	screen, err := os.Create(t.file)
	require.NoError(s, err)
	t.cmd = exec.Command("bash", "-euc", t.block)
	t.cmd.Dir, t.cmd.Env, t.cmd.Stdout, t.cmd.Stderr = s.dir, s.env, screen, screen
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s, t.cmd.Start())
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // its exit code is looked at
		_ = screen.Close()
	}()
	s.Cleanup(func() {
		_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) // if it still is there, the test has failed
		<-t.done
		if s.Failed() {
			s.Logf("%s", t)
		}
	})
	return t
}

// String is what was typed and what is on the screen.
func (t *terminal) String() string { return "$ " + t.block + "\n" + read(t.s.T, t.file) }

// await waits for a text on the screen.
func (t *terminal) await(text string) {
	t.s.Helper()
	require.Eventually(t.s, func() bool {
		select {
		case <-t.done:
			return true
		default:
			return strings.Contains(t.String(), text)
		}
	}, patience, poll)
	require.Contains(t.s, t.String(), text)
}

// interrupt is ^C: a signal to all that run in this terminal. Nothing that was started is
// there afterwards.
func (t *terminal) interrupt() {
	t.s.Helper()
	left := descendants(t.s.T, t.cmd.Process.Pid)
	t.runs()
	require.NoError(t.s, syscall.Kill(-t.cmd.Process.Pid, syscall.SIGINT))
	select {
	case <-t.done:
	case <-time.After(patience):
		t.s.Fatalf("it does not end:\n%s", t)
	}
	require.Eventually(t.s, func() bool {
		left = slices.DeleteFunc(left, func(pid int) bool { return !alive(pid) })
		return len(left) == 0
	}, patience, poll, "processes left behind")
}
