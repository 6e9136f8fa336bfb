package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// replica is a control plane of a test, with its addresses.
type replica struct {
	*process
	t            *testing.T
	api, metrics string
}

func startReplica(t *testing.T, config string) *replica {
	t.Helper()
	return startReplicaWith(t, nil, config)
}

// startReplicaWith adds variables to the environment.
func startReplicaWith(t *testing.T, env []string, config string) *replica {
	t.Helper()
	return startReplicaAt(t, env, write(t, config))
}

// startReplicaAt starts one with the configuration that is in a file.
func startReplicaAt(t *testing.T, env []string, path string) *replica {
	t.Helper()
	r := &replica{process: startWith(t, env, "serve", "--config", path), t: t}
	addr := regexp.MustCompile(`msg=serving .*api=(\S+) metrics=(\S+)`)
	var found []string
	require.Eventually(t, func() bool {
		found = addr.FindStringSubmatch(r.err.String())
		return found != nil
	}, within, poll, "%v", r.err)
	r.api, r.metrics = found[1], found[2]
	return r
}

func (r *replica) ctl(args ...string) (string, error) {
	args = append([]string{"--addr", r.api, "--timeout", within.String()}, args...)
	out, err := exec.Command(filepath.Join(bin, "spillwayctl"), args...).CombinedOutput()
	return string(out), err
}

func (r *replica) must(args ...string) string {
	r.t.Helper()
	out, err := r.ctl(args...)
	require.NoError(r.t, err, out)
	return out
}

func (r *replica) ready() int {
	resp, err := http.Get("http://" + r.metrics + "/readyz")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// localConfig is one pool of local processes on a Redis.
func localConfig(t *testing.T, redis string) string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a-token-of-a-test"), 0o600))
	runners := peertest.FreeAddress(t)
	return fmt.Sprintf(`listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 10s}
plugin_dir: %s
providers:
  local:
    plugin: spillway-provider-local
    env: [PATH]
    config: {agent: %s, router: %q, plaintext: true, stop_grace: 2s, groups: [{name: linux, max: 2, capacity: 2, token_file: %s}]}
pools:
  - {name: linux, capability: {tags: [linux]}, capacity_per_instance: 2, provider: local, runner_token: {file: %s}, policy: {max: 2, idle_time: 1s}}
`, runners, redis, filepath.Join(bin, "plugins"), filepath.Join(bin, "spillway-agent"), runners, token, token)
}

func jobFile(t *testing.T, n int, script string) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		line, err := json.Marshal(map[string]any{"id": fmt.Sprint(1000 + i), "tags": []string{"linux"}, "script": script})
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "jobs.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// listed counts the jobs in a state.
func (r *replica) listed(state string) int {
	out, err := r.ctl("jobs", "list", "--state", state, "-o", "json")
	if err != nil {
		return -1 // the store is away: not known
	}
	return strings.Count(out, `"job_id"`) + strings.Count(out, `"submitted_at"`)
}

// C40: Redis stands still while jobs run. Nothing is lost, nothing is ended, and
// everything goes on by itself afterwards.
func TestC40_RedisStandsStill(t *testing.T) {
	t.Parallel()
	redis := storetest.StartServer(t)
	r := startReplica(t, localConfig(t, redis.Addr))
	require.Eventually(t, func() bool { return r.ready() == http.StatusOK }, within, 2*poll, "%v", r.err)
	r.must("jobs", "submit", jobFile(t, 24, "sleep 0.3; echo done"))
	require.Eventually(t, func() bool { return r.listed("completed") > 0 }, within, 2*poll, "%v", r.err)

	require.NoError(t, redis.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return r.ready() == http.StatusServiceUnavailable }, within, 5*poll, "%v", r.err)
	require.NoError(t, redis.Signal(syscall.SIGCONT))

	require.Eventually(t, func() bool { return r.ready() == http.StatusOK }, within, 5*poll, "%v", r.err)
	require.Eventually(t, func() bool { return r.listed("completed") == 24 }, within, 10*poll, "%v", r.err)
	require.Eventually(t, func() bool {
		return strings.Contains(r.must("pools", "-o", "json"), `"desired": 0`) || !strings.Contains(r.must("pools", "-o", "json"), `"desired"`)
	}, within, 20*poll, "%v", r.err)
	left := descendants(t, r.Process.Pid)
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, r.code(), r.err)
	requireGone(t, left)
}

// A replica that is killed is followed by another, with a higher epoch, and until
// then only one of them writes.
func TestI8_OneReplicaScalesAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	redis := storetest.StartServer(t)
	config := serving("spillway-provider-fake", "127.0.0.1:0", fmt.Sprintf("store: {redis: {addrs: [%q]}}\ntick: 1s", redis.Addr))
	a := startReplica(t, config)
	b := startReplica(t, config)
	b.must("jobs", "submit", "--id", "1", "--tag", "linux", "--script", "true")
	require.Eventually(t, func() bool { return strings.Contains(b.must("explain", "linux"), "set_desired(1") }, within, 5*poll, "%v\n%v", a.err, b.err)
	first := strings.Count(b.must("explain", "linux", "-o", "json"), "set_desired(")
	require.Equal(t, 1, first)
	require.Equal(t, 1, strings.Count(a.err.String()+b.err.String(), `action="set_desired`), "one of them acted")

	holder, heir := a, b
	if strings.Contains(b.err.String(), `action="set_desired`) {
		holder, heir = b, a
	}
	require.NoError(t, holder.Process.Kill())
	_ = holder.code()
	// The heir's cloud is another one, empty: that it launches shows that it owns the pool now.
	require.Eventually(t, func() bool { return strings.Contains(heir.err.String(), `action="set_desired`) }, within, 10*poll, "%v", heir.err)
	require.NoError(t, heir.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, heir.code())
}
