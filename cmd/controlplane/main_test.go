package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/examples/laptop"
)

// bin holds the binaries that the tests run; they are built once.
var bin string

// atOnce is how many of the tests that say so run side by side. They wait for
// processes, for seconds; the number of cores says nothing of how many can.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "spillway-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := checkRows(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
		return code
	}())
}

// programs are the binaries, and what they are built from.
var programs = map[string]string{
	"controlplane": "./cmd/controlplane", "spillway-agent": "./cmd/agent", "spillwayctl": "./cmd/spillwayctl",
	"plugins/spillway-provider-local": "./cmd/plugins/local", "plugins/spillway-provider-fake": "./cmd/plugins/fake",
	"plugins/spillway-provider-ec2asg": "./cmd/plugins/ec2asg", "minirunnerd": "./gitlab/gitlabtest/minirunnerd",
	"admission-image-policy": "./examples/admission-image-policy", "admission-cel": "./examples/admission-cel",
}

// build makes all of them at once: they share most of what they are made of.
func build(dir string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, pkg := range programs {
		args = append(args, pkg)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, text)
	}
	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o700); err != nil {
		return err
	}
	for program, pkg := range programs {
		if err := os.Rename(filepath.Join(dir, filepath.Base(pkg)), filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}

// output is what a process prints, readable while it runs.
type output struct {
	t    *testing.T
	path string
	file *os.File
}

func newOutput(t *testing.T, name string) *output {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return &output{t, path, f}
}

func (o *output) String() string {
	data, err := os.ReadFile(o.path)
	require.NoError(o.t, err)
	return string(data)
}

// process is a real controlplane.
type process struct {
	*exec.Cmd
	out, err *output
}

// start runs the binary in a process group of its own, so that the test can find
// what it leaves behind.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith adds variables to the environment.
func startWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(filepath.Join(bin, "controlplane"), args...), out: newOutput(t, "stdout"), err: newOutput(t, "stderr")}
	p.Env = append(os.Environ(), env...)
	p.Stdout, p.Stderr = p.out.file, p.err.file
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// code waits for the end and returns the exit code.
func (p *process) code() int {
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// descendants are the live processes below pid, by /proc.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		child, _ := strconv.Atoi(strings.Split(path, "/")[2])
		parent, _ := strconv.Atoi(fields[1])
		if fields[0] != "Z" {
			children[parent] = append(children[parent], child)
		}
	}
	var out []int
	for queue := children[pid]; len(queue) > 0; queue = queue[1:] {
		out = append(out, queue[0])
		queue = append(queue, children[queue[0]]...)
	}
	return out
}

// goneWithin is how long the end of what was left behind is waited for. On a busy machine
// it takes its time; what ends by itself is no proof, and the longest job of the demo
// sleeps for a minute.
const goneWithin = 30 * time.Second

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	var left []string
	gone := func() bool {
		left = nil
		for _, pid := range pids {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(data), ") Z ") {
				left = append(left, string(data))
			}
		}
		return len(left) == 0
	}
	for deadline := time.Now().Add(goneWithin); !gone(); {
		if time.Now().After(deadline) {
			t.Fatalf("processes left behind: %s", left)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Each instance is launched once. One whose machine stands still for long is replaced,
// which is right as well: here it may for longer than in the example.
func TestDemoEndsWithTheSummaryThatItPromises(t *testing.T) {
	patient := strings.Replace(string(laptop.Config), "silent: 5s", "silent: 15s", 1)
	require.NotEqual(t, string(laptop.Config), patient)
	p := start(t, "demo", "-o", "json", "--bin", bin, "--config", write(t, patient))
	require.Equal(t, 0, p.code(), p.err)
	var s summary
	dec := json.NewDecoder(strings.NewReader(p.out.String()))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&s))
	require.Equal(t, 45, s.Jobs.Completed)
	require.Equal(t, 1, s.Jobs.Failed)
	require.Equal(t, 1, s.Jobs.TimedOut)
	require.Equal(t, 1, s.Jobs.Unmatched)
	require.Zero(t, s.BusyKills)
	require.Equal(t, map[string]int{"linux": 0, "linux-overflow": 0, "release": 0}, s.Final)
	require.Equal(t, 6, s.Instances.Launched)
	require.Equal(t, 6, s.Instances.Removed)
	require.Positive(t, s.Instances.Seconds)
	require.Positive(t, s.ReactionMS.P50)
	require.Positive(t, s.WaitMS.P95)
	require.NotEmpty(t, s.Decisions)
}

func TestDemoSurvivesItsPluginBeingKilled(t *testing.T) {
	p := start(t, "demo", "--bin", bin, "-v")
	pid := pluginPID(t, p, 1)
	require.Eventually(t, func() bool { return regexp.MustCompile(`[1-9]/48 jobs`).MatchString(p.out.String()) }, within, poll, "%v", p.err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.NotEqual(t, pid, pluginPID(t, p, 2), "restarted")
	require.Equal(t, 0, p.code(), p.err)
	require.Contains(t, p.out.String(), "45 completed, 1 failed, 1 timed out, 1 that no pool can take")
}

// pluginPID is the nth process of the local plugin, by the log.
func pluginPID(t *testing.T, p *process, n int) int {
	t.Helper()
	ready := regexp.MustCompile(`provider local is ready \(.*\), pid (\d+)`)
	var found [][]string
	require.Eventually(t, func() bool {
		found = ready.FindAllStringSubmatch(p.err.String(), -1)
		return len(found) >= n
	}, within, poll, "%v", p.err)
	pid, err := strconv.Atoi(found[n-1][1])
	require.NoError(t, err)
	return pid
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	p := start(t, "demo", "--bin", bin)
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), "in service 3") }, within, poll, "%v", p.err)
	left := descendants(t, p.Process.Pid)
	require.NotEmpty(t, left)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, p.code())
	require.Contains(t, p.err.String(), "interrupted")
	requireGone(t, left)
}

