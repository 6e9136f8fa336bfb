package controlplane

import (
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// A count is the demand only where nothing tells which jobs wait.
func TestCounts(t *testing.T) {
	const query = "count: {every: 30s, prometheus: {url: 'http://127.0.0.1:1', query: up}}"
	for _, c := range []struct {
		name, gitlab, pool string
		drives             bool
		each               int
	}{
		{"GitLab hands them out", "{url: 'http://127.0.0.1:1'}", "mode: observe, capability: {tags: [a]}, " + query, true, 0},
		{"GitLab lists them", "{url: 'http://127.0.0.1:1', api_token: {env: T}}", "mode: observe, capability: {tags: [a]}, " + query, false, 0},
		{"our own queue", "{url: 'http://127.0.0.1:1'}", "capability: {tags: [a]}, " + query, false, 0},
		{
			"of instances", "{url: 'http://127.0.0.1:1'}",
			"capability: {tags: [a]}, capacity_per_instance: 4, count: {means: instances, prometheus: {url: 'http://127.0.0.1:1', query: up}}", false, 4,
		},
		{"a cloud's", "{url: 'http://127.0.0.1:1'}", "capability: {tags: [a]}, count: {metric: m}", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := configure(t, c.gitlab, c.pool)
			counts, err := (&ControlPlane{cfg: cfg, pools: cfg.SpillwayPools()}).counts()
			require.NoError(t, err)
			require.Len(t, counts, 1)
			got := counts["theirs"]
			require.NotNil(t, got.Read)
			require.Equal(t, cfg.Pools[1].Count.Every, got.Every)
			require.Equal(t, c.drives, got.Drives)
			require.Equal(t, c.each, got.Each)
		})
	}
}

func TestCountsOfWhatCannotBeAsked(t *testing.T) {
	cfg := configure(t, "{url: 'http://127.0.0.1:1'}", "capability: {tags: [a]}, count: {prometheus: {url: 'http://127.0.0.1:1', query: up, ca_file: /nowhere}}")
	_, err := (&ControlPlane{cfg: cfg, pools: cfg.SpillwayPools()}).counts()
	require.ErrorContains(t, err, "pools[1].count: prometheus.ca_file: ")
	var found []string
	for _, f := range (&surroundings{cfg: &config.Config{Pools: cfg.Pools}}).look(t.Context()) {
		found = append(found, f.Code)
	}
	require.Equal(t, []string{"count_unusable"}, found)
}

func TestCountsAreInTheMetricsWithoutAGitLab(t *testing.T) {
	cfg := configure(t, "{url: 'http://127.0.0.1:1'}", "capability: {tags: [a]}, count: {every: 30s, prometheus: {url: 'http://127.0.0.1:1', query: up}}")
	cfg.GitLab = nil
	c := run(t, cfg)
	require.Eventually(t, func() bool {
		families, err := c.metrics.Registry().Gather()
		return err == nil && slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "spillway_source_up_bool" && f.GetMetric()[0].GetLabel()[0].GetValue() == "count/theirs"
		})
	}, within, 20*time.Millisecond)
}
