package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// accessMetrics are about who is let in, and what is kept of it.
type accessMetrics struct {
	refused   *prometheus.CounterVec // code
	auditLost prometheus.Counter
}

func newAccessMetrics() *accessMetrics {
	m := &accessMetrics{
		refused: counter("spillway_access_refused_total", "Calls to listen.api that were refused for who made them.", "code"),
		auditLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_audit_lost_total", Help: "Audit entries that the file could not take; they are in the log.",
		}),
	}
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
		m.refused.WithLabelValues(codeNames[code])
	}
	return m
}

// codeNames are the closed set of codes with which a caller is refused.
var codeNames = map[codes.Code]string{codes.Unauthenticated: "unauthenticated", codes.PermissionDenied: "permission_denied"}

func (m *accessMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.refused, m.auditLost}
}

// AccessRefused counts a refused call.
func (m *accessMetrics) AccessRefused(code codes.Code) {
	name, known := codeNames[code]
	if !known {
		name = otherLabel
	}
	m.refused.WithLabelValues(name).Inc()
}

// AuditLost counts an entry that is only in the log.
func (m *accessMetrics) AuditLost() { m.auditLost.Inc() }
