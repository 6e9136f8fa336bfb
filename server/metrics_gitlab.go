package server

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// The closed sets of label values of GitLab's metrics.
var (
	// routeOutcomes are what becomes of a job that GitLab gave us for its runners.
	routeOutcomes = []string{JobFound, JobGiven, JobKept, JobLeft, JobRefused, otherLabel}
	pollCodes     = []string{"job", "none", "conflict", "limited", "refused", "failed", otherLabel}
	holdReasons   = []string{"machine_free", "may_grow", otherLabel}
)

// What becomes of a job of route mode.
const (
	JobFound   = "found"   // GitLab gave it to us
	JobGiven   = "given"   // a machine has it
	JobKept    = "kept"    // no machine took it: GitLab keeps it pending for us
	JobLeft    = "left"    // left to GitLab, which gives it out again
	JobRefused = "refused" // admission said no
)

// gitlabMetrics are about GitLab as a source of jobs.
type gitlabMetrics struct {
	sourceUp   *prometheus.GaugeVec   // source
	sourceGood *prometheus.GaugeVec   // source
	stale      prometheus.Gauge       // jobs
	polls      *prometheus.CounterVec // code
	routed     *prometheus.CounterVec // outcome
	degraded   prometheus.Counter
	waiting    prometheus.Gauge       // machines
	held       *prometheus.CounterVec // pool, reason
	heldBack   *prometheus.GaugeVec   // pool

	sources struct {
		sync.Mutex
		shown map[string]bool
	}
}

func newGitLabMetrics() *gitlabMetrics {
	m := &gitlabMetrics{
		sourceUp:   gauge("spillway_source_up_bool", "1 if the last try to read this source of demand was good.", "source"),
		sourceGood: gauge("spillway_source_last_success_timestamp_seconds", "When this source of demand was last read. Absent until then, and where another replica reads it.", "source"),
		stale:      single("spillway_stale_jobs", "Jobs that a list had as waiting and that turned out to be over, since the start."),
		polls:      counter("spillway_gitlab_polls_total", "Job requests to GitLab with a runner token.", "code"),
		routed:     counter("spillway_gitlab_jobs_total", "Jobs that GitLab gave out through us, by what became of them.", "outcome"),
		degraded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_gitlab_degraded_total", Help: "Jobs given to runners without two-phase commit: one that does not reach its runner is lost to GitLab's timeout.",
		}),
		waiting:  single("spillway_gitlab_waiting_runners", "Questions of GitLab Runners for a job that are open at this replica."),
		held:     counter("spillway_gitlab_held_questions_total", "Questions of GitLab Runners that ended without a job while a pool of higher priority went first.", "pool", "reason"),
		heldBack: gauge("spillway_gitlab_held_back_bool", "1 while GitLab is not asked for the pool's machines because a pool of higher priority goes first, by this replica.", "pool"),
	}
	for _, outcome := range routeOutcomes {
		m.routed.WithLabelValues(outcome)
	}
	for _, code := range pollCodes {
		m.polls.WithLabelValues(code)
	}
	return m
}

func (m *gitlabMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sourceUp, m.sourceGood, m.stale, m.polls, m.routed, m.degraded, m.waiting, m.held, m.heldBack}
}

// SourcesRead shows how the sources of demand do that this replica reads. Sources are named
// by the configuration, so that there are as many as it has. Absent is not zero: one that
// has said nothing yet has no time, since 0 would be one, long ago; and one that this
// replica reads no more shows nothing, since it can't know.
func (m *gitlabMetrics) SourcesRead(feeds []FeedStatus) {
	m.sources.Lock()
	defer m.sources.Unlock()
	shown := make(map[string]bool, len(feeds))
	for i := range feeds {
		f := &feeds[i]
		shown[f.Name] = true
		up := 0.0
		if f.Error == "" {
			up = 1
		}
		m.sourceUp.WithLabelValues(f.Name).Set(up)
		if f.GoodAt.IsZero() {
			m.sourceGood.DeleteLabelValues(f.Name)
		} else {
			m.sourceGood.WithLabelValues(f.Name).Set(seconds(f.GoodAt))
		}
	}
	for name := range m.sources.shown {
		if !shown[name] {
			m.sourceUp.DeleteLabelValues(name)
			m.sourceGood.DeleteLabelValues(name)
		}
	}
	m.sources.shown = shown
}

// StaleJobs shows how many jobs of a list turned out to be over.
func (m *gitlabMetrics) StaleJobs(n int) { m.stale.Set(float64(n)) }

// Polled counts a job request by GitLab's answer; 0 = there was none.
func (m *gitlabMetrics) Polled(status int) {
	code := otherLabel
	switch {
	case status == 0 || status >= 500:
		code = "failed"
	case status == 201:
		code = "job"
	case status == 204:
		code = "none"
	case status == 409:
		code = "conflict"
	case status == 429:
		code = "limited"
	case status == 401, status == 403, status == 422:
		code = "refused"
	}
	m.polls.WithLabelValues(code).Inc()
}

// JobRouted counts a job of route mode by what became of it.
func (m *gitlabMetrics) JobRouted(outcome string) {
	m.routed.WithLabelValues(within(routeOutcomes, outcome)).Inc()
}

// Degraded counts a job that was given to a runner without two-phase commit.
func (m *gitlabMetrics) Degraded() { m.degraded.Inc() }

// WaitingRunners shows how many questions for a job are open.
func (m *gitlabMetrics) WaitingRunners(n int) { m.waiting.Set(float64(n)) }

// AddRouted makes the series of a pool of route mode, at 0.
func (m *gitlabMetrics) AddRouted(pool string) {
	m.heldBack.WithLabelValues(pool)
	for _, reason := range holdReasons[:len(holdReasons)-1] {
		m.held.WithLabelValues(pool, reason)
	}
}

func (m *gitlabMetrics) removeRouted(pool string) {
	m.heldBack.DeleteLabelValues(pool)
	m.held.DeletePartialMatch(prometheus.Labels{"pool": pool})
}

// QuestionHeld counts a runner's question that ended without a job, because a pool of
// higher priority went first. Pools are the configuration's.
func (m *gitlabMetrics) QuestionHeld(pool, reason string) {
	m.held.WithLabelValues(pool, within(holdReasons, reason)).Inc()
}

// PoolHeldBack shows whether GitLab is not asked for a pool's machines for that reason.
func (m *gitlabMetrics) PoolHeldBack(pool string, held bool) {
	is := 0.0
	if held {
		is = 1
	}
	m.heldBack.WithLabelValues(pool).Set(is)
}
