package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/router"
)

func TestSpillAfterIsThePoolsOrTheRouters(t *testing.T) {
	c, err := config.Parse("f", []byte("router: {spill_after: 2m, weights: {affinity: 3}}\n"+pool("spill_after: 0s")+`  - name: b
    capability: {tags: [y]}
    provider: mine
  - name: c
    capability: {tags: [z]}
    provider: mine
    spill_after: 45s
`))
	require.NoError(t, err)
	var got []time.Duration
	for _, p := range c.SpillwayPools() {
		got = append(got, p.SpillAfter)
	}
	require.Equal(t, []time.Duration{0, 2 * time.Minute, 45 * time.Second}, got)
	want := router.DefaultWeights()
	want.Affinity = 3
	require.Equal(t, want, *c.RouterWeights())

	again, err := c.YAML()
	require.NoError(t, err)
	same, err := config.Parse("f", again)
	require.NoError(t, err)
	require.Equal(t, c.SpillwayPools(), same.SpillwayPools())
}

func TestNobodyWaitsUnlessItIsSaid(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Zero(t, c.SpillwayPools()[0].SpillAfter)
	require.Equal(t, router.DefaultWeights(), *c.RouterWeights())
}

func TestMistakesInTheRouterSection(t *testing.T) {
	many := pool("spill_after: 10s")
	for i := range router.MaxSpillTimes {
		many += fmt.Sprintf("  - {name: p%d, capability: {tags: [x]}, provider: mine, spill_after: %ds}\n", i, 20+i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"too short", pool("spill_after: 10ms"), "f:8: pools[0].spill_after: 10ms is out of range; use 0s (not at all), or 1s to 24h0m0s"},
		{"too long", pool("spill_after: 25h"), "f:8: pools[0].spill_after: 25h0m0s is out of range"},
		{"negative", "router: {spill_after: -1s}\n" + pool(""), "f:1: router.spill_after: -1s is out of range"},
		{"weight", "router: {weights: {cost: -1}}\n" + pool(""), "f:1: router.weights.cost: -1 is out of range; use 0 (leave it out) to 1000"},
		{"unknown weight", "router: {weights: {costs: 1}}\n" + pool(""), "f:1: router.weights.costs: unknown setting; did you mean cost?"},
		{"too many times", many, "9 different times of spill_after, at most 8 are allowed"},
		{"GitLab's jobs", gitlab(token, "mode: observe\ncapability: {tags: [x]}\nrunner_token: {env: A}\nobserve: {drain: sidecar}\nspill_after: 1m"), "spill_after: jobs of this pool don't wait here: GitLab holds them"},
		{"of unknown age", gitlab(", route: {server_url: 'grpc://a:1'}", "mode: route\ncapability: {tags: [x]}\ngitlab: {token: {env: R}}\nspill_after: 1m"), "spill_after: without gitlab.api_token nobody knows how long GitLab's jobs have waited"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(c.text))
			require.Error(t, err)
			require.Contains(t, strings.Join(problems(t, err), "\n"), c.want)
		})
	}
}

// GitLab's jobs can be waited with where its lists tell for how long they have waited.
func TestSpillAfterOfPoolsOfModeRoute(t *testing.T) {
	route := func(section, pool string) string {
		return gitlab(section+", route: {server_url: 'grpc://a:1'}", "mode: route\ncapability: {tags: [x]}\ngitlab: {runner_id: 7, token: {env: R}}"+pool)
	}
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{route(token, "\nspill_after: 1m"), time.Minute},
		{"router: {spill_after: 2m}\n" + route(token, ""), 2 * time.Minute},
		{"router: {spill_after: 2m}\n" + route(token, "\nspill_after: 0s"), 0},
		{"router: {spill_after: 2m}\n" + route("", ""), 0},
	} {
		got, err := config.Parse("f", []byte(c.text))
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got.SpillwayPools()[0].SpillAfter, c.text)
	}
}
