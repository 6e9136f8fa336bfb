package server

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// What calls of workers, and of whoever submits to their pools, come to.
var (
	pollOutcomes   = []string{"job", "none", "refused", otherLabel}
	reportOutcomes = []string{"stored", "refused", "unavailable", otherLabel}
	submitOutcomes = []string{"accepted", "duplicate", "full", "refused", "unavailable", otherLabel}
)

// coordinatorMetrics are about workers that ask for jobs by single calls.
type coordinatorMetrics struct {
	workers prometheus.Gauge
	lost    prometheus.Counter
	polls   *prometheus.CounterVec // outcome
	reports *prometheus.CounterVec // outcome
	submits *prometheus.CounterVec // outcome
}

func newCoordinatorMetrics() *coordinatorMetrics {
	m := &coordinatorMetrics{
		workers: single("spillway_coordinator_workers", "Polling workers that are attached to this replica."),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_coordinator_lost_total", Help: "Polling workers that fell silent with a job, which went back to the queue.",
		}),
		polls:   counter("spillway_coordinator_polls_total", "Polls of workers, by what they came to.", "outcome"),
		reports: counter("spillway_coordinator_results_total", "Results that workers reported, by what became of them.", "outcome"),
		submits: counter("spillway_coordinator_submitted_total", "Jobs that were submitted to a pool, by what became of them.", "outcome"),
	}
	for vec, outcomes := range map[*prometheus.CounterVec][]string{m.polls: pollOutcomes, m.reports: reportOutcomes, m.submits: submitOutcomes} {
		for _, outcome := range outcomes {
			vec.WithLabelValues(outcome)
		}
	}
	return m
}

func (m *coordinatorMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.workers, m.lost, m.polls, m.reports, m.submits}
}

// CoordinatorWorkers sets how many workers are attached.
func (m *coordinatorMetrics) CoordinatorWorkers(n int) { m.workers.Set(float64(n)) }

// CoordinatorLost counts a worker that fell silent with a job.
func (m *coordinatorMetrics) CoordinatorLost() { m.lost.Inc() }

// CoordinatorPoll counts a poll.
func (m *coordinatorMetrics) CoordinatorPoll(outcome string) { count(m.polls, pollOutcomes, outcome) }

// CoordinatorReport counts a reported result.
func (m *coordinatorMetrics) CoordinatorReport(outcome string) {
	count(m.reports, reportOutcomes, outcome)
}

// CoordinatorSubmit counts a submitted job.
func (m *coordinatorMetrics) CoordinatorSubmit(outcome string) {
	count(m.submits, submitOutcomes, outcome)
}

func count(vec *prometheus.CounterVec, known []string, label string) {
	if !slices.Contains(known, label) {
		label = otherLabel
	}
	vec.WithLabelValues(label).Inc()
}
