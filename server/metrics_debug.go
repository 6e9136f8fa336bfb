package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// The closed sets of labels of sessions with jobs.
var (
	debugKinds = []string{"exec", "port", "socket", "http", otherLabel}
	// debugEnds are how sessions end, and debugRefusals why they don't begin.
	debugEnds = map[codes.Code]string{
		codes.OK: "in_order", codes.Canceled: "caller_left", codes.Aborted: "job_ended", codes.DeadlineExceeded: "too_long",
		codes.ResourceExhausted: "too_much", codes.Unavailable: "connection_lost",
	}
	debugRefusals = map[codes.Code]string{
		codes.NotFound: "unknown_job", codes.FailedPrecondition: "not_possible", codes.ResourceExhausted: "too_many",
		codes.Unavailable: "unreachable", codes.InvalidArgument: "invalid",
	}
)

// debugMetrics are about sessions with the environments of jobs.
type debugMetrics struct {
	open    *prometheus.GaugeVec     // kind
	ended   *prometheus.CounterVec   // kind, how
	refused *prometheus.CounterVec   // kind, why
	bytes   *prometheus.CounterVec   // kind, direction
	lasted  *prometheus.HistogramVec // kind
}

func newDebugMetrics() *debugMetrics {
	m := &debugMetrics{
		open:    gauge("spillway_debug_sessions", "Sessions with jobs that are open at this replica, those for other replicas included.", "kind"),
		ended:   counter("spillway_debug_sessions_ended_total", "Sessions with jobs that have ended, by how.", "kind", "how"),
		refused: counter("spillway_debug_sessions_refused_total", "Sessions with jobs that could not be, by why.", "kind", "why"),
		bytes:   counter("spillway_debug_bytes_total", "Bytes that sessions with jobs have carried.", "kind", "direction"),
		lasted:  histogram("spillway_debug_session_seconds", "How long sessions with jobs were open.", waitBuckets, "kind"),
	}
	for _, kind := range debugKinds[:len(debugKinds)-1] {
		m.open.WithLabelValues(kind)
		m.bytes.WithLabelValues(kind, "to_job")
		m.bytes.WithLabelValues(kind, "from_job")
		for _, how := range debugEnds {
			m.ended.WithLabelValues(kind, how)
		}
		for _, why := range debugRefusals {
			m.refused.WithLabelValues(kind, why)
		}
	}
	return m
}

func (m *debugMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.open, m.ended, m.refused, m.bytes, m.lasted}
}

func codeLabel(names map[codes.Code]string, code codes.Code) string {
	if name, known := names[code]; known {
		return name
	}
	return otherLabel
}

// DebugOpened counts a session that has begun.
func (m *debugMetrics) DebugOpened(kind string) {
	m.open.WithLabelValues(within(debugKinds, kind)).Inc()
}

// DebugRefused counts a session that could not be.
func (m *debugMetrics) DebugRefused(kind string, code codes.Code) {
	m.refused.WithLabelValues(within(debugKinds, kind), codeLabel(debugRefusals, code)).Inc()
}

// DebugClosed counts a session that has ended, with the bytes that it carried to the job
// and from it.
func (m *debugMetrics) DebugClosed(kind string, code codes.Code, up, down int64, took time.Duration) {
	kind = within(debugKinds, kind)
	m.open.WithLabelValues(kind).Dec()
	m.ended.WithLabelValues(kind, codeLabel(debugEnds, code)).Inc()
	m.bytes.WithLabelValues(kind, "to_job").Add(float64(up))
	m.bytes.WithLabelValues(kind, "from_job").Add(float64(down))
	m.lasted.WithLabelValues(kind).Observe(took.Seconds())
}
