package server

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/store"
)

// The closed sets of label values. A value outside its set is counted as
// otherLabel: a label must not grow with what others send. No label ever holds
// the id of a job, a runner or an instance.
var (
	storeCodes = []string{"unavailable", "unknown", otherLabel}
	// endings are the pairs of state and reason that a job can end in.
	endings = [][2]string{
		{string(spillway.Completed), ""},
		{string(spillway.Failed), string(spillway.ScriptFailure)},
		{string(spillway.Failed), string(spillway.JobExecutionTimeout)},
		{string(spillway.Failed), string(spillway.RunnerSystemFailure)},
		{string(spillway.Failed), string(spillway.Unmatched)},
		{string(spillway.Failed), string(spillway.PendingTimeout)},
		{string(spillway.Failed), string(spillway.AdmissionTimeout)},
		{string(spillway.Rejected), string(spillway.AdmissionRejected)},
		{string(spillway.Rejected), string(spillway.Unmatched)},
		{string(spillway.Rejected), string(spillway.PendingTimeout)},
		{string(spillway.Canceled), string(spillway.JobCanceled)},
		{otherLabel, otherLabel},
	}
)

const otherLabel = "other"

// waitBuckets reach from a free machine (milliseconds) to a fleet that is far
// too small (hours) [s].
var waitBuckets = []float64{0.01, 0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400}

// Metrics are what Prometheus is told. Its methods are what subscribers of the
// loops call; all are safe for concurrent use and none blocks. Series of a pool
// or provider exist from AddPool or AddProvider on, at 0, so that the first
// failure of a counter is seen as an increase; they go with RemovePool or
// RemoveProvider.
type Metrics struct {
	registry *prometheus.Registry
	pools    *poolCollector
	*providerMetrics
	*gitlabMetrics
	*jobMetrics
	*tlsMetrics
	*accessMetrics
	*admissionMetrics
	*debugMetrics
	*coordinatorMetrics
	*cellMetrics
	signals *signalCollector

	jobWait     *prometheus.HistogramVec // pool
	jobs        *prometheus.CounterVec   // state, reason
	storeErrors *prometheus.CounterVec   // code
	unmatched   prometheus.Gauge
	overflow    prometheus.Gauge
}

// NewMetrics makes a registry of its own, with the process's and Go's metrics.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry:           prometheus.NewRegistry(),
		pools:              newPoolCollector(),
		signals:            newSignalCollector(MaxFingerprints),
		jobWait:            histogram("spillway_job_wait_seconds", "From a job's submission to its assignment.", waitBuckets, "pool"),
		jobs:               counter("spillway_jobs_finished_total", "Jobs that have ended.", "state", "reason"),
		storeErrors:        counter("spillway_store_errors_total", "Operations of the store that failed or whose outcome is unknown.", "code"),
		providerMetrics:    newProviderMetrics(),
		gitlabMetrics:      newGitLabMetrics(),
		jobMetrics:         newJobMetrics(),
		tlsMetrics:         newTLSMetrics(),
		accessMetrics:      newAccessMetrics(),
		admissionMetrics:   newAdmissionMetrics(),
		debugMetrics:       newDebugMetrics(),
		coordinatorMetrics: newCoordinatorMetrics(),
		cellMetrics:        newCellMetrics(),
		unmatched:          single("spillway_unmatched_jobs", "Pending jobs that no pool can take."),
		overflow:           single("spillway_overflow_jobs", "Pending jobs that some pool can take and none has room for."),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(
		build, m.pools, m.signals, m.jobWait, m.jobs, m.calls, m.callSeconds, m.pluginUp, m.restarts, m.repeats,
		m.storeErrors, m.unmatched, m.overflow,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.registry.MustRegister(m.gitlabMetrics.collectors()...)
	m.registry.MustRegister(m.jobMetrics.collectors()...)
	m.registry.MustRegister(m.tlsMetrics.collectors()...)
	m.registry.MustRegister(m.accessMetrics.collectors()...)
	m.registry.MustRegister(m.admissionMetrics.collectors()...)
	m.registry.MustRegister(m.debugMetrics.collectors()...)
	m.registry.MustRegister(m.coordinatorMetrics.collectors()...)
	m.registry.MustRegister(m.cellMetrics.collectors()...)
	for _, e := range endings {
		m.jobs.WithLabelValues(e[0], e[1])
	}
	for _, code := range storeCodes {
		m.storeErrors.WithLabelValues(code)
	}
	return m
}

// Registry is what /metrics shows.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// AddPool makes every series of a pool, at 0.
func (m *Metrics) AddPool(pool spillway.Pool) {
	m.pools.add(pool)
	m.pools.change(pool.Name, func(*poolSample) { m.jobWait.WithLabelValues(pool.Name) })
}

// RemovePool removes every series of a pool. What is still told of it afterwards
// is not shown.
func (m *Metrics) RemovePool(name string) {
	m.pools.remove(name, func() { m.jobWait.DeleteLabelValues(name) })
	m.removeRouted(name)
}

// PoolObserved shows a pool as of its last tick.
func (m *Metrics) PoolObserved(p PoolStatus) {
	m.pools.change(p.Pool.Name, func(s *poolSample) {
		if p.LastSuccess.IsZero() {
			p.LastSuccess = s.status.LastSuccess
		}
		s.status = p
	})
}

// Reconciled shows when a pool was last reconciled completely.
func (m *Metrics) Reconciled(pool string, at time.Time) {
	m.pools.change(pool, func(s *poolSample) { s.status.LastSuccess = at })
}

// RunnersConnected shows how many machines of a pool are connected to this
// replica.
func (m *Metrics) RunnersConnected(pool string, machines int) {
	m.pools.change(pool, func(s *poolSample) { s.runners = machines })
}

// Decided counts a decision.
func (m *Metrics) Decided(pool string, d policy.Direction, r policy.Reason) {
	m.pools.change(pool, func(s *poolSample) { s.decisions[indexOf(verdict{d, r})]++ })
}

// JobAssigned adds the wait of a job that was given to a machine of pool.
func (m *Metrics) JobAssigned(pool string, wait time.Duration) {
	m.pools.change(pool, func(*poolSample) { m.jobWait.WithLabelValues(pool).Observe(wait.Seconds()) })
}

// JobFinished counts a job that has ended.
func (m *Metrics) JobFinished(state spillway.JobState, reason spillway.FailureReason) {
	ending := [2]string{string(state), string(reason)}
	if !slices.Contains(endings, ending) {
		ending = [2]string{otherLabel, otherLabel}
	}
	m.jobs.WithLabelValues(ending[0], ending[1]).Inc()
}

// StoreFailed counts an operation of the store that did not succeed.
func (m *Metrics) StoreFailed(err error) {
	code := otherLabel
	switch {
	case errors.Is(err, store.ErrUnavailable):
		code = "unavailable"
	case errors.Is(err, store.ErrUnknown):
		code = "unknown"
	}
	m.storeErrors.WithLabelValues(code).Inc()
}

// DemandObserved shows the signals, and the jobs that no pool has a place for.
func (m *Metrics) DemandObserved(v DemandView) {
	var unmatched, overflow int
	for _, c := range v.Classes {
		unmatched += c.Unmatched
		overflow += c.Overflow
	}
	m.unmatched.Set(float64(unmatched))
	m.overflow.Set(float64(overflow))
	m.signals.set(v.Signals)
}

// within is value if it is in the set, else what stands for the rest.
func within(set []string, value string) string {
	if slices.Contains(set, value) {
		return value
	}
	return otherLabel
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func single(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
