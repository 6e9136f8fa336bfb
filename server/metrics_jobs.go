package server

import "github.com/prometheus/client_golang/prometheus"

// pushOutcomes are what pushed jobs are answered with.
var pushOutcomes = []string{"accepted", "duplicate", "conflict", "invalid", "queue_full", "unavailable"}

// jobMetrics are about jobs that are pushed to Spillway itself.
type jobMetrics struct {
	pushed      *prometheus.CounterVec // outcome
	quarantined prometheus.Counter
	retried     prometheus.Counter
}

func newJobMetrics() *jobMetrics {
	m := &jobMetrics{
		pushed: counter("spillway_jobs_pushed_total", "Jobs that were pushed, by what they were answered with.", "outcome"),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_jobs_quarantined_total", Help: "Jobs that came into quarantine, because they had lost max_attempts machines.",
		}),
		retried: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_jobs_retried_total", Help: "Jobs that an operator took out of quarantine.",
		}),
	}
	for _, outcome := range pushOutcomes {
		m.pushed.WithLabelValues(outcome)
	}
	return m
}

func (m *jobMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pushed, m.quarantined, m.retried}
}

// JobsPushed counts the jobs of one batch, in the order of their outcomes' names.
func (m *jobMetrics) JobsPushed(accepted, duplicate, conflict, invalid, full, unavailable int) {
	for i, n := range []int{accepted, duplicate, conflict, invalid, full, unavailable} {
		m.pushed.WithLabelValues(pushOutcomes[i]).Add(float64(n))
	}
}

// JobQuarantined counts a job that came into quarantine.
func (m *jobMetrics) JobQuarantined() { m.quarantined.Inc() }

// JobRetried counts a job that was taken out of it.
func (m *jobMetrics) JobRetried() { m.retried.Inc() }
