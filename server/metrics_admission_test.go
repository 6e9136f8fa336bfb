package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/server"
)

func TestMetricsOfAdmission(t *testing.T) {
	m := server.NewMetrics("v")
	m.AddController("a", false)
	m.AddController("dry", true)
	require.Contains(t, series(t, m), `spillway_admission_verdicts_total{controller="a",dry_run="false",verdict="deny"}`, "a series exists before its first event")

	m.ControllerInstances("a", 1)
	m.ControllerInstances("a", 1)
	m.ControllerInstances("a", -1)
	m.ControllerRefused("a")
	m.VerdictGiven("a", true, false, time.Second)
	m.VerdictGiven("dry", false, true, time.Second)
	m.JobReviewed("approved")
	m.JobReviewed("a job's id")
	m.JobUnobserved("dry")
	m.JobFinished(spillway.Failed, spillway.AdmissionTimeout)
	m.JobFinished(spillway.Rejected, spillway.AdmissionRejected)

	got := series(t, m)
	for name, want := range map[string]float64{
		`spillway_admission_instances{controller="a"}`:                                      1,
		`spillway_admission_streams_ended_total{controller="a"}`:                            1,
		`spillway_admission_verdicts_total{controller="a",dry_run="false",verdict="allow"}`: 1,
		`spillway_admission_verdicts_total{controller="dry",dry_run="true",verdict="deny"}`: 1,
		`spillway_admission_jobs_total{outcome="approved"}`:                                 1,
		`spillway_admission_jobs_total{outcome="other"}`:                                    1,
		`spillway_admission_unobserved_total{controller="dry"}`:                             1,
		`spillway_jobs_finished_total{reason="admission_timeout",state="failed"}`:           1,
		`spillway_jobs_finished_total{reason="admission_rejected",state="rejected"}`:        1,
	} {
		require.InDelta(t, want, got[name], 1e-6, name)
	}
}
