package docs_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	patience = 100 * time.Second
	poll     = 20 * time.Millisecond
)

// everything is also what takes a minute: `make check-docs` runs it.
var everything = flag.Bool("everything", false, "get the module from a proxy, run Terraform and an emulator of AWS")

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "grpcurl" {
		os.Exit(grpcurl(os.Args[1:]))
	}
	var err error
	if scratch, err = os.MkdirTemp("", "docs-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// scratch is where the programs are built; it goes with the tests.
var scratch string

// built are the programs that the pages use, by their places in bin/.
var built = map[string]string{
	"controlplane": "./cmd/controlplane", "spillwayctl": "./cmd/spillwayctl", "spillway-agent": "./cmd/agent",
	"plugins/spillway-provider-local": "./cmd/plugins/local", "plugins/spillway-provider-fake": "./cmd/plugins/fake",
}

// programs builds them, once, into a folder.
var programs = sync.OnceValues(func() (folder string, err error) {
	for name, from := range built {
		cmd := exec.Command("go", "build", "-o", filepath.Join(scratch, name), from)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", from, err, out)
		}
	}
	return scratch, nil
})

// stage is what a reader has before him: a folder with the sources' examples and what
// is built in bin/, and a terminal.
type stage struct {
	*testing.T
	dir string
	env []string
}

// tools stand in for programs that would do the same work again, or need the network:
// make says what it would do, and go build builds from the sources.
const (
	toolMake = "#!/bin/sh\nexec \"$MAKE_PROGRAM\" -n -C \"$SOURCES\" \"$@\" >/dev/null\n"
	toolGo   = "#!/bin/sh\n# build -o FILE ./examples/…\ncase $4 in ./examples/*) exec \"$GO\" build -C \"$SOURCES\" -o \"$PWD/$3\" \"$4\" ;; esac\nexec \"$GO\" \"$@\"\n"
)

var plugins = regexp.MustCompile(`(?m)^PLUGINS := (.*)$`)

func newStage(t *testing.T) *stage {
	t.Helper()
	bin, err := programs()
	require.NoError(t, err)
	sources, err := filepath.Abs("..")
	require.NoError(t, err)
	program, err := exec.LookPath("go")
	require.NoError(t, err)
	maker, err := exec.LookPath("make")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "docs-") // short: there are sockets in it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &stage{T: t, dir: dir}
	for _, folder := range []string{"tools", "bin/plugins"} {
		require.NoError(t, os.MkdirAll(s.path(folder), 0o700))
	}
	for name := range built {
		require.NoError(t, os.Link(filepath.Join(bin, name), s.path("bin", name)))
	}
	for _, name := range plugins.FindStringSubmatch(read(t, "../Makefile"))[1:] { // what make build would build besides
		for name := range strings.FieldsSeq(name) {
			file := s.path("bin", "plugins", "spillway-provider-"+name)
			if _, err := os.Stat(file); err != nil {
				require.NoError(t, os.WriteFile(file, []byte(name), 0o700)) //nolint:gosec // a program
			}
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, s.path("tools", "grpcurl")))
	s.tool("make", toolMake)
	s.tool("go", toolGo)
	s.env = append(os.Environ(), "PATH="+s.path("tools")+":"+s.path("bin")+":"+os.Getenv("PATH"), "SOURCES="+sources, "GO="+program, "MAKE_PROGRAM="+maker, "TMPDIR="+dir)
	return s
}

func (s *stage) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// tool puts a program before all others.
func (s *stage) tool(name, script string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.path("tools", name), []byte(script), 0o700)) //nolint:gosec // a program
}

func (s *stage) write(name, text string) string {
	s.Helper()
	require.NoError(s, os.MkdirAll(filepath.Dir(s.path(name)), 0o700))
	require.NoError(s, os.WriteFile(s.path(name), []byte(text), 0o600))
	return s.path(name)
}

// run types commands and waits for their end, which must be a good one.
func (s *stage) run(script string) string {
	s.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	require.NoError(s, err, "$ %s\n%s", script, out)
	return string(out)
}

// process is one that goes on beside the test.
type process struct {
	s   *stage
	cmd *exec.Cmd
	log string
	end syscall.Signal // what ends it in order
}

// start starts commands in a process group of their own, and ends all of them with the
// test: first in order.
func (s *stage) start(script string) *process {
	s.Helper()
	log, err := os.CreateTemp(s.dir, "log-")
	require.NoError(s, err)
	p := &process{s, exec.Command("bash", "-euc", script), log.Name(), syscall.SIGTERM}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = s.dir, s.env, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s, p.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = errors.Join(p.cmd.Wait(), log.Close())
	}()
	s.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, p.end)
		select {
		case <-ended:
		case <-time.After(patience):
			s.Errorf("it does not end:\n$ %s\n%s", script, p)
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		if s.Failed() {
			s.Logf("$ %s\n%s", script, p)
		}
	})
	return p
}

// String is what was printed.
func (p *process) String() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// says waits until what is printed has something, and returns that.
func (p *process) says(pattern string) []string {
	p.s.Helper()
	compiled := regexp.MustCompile(pattern)
	var found []string
	require.Eventually(p.s, func() bool {
		found = compiled.FindStringSubmatch(p.String())
		return found != nil
	}, patience, poll, "%s is not said", pattern)
	return found
}

// fleet is a control plane that a page's commands are about.
type fleet struct {
	*stage
	api, runners string
}

// serve starts one with a configuration.
func (s *stage) serve(config string) *fleet {
	s.Helper()
	s.write("spillway.yaml", config)
	p := s.start("exec controlplane serve --config spillway.yaml")
	f := &fleet{stage: s, api: p.says(`api=(\S+)`)[1], runners: p.says(`runners=(\S+)`)[1]}
	s.env = append(s.env, "SPILLWAY_ADDR="+f.api)
	return f
}

// linux is the configuration of a pool linux that has no instances but those that agent
// starts, and more sections.
func (s *stage) linux(sections string) string {
	return fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
tick: 200ms
timeouts: {heartbeat_every: 500ms, silent: 15s}
plugin_dir: bin/plugins
providers: {cloud: {plugin: spillway-provider-fake, config: {groups: {linux: {max: 1}}}}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: cloud, runner_token: {file: %s}, capacity_per_instance: 4, policy: {max: 1, paused: true}}
%s`, s.write("runner-token", "the-token-of-linux-runners"), sections)
}

// agent starts a machine of the pool linux.
func (f *fleet) agent(flags string) *process {
	f.Helper()
	p := f.start("exec spillway-agent --router " + f.runners + " --capacity 4 --stop-grace 1s " + flags)
	p.end = syscall.SIGHUP // its jobs are not waited for
	p.says("registered")
	return p
}

// job submits one and waits for a state of it.
func (f *fleet) job(id, script, state string) {
	f.Helper()
	f.run(fmt.Sprintf("spillwayctl jobs submit --id %s --tag linux --script '%s'", id, script))
	f.awaits("spillwayctl jobs show "+id, `state +`+state)
}

// awaits waits until a command prints something.
func (s *stage) awaits(script, pattern string) {
	s.Helper()
	compiled := regexp.MustCompile(pattern)
	require.Eventually(s, func() bool {
		cmd := exec.Command("bash", "-c", script)
		cmd.Dir, cmd.Env = s.dir, s.env
		out, _ := cmd.CombinedOutput() // it may fail for a while
		return compiled.Match(out)
	}, patience, 10*poll, "$ %s\nprints no %s", script, pattern)
}
