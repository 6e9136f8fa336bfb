package server

import "github.com/prometheus/client_golang/prometheus"

// cellOutcomes are how handed-over attempts end.
var cellOutcomes = []string{"ended", "lost", "refused", "denied", otherLabel}

// cellMetrics are about other cells. Peers are named by the configuration, and origins by
// those who may call as one.
type cellMetrics struct {
	linked  *prometheus.GaugeVec   // peer
	free    *prometheus.GaugeVec   // peer
	growth  *prometheus.GaugeVec   // peer
	jobs    *prometheus.GaugeVec   // peer
	handed  *prometheus.CounterVec // peer
	back    *prometheus.CounterVec // peer, outcome
	taken   *prometheus.CounterVec // taken
	ended   *prometheus.CounterVec // outcome
	origins prometheus.Gauge
}

func newCellMetrics() *cellMetrics {
	m := &cellMetrics{
		linked: gauge("spillway_cell_linked", "1 while this replica has a link to that cell.", "peer"),
		free:   gauge("spillway_cell_offered_jobs", "Places that the cell offers on machines that it has.", "peer"),
		growth: gauge("spillway_cell_offered_growth_jobs", "Places more that it offers on machines that it would launch.", "peer"),
		jobs:   gauge("spillway_cell_handed_over_jobs", "Jobs of this cell that the other one has or may have.", "peer"),
		handed: counter("spillway_cell_handed_over_total", "Jobs that were handed over to the cell.", "peer"),
		back:   counter("spillway_cell_came_back_total", "Handed-over jobs that have ended, or were given back.", "peer", "outcome"),
		taken:  counter("spillway_cell_taken_total", "Jobs that other cells have handed over to this one.", "taken"),
		ended:  counter("spillway_cell_taken_ended_total", "Jobs of other cells that have ended here.", "outcome"),
		origins: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_cell_origins", Help: "Cells that have a link to this replica to hand jobs over.",
		}),
	}
	for _, taken := range []string{"true", "false"} {
		m.taken.WithLabelValues(taken)
	}
	for _, outcome := range cellOutcomes {
		m.ended.WithLabelValues(outcome)
	}
	return m
}

func (m *cellMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.linked, m.free, m.growth, m.jobs, m.handed, m.back, m.taken, m.ended, m.origins}
}

// AddCell makes the series of a peer exist before its first event.
func (m *cellMetrics) AddCell(peer string) {
	for _, g := range []*prometheus.GaugeVec{m.linked, m.free, m.growth, m.jobs} {
		g.WithLabelValues(peer)
	}
	m.handed.WithLabelValues(peer)
	for _, outcome := range cellOutcomes {
		m.back.WithLabelValues(peer, outcome)
	}
}

// CellLinked notes whether there is a link to a peer.
func (m *cellMetrics) CellLinked(peer string, linked bool) {
	value := 0.0
	if linked {
		value = 1
	}
	m.linked.WithLabelValues(peer).Set(value)
}

// CellOffered notes what a peer offers, and what it has of ours [jobs].
func (m *cellMetrics) CellOffered(peer string, free, growth, jobs int) {
	m.free.WithLabelValues(peer).Set(float64(free))
	m.growth.WithLabelValues(peer).Set(float64(growth))
	m.jobs.WithLabelValues(peer).Set(float64(jobs))
}

// JobHandedOver counts a job that went to a peer.
func (m *cellMetrics) JobHandedOver(peer string) { m.handed.WithLabelValues(peer).Inc() }

// JobCameBack counts how one has ended there.
func (m *cellMetrics) JobCameBack(peer, outcome string) {
	m.back.WithLabelValues(peer, within(cellOutcomes, outcome)).Inc()
}

// CellOrigins notes how many cells have a link to this replica.
func (m *cellMetrics) CellOrigins(n int) { m.origins.Set(float64(n)) }

// CellJobTaken counts a job of another cell that was taken, or was not.
func (m *cellMetrics) CellJobTaken(taken bool) {
	label := "false"
	if taken {
		label = "true"
	}
	m.taken.WithLabelValues(label).Inc()
}

// CellJobEnded counts how one has ended here.
func (m *cellMetrics) CellJobEnded(outcome string) {
	m.ended.WithLabelValues(within(cellOutcomes, outcome)).Inc()
}
