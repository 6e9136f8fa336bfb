package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// outcomes are what `explain-job` says of each pool.
func (r *replica) outcomes(job string) map[string]string {
	r.t.Helper()
	var resp struct {
		Pools []struct {
			Pool    string `json:"pool"`
			Outcome string `json:"outcome"`
		} `json:"pools"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("explain-job", job, "-o", "json")), &resp))
	of := make(map[string]string)
	for _, p := range resp.Pools {
		of[p.Pool] = p.Outcome
	}
	return of
}

func (r *replica) awaitRunners(pool string, n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return strings.Count(r.must("runners", "--pool", pool, "-o", "json"), `"machine_id"`) == n
	}, 30*time.Second, 50*time.Millisecond, "%v", r.err)
}

// A6: jobs wait for the better pool while that can grow, and it is what grows; what it
// can't hold spills over at once.
func TestA6_JobsWaitForTheBetterPoolAndSpillOverWhenItIsFull(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	redis := storetest.StartServer(t)
	config := nearAndFar(t, redis.Addr, 0, 10)
	config = regexp.MustCompile(`(name: near, capability.*)policy: {min: 1, max: 1}`).ReplaceAllString(config, "${1}spill_after: 1m, policy: {min: 0, max: 1}")
	r := startReplica(t, config)
	r.awaitRunners("far", 1)

	r.must("jobs", "submit", "--id", "long", "--tag", "linux", "--script", "sleep 8")
	require.Eventually(t, func() bool { return strings.Contains(r.must("jobs", "show", "long", "-o", "json"), "RUNNING") }, 30*time.Second, 50*time.Millisecond, "%v", r.err)
	require.Equal(t, "far", r.ranIn("next"), "near has one instance at most, and that is the first job's")
	shown := r.must("jobs", "show", "long", "-o", "json")
	require.Contains(t, shown, `"near"`, "though far had a free machine all the time")

	r.must("jobs", "submit", "--id", "held", "--tag", "nobody", "--script", "true")
	require.Equal(t, map[string]string{"near": "no_match", "far": "no_match"}, r.outcomes("held"))
	require.Contains(t, r.must("why-not", "held"), "None of 2 pools can take the job")
	_, err := r.ctl("explain-job", "no-such-job")
	require.Error(t, err)
}

// A6 over replicas: the machine of the better pool is at one replica, that of the other
// pool at the other one, where the jobs are pushed.
func TestA6_TheBetterPoolOfAnotherReplicaGoesFirst(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	redis := storetest.StartServer(t)
	config := strings.ReplaceAll(nearAndFar(t, redis.Addr, 0, 10), "policy: {min: 1, max: 1}", "policy: {min: 0, max: 1}")
	// What the pools launch never takes a job: the machines are those that are started here.
	nobody, err := exec.LookPath("true")
	require.NoError(t, err)
	config = strings.Replace(config, filepath.Join(bin, "spillway-agent"), nobody, 1)
	runners := regexp.MustCompile(`runners: "([^"]+)"`)
	elsewhere := peertest.FreeAddress(t)
	a := startReplica(t, config)
	near := startAgent(t, runners.FindStringSubmatch(config)[1], "near")
	a.awaitRunners("near", 1)
	b := startReplica(t, strings.ReplaceAll(config, runners.FindStringSubmatch(config)[1], elsewhere))
	far := startAgent(t, elsewhere, "far")
	b.awaitRunners("far", 1)
	b.must("jobs", "submit", "--id", "long", "--tag", "linux", "--script", "sleep 5")
	require.Eventually(t, func() bool { return strings.Contains(b.must("jobs", "show", "long", "-o", "json"), "RUNNING") }, 30*time.Second, 50*time.Millisecond, "%v", b.err)
	require.Contains(t, b.must("jobs", "show", "long", "-o", "json"), `"near"`, "%v %v", near.log, far.log)
	require.Equal(t, "far", b.ranIn("next"), "the better pool is full everywhere: %s", b.must("runners"))
}

// startAgent starts a machine by hand.
func startAgent(t *testing.T, router, pool string) *agentProcess {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a-token-of-"+pool), 0o600))
	return runAgent(t, "--router", router, "--token-file", token, "--plaintext", "--work-dir", t.TempDir(), "--label", "zone=here")
}