// I9: even a control plane that is killed outright leaves no plugin and no agent.
func TestI9_KilledDemoLeavesNothing(t *testing.T) {
	p := start(t, "demo", "--bin", bin)
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), "in service 3") }, within, poll, "%v", p.err)
	left := descendants(t, p.Process.Pid)
	require.NotEmpty(t, left)
	require.NoError(t, p.Process.Kill())
	_ = p.code()
	requireGone(t, left)
}

// try runs a command in this process.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	root := newRoot()
	var out, err bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&err)
	code = runRoot(context.Background(), root, args)
	return code, out.String(), err.String()
}

func TestHelpIsEverywhere(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"validate", "--help"}, {"simulate", "--help"}, {"demo", "--help"}} {
		code, out, _ := try(t, args...)
		require.Zero(t, code)
		require.Contains(t, out, "Exit codes")
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"serve", "--bogus"}, {"validate", "-o", "yaml", "x"}, {"simulate"}, {"demo", "-o", "xml"}} {
		code, _, stderr := try(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, stderr)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTenMistakesAreTenLines(t *testing.T) {
	path := write(t, `tick: soon
debounce: -1s
nonsense: 1
pools:
  - name: Linux
    capability: {tags: []}
    capacity_per_instance: 0
    priority: -1
    provider: nowhere
    policy: {min: 5, max: 2, idle_count: -1}
`)
	code, _, stderr := try(t, "validate", path)
	require.Equal(t, exitUsage, code)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	require.GreaterOrEqual(t, len(lines), 10, stderr)
	for _, l := range lines {
		require.Regexp(t, `^`+regexp.QuoteMeta(path)+`:\d+: `, l)
	}
	code, out, _ := try(t, "validate", "-o", "json", path)
	require.Equal(t, exitUsage, code)
	var v verdict
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Len(t, v.Problems, len(lines))
}

func TestTheExampleIsValid(t *testing.T) {
	code, out, _ := try(t, "validate", "--example")
	require.Zero(t, code)
	require.Contains(t, out, "pools:")
	code, out, stderr := try(t, "validate", filepath.Join("..", "..", "examples", "laptop", "spillway.yaml"))
	require.Zero(t, code, stderr)
	require.Contains(t, out, "3 pools, 1 providers")
}

// serving is a configuration with the fake provider, and what a test changes.
func serving(plugin, listen, store string) string {
	return fmt.Sprintf(`listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
%s
plugin_dir: %s
providers:
  cloud: {plugin: %s, config: {groups: {linux: {max: 3}}}}
pools:
  - {name: linux, capability: {tags: [linux]}, provider: cloud, policy: {max: 3}}
`, listen, store, filepath.Join(bin, "plugins"), plugin)
}

func TestWhatIsMissingIsSaidInOneSentence(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	notExecutable := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(notExecutable, []byte("x"), 0o600))
	noPlugin := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(noPlugin, []byte("#!/bin/sh\necho hello\n"), 0o700))
	const free = "127.0.0.1:0"
	for _, c := range []struct{ name, config, want string }{
		{"port in use", serving("spillway-provider-fake", taken.Addr().String(), ""), "in use"},
		{"plugin missing", serving("spillway-provider-nowhere", free, ""), "spillway-provider-nowhere"},
		{"plugin not executable", serving(notExecutable, free, ""), "execut"},
		{"not a plugin", serving(noPlugin, free, ""), "plugin"},
		{"wrong checksum", strings.Replace(serving("spillway-provider-fake", free, ""), "config:", "sha256: \""+strings.Repeat("0", 64)+"\", config:", 1), "SHA-256"},
		{"redis away", serving("spillway-provider-fake", free, "store: {redis: {addrs: [\"127.0.0.1:1\"]}}"), "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, "serve", "--config", write(t, c.config))
			require.Equal(t, exitUnavailable, p.code(), p.err)
			require.Contains(t, p.err.String(), c.want)
			require.Empty(t, descendants(t, p.Process.Pid))
		})
	}
	code, _, stderr := try(t, "serve", "--config", "nowhere.yaml")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--example")
}

func TestServeAnswersAndStopsOnSIGTERM(t *testing.T) {
	p := start(t, "serve", "--config", write(t, serving("spillway-provider-fake", "127.0.0.1:0", "")))
	addr := regexp.MustCompile(`api=(\S+)`)
	require.Eventually(t, func() bool { return addr.MatchString(p.err.String()) }, within, poll, "%v", p.err)
	api := addr.FindStringSubmatch(p.err.String())[1]
	ctl := func(args ...string) string {
		out, err := exec.Command(filepath.Join(bin, "spillwayctl"), append([]string{"--addr", api, "--timeout", within.String()}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	ctl("jobs", "submit", "--id", "j1", "--tag", "linux", "--script", "true")
	require.Eventually(t, func() bool { return strings.Contains(ctl("explain", "linux"), "set_desired(1") }, within, 5*poll, "%v", p.err)
	require.Contains(t, ctl("pools"), "linux")
	require.Contains(t, ctl("plugin", "list"), "ready")
	require.Contains(t, ctl("why-not", "j1"), "linux")
	left := descendants(t, p.Process.Pid)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, p.code(), p.err)
	requireGone(t, left)
}
