package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// routerStand is two replicas with a Redis, whose machines are processes that the test
// starts: no provider has a hand in them.
type routerStand struct {
	t        *testing.T
	dir      string // tokens of the pools
	redis    string
	pools    []handPool
	more     string // sections of the configuration
	silent   time.Duration
	runners  map[string]string
	replicas map[string]*replica
}

// handPool is a pool of such machines, with its settings besides provider, token and
// policy.
type handPool struct{ name, settings string }

// lostAfter is how long a machine of a newRouterStand may be silent; its jobs go to others
// after as long again.
const lostAfter = 4 * time.Second

// newRouterStand is for tests of machines that are lost.
func newRouterStand(t *testing.T, more string, pools ...handPool) *routerStand {
	t.Helper()
	return startRouterStand(t, lostAfter, more, pools)
}

// newSteadyStand is for tests that lose no machine: one that has stood still for some
// seconds is not given up.
func newSteadyStand(t *testing.T, more string, pools ...handPool) *routerStand {
	t.Helper()
	return startRouterStand(t, time.Minute, more, pools)
}

func startRouterStand(t *testing.T, silent time.Duration, more string, pools []handPool) *routerStand {
	t.Helper()
	s := &routerStand{
		t: t, dir: t.TempDir(), redis: storetest.StartServer(t).Addr, pools: pools, more: more, silent: silent,
		runners: map[string]string{"a": peertest.FreeAddress(t), "b": peertest.FreeAddress(t)}, replicas: map[string]*replica{},
	}
	for _, p := range pools {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, p.name), []byte("a-token-of-"+p.name), 0o600))
	}
	for _, name := range []string{"a", "b"} {
		s.replicas[name] = startReplicaAt(t, nil, s.write(name))
	}
	return s
}

// write puts a replica's configuration into its file.
func (s *routerStand) write(name string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name+".yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(s.config(name)), 0o600))
	return path
}

// reconfigure has both replicas read other sections of the configuration.
func (s *routerStand) reconfigure(more string) {
	s.t.Helper()
	s.more = more
	for name, r := range s.replicas {
		s.write(name)
		r.readAgain()
	}
}

// readAgain has a replica read its configuration, and waits until it has.
func (r *replica) readAgain() {
	r.t.Helper()
	read := func() int { return strings.Count(r.err.String(), `msg="configuration read again"`) }
	before := read()
	require.NoError(r.t, r.Process.Signal(syscall.SIGHUP))
	require.Eventually(r.t, func() bool { return read() > before }, within, poll, "%v", r.err)
}

func (s *routerStand) config(name string) string {
	groups, pools := "", ""
	for _, p := range s.pools {
		groups += p.name + ": {max: 1}, "
		pools += fmt.Sprintf("  - {name: %s, %s, provider: cloud, runner_token: {file: %s/%s}, policy: {max: 1, paused: true}}\n", p.name, p.settings, s.dir, p.name)
	}
	return fmt.Sprintf(`replica: %s
listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: %s, unmatched: 3s}
plugin_dir: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {%s}}}
pools:
%s%s`, name, s.runners[name], s.redis, s.silent, filepath.Join(bin, "plugins"), strings.TrimSuffix(groups, ", "), pools, s.more)
}

// a and b are the replicas.
func (s *routerStand) a() *replica { return s.replicas["a"] }
func (s *routerStand) b() *replica { return s.replicas["b"] }

// kill ends a replica as its machine's loss would.
func (s *routerStand) kill(name string) {
	s.t.Helper()
	require.NoError(s.t, s.replicas[name].Process.Kill())
	_ = s.replicas[name].code()
}

// machine starts one of a pool, and waits until both replicas know it.
func (s *routerStand) machine(replica, pool, id string, args ...string) *agentProcess {
	s.t.Helper()
	m := s.machineAt(s.runners[replica], pool, id, args...)
	s.awaitMachine(id, func(v machineView) bool { return v.Pool == pool && !v.Silent })
	return m
}

// machineAt starts one that connects to an address.
func (s *routerStand) machineAt(address, pool, id string, args ...string) *agentProcess {
	s.t.Helper()
	return runAgent(s.t, append([]string{
		"--router", address, "--token-file", filepath.Join(s.dir, pool), "--plaintext", "--machine-id", id, "--stop-grace", "1s", "--work-dir", s.t.TempDir(),
	}, args...)...)
}

// agentProcess is a real machine.
type agentProcess struct {
	*exec.Cmd
	log *output
}

// runAgent starts a machine in a process group of its own.
func runAgent(t *testing.T, args ...string) *agentProcess {
	t.Helper()
	a := &agentProcess{exec.Command(filepath.Join(bin, "spillway-agent"), args...), newOutput(t, "agent")}
	a.Stdout, a.Stderr = a.log.file, a.log.file
	a.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, a.Start())
	t.Cleanup(func() {
		_ = a.Process.Kill()
		_ = a.Wait()
	})
	return a
}

