package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

const onePool = `
duration: 1h
config:
  pools:
    - {name: linux, capability: {tags: [docker]}}
`

func parse(t testing.TB, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
	require.NoError(t, err)
	return s
}

func run(t testing.TB, text string) *sim.Result {
	t.Helper()
	r, err := sim.Run(t.Context(), parse(t, text))
	require.NoError(t, err)
	return r
}

func TestTheCallersContextEndsARun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sim.Run(ctx, parse(t, onePool))
	require.ErrorIs(t, err, context.Canceled)
}

func TestJSONHasTheFieldsOfTheFormat(t *testing.T) {
	r := run(t, onePool+`
cloud: {linux: {price: 0.5}}
jobs:
  - {at: 1s, id: j, count: 2, tags: [docker], duration: 60s}
  - {at: 1s, id: nobody, tags: [mac], duration: 60s}
expect: [jobs.completed == 2]
`)
	var b bytes.Buffer
	require.NoError(t, sim.WriteJSON(&b, r))
	var got map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	for _, key := range []string{"seed", "duration_s", "jobs", "busy_kills", "pools", "calls", "decisions", "unmatched", "invariants"} {
		require.Contains(t, got, key)
	}
	pool := got["pools"].(map[string]any)["linux"].(map[string]any)
	for _, key := range []string{
		"launches", "removals", "scale_calls", "max_live", "instance_seconds", "cost", "desired", "in_service", "limited_by",
	} {
		require.Contains(t, pool, key)
	}
	require.Equal(t, []any{1.005, 2.0}, pool["desired"].([]any)[1])
	require.InDelta(t, pool["instance_seconds"].(float64)/3600*0.5, pool["cost"], 1e-6)
	call := got["calls"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"t": 1.005, "pool": "linux", "op": "set_desired", "args": "2, expected 0", "result": "ok"}, call)
	require.Equal(t, map[string]any{"no_pool_with_tags": 1.0}, got["unmatched"])
	jobs := got["jobs"].(map[string]any)
	require.InDelta(t, 1, jobs["unmatched"], 0)
	require.InDelta(t, 1, jobs["pending"], 0, "it waits until the end of the story")
	require.Equal(t, sim.ExitOK, r.ExitCode())
}

func TestAFalseExpectationIsTheExitStatusAndIsShown(t *testing.T) {
	r := run(t, onePool+"jobs: [{at: 1s, id: j, tags: [docker], duration: 60s}]\nexpect:\n  - jobs.completed == 1\n  - pool.linux.launches == 7\n")
	require.Equal(t, sim.ExitExpect, r.ExitCode())
	var b bytes.Buffer
	require.NoError(t, sim.WriteText(&b, r))
	require.Contains(t, b.String(), "FALSE: pool.linux.launches == 7 (seen: 1)")
	require.Contains(t, b.String(), "1 of 2 expectations hold")
	require.Contains(t, b.String(), "every invariant held")
}

func TestEveryFactHasAnAnswer(t *testing.T) {
	r := run(t, onePool+`
cloud: {linux: {price: 1}}
jobs:
  - {at: 10s, id: j, count: 12, tags: [docker], duration: 50s}
  - {at: 10s, id: gone, tags: [docker], duration: 60s}
  - {at: 10s, id: mac, tags: [mac], duration: 60s}
events:
  - {at: 11s, cancel: [gone]}
expect:
  - jobs.submitted == 14
  - jobs.completed == 12
  - jobs.canceled == 1
  - jobs.failed == 0
  - jobs.rejected == 0
  - jobs.pending == 1
  - jobs.running == 0
  - jobs.unmatched == 1
  - jobs.running.at(100s) == 10
  - jobs.completed.at(125s) == 10
  - jobs.wait.p50 <= 61s
  - jobs.wait_s.p95 >= 110s
  - jobs.wait.max <= 111s
  - unmatched.no_pool_with_tags == 1
  - busy_kills == 0
  - forced_kills == 0
  - calls >= 2
  - calls.set_desired == 1
  - decisions >= 2
  - duration_s == 3600
  - pool.linux.launches == 10
  - pool.linux.removals == 10
  - pool.linux.scale_calls >= 2
  - pools.linux.max_live == 10
  - pool.linux.instance_seconds > 600
  - pool.linux.cost > 1
  - pool.linux.desired.max == 10
  - pool.linux.desired.min == 0
  - pool.linux.desired.at(9s) == 0
  - pool.linux.desired.at(20s) == 10
  - pool.linux.in_service.at(60s) == 0
  - pool.linux.in_service.at(80s) == 10
  - pool.linux.in_service == 0
  - pool.linux.limited_by.max >= 1
  - pool.linux.calls.withdraw == 0
  - invariants.I1 == 0
`)
	for _, e := range r.Expect {
		require.True(t, e.OK, "%s", e)
	}
}

func TestSeedsChangeTheRun(t *testing.T) {
	story := onePool + "cloud: {linux: {boot: {p50: 60s, p95: 2m}}}\njobs: [{at: 1s, id: j, count: 8, tags: [docker], duration: 60s}]\n"
	a, b := run(t, "seed: 1\n"+story), run(t, "seed: 2\n"+story)
	require.NotEqual(t, a.Jobs.Wait, b.Jobs.Wait)
}

// An hour of one busy pool should take less than 100 ms.
func BenchmarkOneHourOfOnePool(b *testing.B) {
	s := parse(b, onePool+"jobs:\n"+
		"  - {at: 1m, id: a, count: 40, tags: [docker], duration: 5m}\n"+
		"  - {at: 20m, id: b, count: 40, tags: [docker], duration: 90s}\n"+
		"  - {at: 40m, id: c, count: 60, tags: [docker], duration: 3m}\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sim.Run(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}
