package minirunner

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are those of gitlab-runner that others read. Like the real one's,
// gitlab_runner_jobs is absent before the first job request, and then has a series of
// the state idle while no job runs.
type metrics struct {
	r             *Runner
	registry      *prometheus.Registry
	jobs          *prometheus.Desc
	concurrent    *prometheus.Desc
	limit         *prometheus.Desc
	finished      *prometheus.Desc
	queueDuration *prometheus.HistogramVec
	queueSize     *prometheus.GaugeVec
	queueDepth    *prometheus.GaugeVec
}

func newMetrics(r *Runner) *metrics {
	who := []string{"runner", "runner_name", "system_id"}
	m := &metrics{
		r:          r,
		registry:   prometheus.NewRegistry(),
		jobs:       prometheus.NewDesc("gitlab_runner_jobs", "The current number of running builds.", append(who, "state", "stage", "executor_stage"), nil),
		concurrent: prometheus.NewDesc("gitlab_runner_concurrent", "The current value of concurrent setting", nil, nil),
		limit:      prometheus.NewDesc("gitlab_runner_limit", "The current value of concurrent setting", who, nil),
		finished:   prometheus.NewDesc("gitlab_runner_jobs_total", "Total number of handled jobs", who, nil),
		queueDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gitlab_runner_job_queue_duration_seconds", Help: "A histogram representing job queue duration.",
			Buckets: []float64{1, 3, 10, 30, 60, 120, 300, 900, 1800, 3600},
		}, append(who, "project_jobs_running")),
		queueSize: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gitlab_runner_job_queue_size", Help: "A gauge representing the size of the queue for the runner",
		}, who),
		queueDepth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gitlab_runner_job_queue_depth", Help: "A gauge representing the search depth in the queue for the runner",
		}, who),
	}
	m.registry.MustRegister(m, m.queueDuration, m.queueSize, m.queueDepth)
	return m
}

// Metrics serves the runner's metrics, on any path.
func (r *Runner) Metrics() http.Handler {
	return promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{})
}

func (m *metrics) who() []string { return []string{m.r.o.short(), m.r.o.Name, m.r.o.SystemID} }

func (m *metrics) took(job *payload) {
	m.queueDuration.WithLabelValues(append(m.who(), "+Inf")...).Observe(job.JobInfo.TimeInQueueSeconds)
	m.queueSize.WithLabelValues(m.who()...).Set(job.JobInfo.QueueSize)
	m.queueDepth.WithLabelValues(m.who()...).Set(job.JobInfo.QueueDepth)
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.jobs, m.concurrent, m.limit, m.finished} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(m.concurrent, int64(m.r.o.Concurrent))
	gauge(m.limit, 0, m.who()...)
	if n := m.r.running.Load(); n > 0 {
		gauge(m.jobs, n, append(m.who(), "running", "step_script", "")...)
	} else if m.r.counts.direct.Load()+m.r.counts.getJobs.Load() > 0 {
		gauge(m.jobs, 0, append(m.who(), "idle", "", "")...)
	}
	ch <- prometheus.MustNewConstMetric(m.finished, prometheus.CounterValue, float64(m.r.counts.finished.Load()+m.r.running.Load()), m.who()...)
}
