package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// nearAndFar is two pools of one capability, of which one instance each is always there.
func nearAndFar(t *testing.T, redis string, near, far int) string {
	t.Helper()
	runners := peertest.FreeAddress(t)
	groups, pools := "", ""
	for _, pool := range []struct {
		name     string
		priority int
	}{{"near", near}, {"far", far}} {
		token := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(token, []byte("a-token-of-"+pool.name), 0o600))
		groups += fmt.Sprintf("{name: %s, max: 1, token_file: %s}, ", pool.name, token)
		pools += fmt.Sprintf("  - {name: %s, capability: {tags: [linux]}, provider: local, priority: %d, runner_token: {file: %s}, policy: {min: 1, max: 1}}\n", pool.name, pool.priority, token)
	}
	return fmt.Sprintf(`listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
plugin_dir: %s
providers:
  local:
    plugin: spillway-provider-local
    env: [PATH]
    config: {agent: %s, router: %q, plaintext: true, stop_grace: 2s, groups: [%s]}
pools:
%s`, runners, redis, filepath.Join(bin, "plugins"), filepath.Join(bin, "spillway-agent"), runners, strings.TrimSuffix(groups, ", "), pools)
}

// ranIn submits a job and returns the pool that ran it.
func (r *replica) ranIn(id string) string {
	r.t.Helper()
	r.must("jobs", "submit", "--id", id, "--tag", "linux", "--script", "true", "--wait")
	var record struct {
		Pool string `json:"pool"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("jobs", "show", id, "-o", "json")), &record))
	return record.Pool
}

func TestA7_PrioritiesChangeWithoutARestart(t *testing.T) {
	t.Parallel()
	shows(t, "A7")
	redis := storetest.StartServer(t)
	path := write(t, nearAndFar(t, redis.Addr, 0, 10))
	a := startReplicaAt(t, nil, path)
	require.Eventually(t, func() bool { return strings.Count(a.must("runners", "-o", "json"), `"machine_id"`) == 2 }, within, 5*poll, "%v", a.err)
	b := startReplica(t, nearAndFar(t, redis.Addr, 0, 10))
	a.ranIn("0")
	require.Eventually(t, func() bool { // what is chosen from
		out := a.outcomes("0")
		return out["near"] == "free" && out["far"] == "free"
	}, within, 5*poll, "%v", a.err)
	require.Equal(t, "near", a.ranIn("1"), "%v", a.err)

	// Set at one replica, in force at the other, which has the machines.
	out := b.must("priority", "set", "near", "50")
	require.Contains(t, out, "anyone")
	require.Eventually(t, func() bool { return a.priority("near") == "50" }, within, poll)
	require.Equal(t, "far", a.ranIn("2"), "%v", a.err)
	require.Contains(t, a.must("priority", "list"), "near")
	b.must("priority", "clear", "near")
	require.Eventually(t, func() bool { return a.priority("near") == "" }, within, poll)
	require.Equal(t, "near", a.ranIn("3"))

	// By the configuration, on SIGHUP. A file that is not valid changes nothing.
	require.NoError(t, os.WriteFile(path, []byte("pools: nonsense"), 0o600))
	require.NoError(t, a.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(a.err.String(), "everything stays as it was") }, within, poll)
	require.Equal(t, "near", a.ranIn("4"))
	changed := strings.Replace(nearAndFar(t, redis.Addr, 20, 10), "tick: 500ms", "tick: 1s", 1)
	require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
	a.readAgain()
	require.Regexp(t, `pools_changed=.*near`, a.err.String())
	differ := regexp.MustCompile(`these settings differ.*\btick\b`)
	require.Eventually(t, func() bool { return differ.MatchString(a.err.String()) }, within, poll, "%v", a.err)
	require.Equal(t, "far", a.ranIn("5"))

	for _, bad := range [][]string{{"near", "-1"}, {"near", "1001"}, {"nowhere", "1"}, {"near", "first"}} {
		_, err := a.ctl(append([]string{"priority", "set", "--"}, bad...)...)
		require.Error(t, err, bad)
	}
}

// priority is the one in force where that is not 0.
func (r *replica) priority(pool string) string {
	r.t.Helper()
	var resp struct {
		Pools []struct {
			Name     string `json:"name"`
			Priority int    `json:"priority"`
		} `json:"pools"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("pools", "-o", "json")), &resp))
	for _, p := range resp.Pools {
		if p.Name == pool && p.Priority != 0 {
			return fmt.Sprint(p.Priority)
		}
	}
	return ""
}
