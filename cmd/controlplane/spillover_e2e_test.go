package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/router"
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
	}, within, 5*poll, "%v", r.err)
}

// A6: jobs wait for the better pool while that can grow, and it is what grows; what it
// can't hold spills over at once.
func TestA6_JobsWaitForTheBetterPoolAndSpillOverWhenItIsFull(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	redis := storetest.StartServer(t)
	config := nearAndFar(t, redis.Addr, 0, 10)
	config = regexp.MustCompile(`(name: near, capability.*)policy: {min: 1, max: 1}`).ReplaceAllString(config, "${1}spill_after: 10m, policy: {min: 0, max: 1}")
	r := startReplica(t, config)
	r.awaitRunners("far", 1)

	script, gate := scriptGate(t)
	r.submit(job{"id": "long", "script": script})
	require.Equal(t, "near", r.await("long", "running").Pool, "though far had a free machine all the time")
	require.Equal(t, "far", r.ranIn("next"), "near has one instance at most, and that is the first job's")
	open(t, gate)
	r.await("long", "completed")

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
	config = strings.Replace(config, "tick: 500ms", "tick: 500ms\ntimeouts: {heartbeat_every: 500ms}", 1)
	runners := regexp.MustCompile(`runners: "([^"]+)"`)
	elsewhere := peertest.FreeAddress(t)
	a := startReplica(t, config)
	near := startAgent(t, runners.FindStringSubmatch(config)[1], "near")
	a.awaitRunners("near", 1)
	b := startReplica(t, strings.ReplaceAll(config, runners.FindStringSubmatch(config)[1], elsewhere))
	far := startAgent(t, elsewhere, "far")
	b.awaitRunners("far", 1)
	b.ranIn("first")
	// known: b knows of the place, and that nobody waits for it.
	known := func() bool {
		return b.outcomes("first")["near"] == "elsewhere" && strings.Contains(b.must("explain-job", "first"), "Of its class 0 wait") &&
			!slices.ContainsFunc(b.machines(), func(m machineView) bool { return m.Busy > 0 })
	}

	// Whoever has the better pool may be too slow for a job, which waits for a moment only.
	script, gate := scriptGate(t)
	began := time.Now()
	for n := 0; ; n++ {
		require.Eventually(t, known, within, 5*poll, "%v %v", near.log, b.err)
		id := fmt.Sprint("long-", n)
		b.submit(job{"id": id, "script": script})
		long := b.await(id, "running")
		if long.Pool == "near" {
			break
		}
		waited := long.Transitions[1].At.Sub(long.Transitions[0].At) // as two clocks have it
		require.Greater(t, waited, router.RemotePatience/2, "%s took it, though the better pool had a place", long.Pool)
		require.Less(t, time.Since(began), within, "%v %v", near.log, far.log)
		b.must("jobs", "cancel", id)
		b.await(id, "canceled")
	}
	require.Equal(t, "far", b.ranIn("next"), "the better pool is full everywhere: %s", b.must("runners"))
	open(t, gate)
}

// startAgent starts a machine by hand.
func startAgent(t *testing.T, router, pool string) *agentProcess {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a-token-of-"+pool), 0o600))
	return runAgent(t, "--router", router, "--token-file", token, "--plaintext", "--work-dir", t.TempDir(), "--label", "zone=here")
}
