package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// admissionOutcomes are what admission comes to for a job.
var admissionOutcomes = []string{"approved", "rejected", "timed_out", otherLabel}

// verdictBuckets reach from a rule that is looked at to a person who is asked [s].
var verdictBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 600}

// admissionMetrics are about admission controllers. They are named by the
// configuration, so that there are as many as it has.
type admissionMetrics struct {
	instances  *prometheus.GaugeVec     // controller
	verdicts   *prometheus.CounterVec   // controller, verdict, dry_run
	took       *prometheus.HistogramVec // controller
	reviewed   *prometheus.CounterVec   // outcome
	refused    *prometheus.CounterVec   // controller
	unobserved *prometheus.CounterVec   // controller
}

func newAdmissionMetrics() *admissionMetrics {
	m := &admissionMetrics{
		instances:  gauge("spillway_admission_instances", "Instances of this admission controller that are connected to this replica.", "controller"),
		verdicts:   counter("spillway_admission_verdicts_total", "Verdicts of this controller that counted, by what it said.", "controller", "verdict", "dry_run"),
		reviewed:   counter("spillway_admission_jobs_total", "Jobs that passed or failed admission, by what it came to.", "outcome"),
		refused:    counter("spillway_admission_streams_ended_total", "Streams of instances that were ended for what they did or did not do.", "controller"),
		unobserved: counter("spillway_admission_unobserved_total", "Jobs that this dry_run controller was not shown, since it was not connected or had too much to do.", "controller"),
		took:       histogram("spillway_admission_verdict_seconds", "From sending a review to a verdict.", verdictBuckets, "controller"),
	}
	for _, outcome := range admissionOutcomes {
		m.reviewed.WithLabelValues(outcome)
	}
	return m
}

func (m *admissionMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.instances, m.verdicts, m.took, m.reviewed, m.refused, m.unobserved}
}

// AddController makes the series of a controller exist before its first event.
func (m *admissionMetrics) AddController(name string, dryRun bool) {
	m.instances.WithLabelValues(name)
	m.took.WithLabelValues(name)
	m.refused.WithLabelValues(name)
	for _, verdict := range []string{"allow", "deny"} {
		m.verdicts.WithLabelValues(name, verdict, strconv.FormatBool(dryRun))
	}
	if dryRun {
		m.unobserved.WithLabelValues(name)
	}
}

// ControllerInstances counts the connected instances up or down.
func (m *admissionMetrics) ControllerInstances(name string, by int) {
	m.instances.WithLabelValues(name).Add(float64(by))
}

// ControllerRefused counts a stream that was ended for what its instance did.
func (m *admissionMetrics) ControllerRefused(name string) { m.refused.WithLabelValues(name).Inc() }

// VerdictGiven counts a verdict.
func (m *admissionMetrics) VerdictGiven(controller string, allow, dryRun bool, took time.Duration) {
	verdict := "deny"
	if allow {
		verdict = "allow"
	}
	m.verdicts.WithLabelValues(controller, verdict, strconv.FormatBool(dryRun)).Inc()
	m.took.WithLabelValues(controller).Observe(took.Seconds())
}

// JobReviewed counts what admission came to for a job.
func (m *admissionMetrics) JobReviewed(outcome string) {
	m.reviewed.WithLabelValues(within(admissionOutcomes, outcome)).Inc()
}

// JobUnobserved counts a job that a dry_run controller was not shown.
func (m *admissionMetrics) JobUnobserved(controller string) {
	m.unobserved.WithLabelValues(controller).Inc()
}