func (a *agentProcess) registered() int { return strings.Count(a.log.String(), "msg=registered") }

// die ends a machine with all that runs on it, at once and without a word.
func (a *agentProcess) die(t *testing.T) {
	t.Helper()
	all := append(descendants(t, a.Process.Pid), a.Process.Pid)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = a.Wait()
	requireGone(t, all)
}

// freeze has a machine stand still with all that runs on it, and thaw go on.
func (a *agentProcess) freeze(t *testing.T) { a.signal(t, syscall.SIGSTOP) }
func (a *agentProcess) thaw(t *testing.T)   { a.signal(t, syscall.SIGCONT) }

func (a *agentProcess) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, a.Process.Signal(signal))
	for _, pid := range descendants(t, a.Process.Pid) {
		// What a script has just run may have ended by itself.
		if err := syscall.Kill(pid, signal); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
}

// machineView is what `runners` says of a machine.
type machineView struct {
	ID       string    `json:"machine_id"`
	Instance string    `json:"instance_id"`
	Pool     string    `json:"pool"`
	Busy     int       `json:"busy"`
	Capacity int       `json:"capacity"`
	Silent   bool      `json:"silent"`
	HeardAt  time.Time `json:"heard_at"`
}

// machines are those that a replica knows.
func (r *replica) machines() []machineView {
	r.t.Helper()
	var list struct {
		Runners []machineView `json:"runners"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("runners", "-o", "json")), &list))
	return list.Runners
}

func (r *replica) machine(id string) (view machineView) {
	r.t.Helper()
	all := r.machines()
	if i := slices.IndexFunc(all, func(v machineView) bool { return v.ID == id }); i >= 0 {
		view = all[i]
	}
	return view
}

// awaitMachine waits until every replica says the same of a machine.
func (s *routerStand) awaitMachine(id string, is func(machineView) bool) {
	s.t.Helper()
	for name, r := range s.replicas {
		require.Eventually(s.t, func() bool { return is(r.machine(id)) }, within, 5*poll, "at %s: %v\n%v", name, lazily(func() string { return r.must("runners") }), r.err)
	}
}

// job is one of a file of jobs.
type job map[string]any

// submit pushes jobs with spillwayctl.
func (r *replica) submit(jobs ...job) {
	r.t.Helper()
	var lines strings.Builder
	for _, j := range jobs {
		if j["tags"] == nil {
			j["tags"] = []string{"linux"}
		}
		line, err := json.Marshal(j)
		require.NoError(r.t, err)
		lines.Write(append(line, '\n'))
	}
	cmd := exec.Command(filepath.Join(bin, "spillwayctl"), "--addr", r.api, "--timeout", within.String(), "jobs", "submit", "-")
	cmd.Stdin = strings.NewReader(lines.String())
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "%s", out)
}

// record is what `jobs show` says of a job.
type record struct {
	State       string       `json:"state"`
	Attempt     int          `json:"attempt"`
	Pool        string       `json:"pool"`
	Machine     string       `json:"machine_id"`
	Fingerprint string       `json:"capability_fingerprint"`
	Quarantined bool         `json:"quarantined"`
	Lost        int          `json:"lost"`
	Transitions []transition `json:"transitions"`
	Result      struct {
		Reason   string `json:"reason"`
		Detail   string `json:"detail"`
		ExitCode int    `json:"exit_code"`
	} `json:"result"`
}

type transition struct {
	Sequence int       `json:"sequence,string"`
	State    string    `json:"state"`
	Attempt  int       `json:"attempt"`
	Machine  string    `json:"machine_id"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
}

func (r *replica) record(id string) (rec record) {
	r.t.Helper()
	out := r.must("jobs", "show", id, "-o", "json")
	require.NoError(r.t, json.Unmarshal([]byte(out), &rec), out)
	rec.State = plainState(rec.State)
	for i := range rec.Transitions {
		rec.Transitions[i].State = plainState(rec.Transitions[i].State)
	}
	return rec
}

func plainState(s string) string { return strings.ToLower(strings.TrimPrefix(s, "JOB_STATE_")) }

// way is the states that a job was in.
func (r record) way() (states []string) {
	for _, t := range r.Transitions {
		states = append(states, t.State)
	}
	return states
}

// await waits until a job is in a state.
func (r *replica) await(id, state string) (rec record) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		rec = r.record(id)
		return rec.State == state
	}, within, 5*poll, "job %s is to be %s:\n%v\n%v", id, state, lazily(func() string { return r.must("jobs", "show", id) }), r.err)
	return rec
}

// scriptGate is a script that goes on when its file is there, and the file. It does not
// outlive the test.
func scriptGate(t *testing.T) (script, file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "gate")
	return "while [ -d " + dir + " ] && [ ! -e " + file + " ]; do sleep 0.1; done", file
}

func open(t *testing.T, gate string) {
	t.Helper()
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
}

// metricsPage is what a replica's metrics listener shows.
func (r *replica) metricsPage() string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.metrics + "/metrics")
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	return readAll(r.t, resp)
}
