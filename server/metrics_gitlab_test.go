package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/server"
)

func TestMetricsOfGitLab(t *testing.T) {
	m := server.NewMetrics("v")
	require.Contains(t, series(t, m), `spillway_gitlab_jobs_total{outcome="given"}`, "a series exists before its first event")

	m.SourcesRead([]server.FeedStatus{
		{Name: "gitlab jobs", GoodAt: time.Unix(1_700_000_000, 500_000_000)}, {Name: "prometheus linux", Error: "down"},
	})
	m.StaleJobs(3)
	for _, status := range []int{0, 201, 204, 204, 403, 409, 429, 503, 418} {
		m.Polled(status)
	}
	m.JobRouted(server.JobFound)
	m.JobRouted("a job id")
	m.Degraded()
	m.WaitingRunners(7)
	m.AddRouted("spare")
	m.QuestionHeld("spare", "machine_free")
	m.QuestionHeld("spare", "a job id")
	m.PoolHeldBack("spare", true)

	got := series(t, m)
	for name, want := range map[string]float64{
		`spillway_source_up_bool{source="gitlab jobs"}`:                            1,
		`spillway_source_up_bool{source="prometheus linux"}`:                       0,
		`spillway_source_last_success_timestamp_seconds{source="gitlab jobs"}`:     1_700_000_000.5,
		`spillway_gitlab_held_back_bool{pool="spare"}`:                             1,
		`spillway_gitlab_held_questions_total{pool="spare",reason="machine_free"}`: 1,
		`spillway_gitlab_held_questions_total{pool="spare",reason="may_grow"}`:     0,
		`spillway_gitlab_held_questions_total{pool="spare",reason="other"}`:        1,
		`spillway_stale_jobs{}`:                        3,
		`spillway_gitlab_polls_total{code="job"}`:      1,
		`spillway_gitlab_polls_total{code="none"}`:     2,
		`spillway_gitlab_polls_total{code="refused"}`:  1,
		`spillway_gitlab_polls_total{code="conflict"}`: 1,
		`spillway_gitlab_polls_total{code="limited"}`:  1,
		`spillway_gitlab_polls_total{code="failed"}`:   2,
		`spillway_gitlab_polls_total{code="other"}`:    1,
		`spillway_gitlab_jobs_total{outcome="found"}`:  1,
		`spillway_gitlab_jobs_total{outcome="other"}`:  1,
		`spillway_gitlab_degraded_total{}`:             1,
		`spillway_gitlab_waiting_runners{}`:            7,
	} {
		require.InDelta(t, want, got[name], 1e-6, name)
	}
}

// Absent is not zero: an alert on the age of what never was would fire for ever.
func TestASourceThatHasSaidNothingHasNoTime(t *testing.T) {
	const up, good = `spillway_source_up_bool{source="gitlab/hooks"}`, `spillway_source_last_success_timestamp_seconds{source="gitlab/hooks"}`
	m := server.NewMetrics("v")
	m.SourcesRead([]server.FeedStatus{{Name: "gitlab/hooks"}, {Name: "gitlab/jobs", GoodAt: time.Unix(1, 0)}})
	require.Equal(t, 1.0, series(t, m)[up])
	require.NotContains(t, series(t, m), good)
	m.SourcesRead([]server.FeedStatus{{Name: "gitlab/hooks", GoodAt: time.Unix(5, 0)}})
	got := series(t, m)
	require.Equal(t, 5.0, got[good])
	for name := range got {
		require.NotContains(t, name, `source="gitlab/jobs"`, "another replica reads it now")
	}
	m.SourcesRead([]server.FeedStatus{{Name: "gitlab/hooks"}})
	require.NotContains(t, series(t, m), good, "begun anew")
}
