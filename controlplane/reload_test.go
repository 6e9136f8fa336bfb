package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

func TestWhatAReloadTakesOver(t *testing.T) {
	old := config.Pool{Name: "linux", Mode: "orchestrate", Provider: "aws", Group: "asg", Priority: 1, Policy: config.Policy{Max: 5}}
	wanted := old
	wanted.Provider, wanted.Group, wanted.Count = "gcp", "mig", &config.Count{Metric: "m"}
	wanted.Priority, wanted.Policy.Max, wanted.CostPerJob = 2, 7, 0.5
	merged, restart := mergePool(old, wanted)
	require.Equal(t, []string{"pools.linux.provider", "pools.linux.group", "pools.linux.count"}, restart)
	want := old
	want.Priority, want.Policy.Max, want.CostPerJob = 2, 7, 0.5
	require.Equal(t, want, merged)

	a := &config.Config{Tick: time.Second, Pools: []config.Pool{old}}
	b := &config.Config{Tick: time.Second, Pools: []config.Pool{wanted}}
	require.Empty(t, otherSections(a, b), "pools are no other section")
	b.Tick, b.Log.Level, b.GitLab = time.Minute, "debug", &config.GitLab{URL: "https://gitlab.example.com"}
	require.Equal(t, []string{"tick", "log", "gitlab"}, otherSections(a, b))
}

// A field that is added to a pool is taken over unless it is named as one that is not:
// whoever adds one has to think of it.
func TestFixedPoolFieldsExist(t *testing.T) {
	merged, restart := mergePool(config.Pool{}, config.Pool{})
	require.Empty(t, restart)
	require.Equal(t, config.Pool{}, merged)
}
