package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/store/storetest"
)

// C1, C2, C3: a registered pool has at most max workers over all replicas, and no more jobs
// at a time; it says how many workers there should be; and a spare takes the place of one
// that is gone.
func TestC1_ARegisteredPoolHasAtMostMaxWorkersOverReplicas(t *testing.T) {
	t.Parallel()
	shows(t, "C1")
	redis := storetest.StartServer(t)
	first, second := quick(t, redis.Addr), quick(t, redis.Addr)
	wanted := func(r *replica) (wanted, busy int) {
		t.Helper()
		var page struct {
			Pools []struct {
				Name         string
				Wanted, Busy int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.must("coordinator", "pools", "-o", "json")), &page))
		for _, p := range page.Pools {
			if p.Name == "gpu" {
				return p.Wanted, p.Busy
			}
		}
		return 0, 0
	}
	first.must("coordinator", "register", "gpu", "--tag", "cuda", "--min-idle", "1", "--max", "2")
	require.Eventually(t, func() bool { n, _ := wanted(second); return n == 1 }, within, poll, "min_idle")

	script, gate := scriptGate(t)
	c := first.pools(insecure.NewCredentials())
	for _, id := range []string{"1", "2", "3"} {
		require.NoError(t, c.submit("gpu", id, script))
	}
	w1 := first.worker("gpu", "w1")
	second.worker("gpu", "w2")
	first.await("1", "running")
	first.await("2", "running")
	spare := second.worker("gpu", "w3")
	require.Eventually(t, func() bool { return strings.Contains(spare.log.String(), "pool gpu has its max of 2 workers") }, within, poll, "%v", spare.log)
	require.Eventually(t, func() bool {
		n, busy := wanted(first)
		return n == 2 && busy == 2
	}, within, 2*poll, "max, though three jobs run or wait")
	require.Equal(t, "pending", first.record("3").State)
	page := second.must("coordinator", "workers", "--pool", "gpu")
	require.Contains(t, page, "w1")
	require.NotContains(t, page, "w3")
	require.Contains(t, first.metricsPage(), `spillway_pool_max_instances{pool="gpu"} 2`)

	require.NoError(t, w1.Process.Kill())
	require.Eventually(t, func() bool {
		return strings.Contains(first.must("coordinator", "workers", "--pool", "gpu"), "w3")
	}, within, 2*poll, "%v", spare.log)
	open(t, gate)
	for _, id := range []string{"1", "2", "3"} {
		first.await(id, "completed")
	}
}
