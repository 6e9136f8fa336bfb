package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// tlsMetrics are about certificates. Settings and files are those of the configuration,
// so that there are as many series as it has.
type tlsMetrics struct {
	reloads *prometheus.CounterVec // setting, result
	expiry  *expiryCollector
}

func newTLSMetrics() *tlsMetrics {
	return &tlsMetrics{
		reloads: counter("spillway_tls_reloads_total", "Changes of certificate files, by whether the new contents are in use.", "setting", "result"),
		expiry: &expiryCollector{desc: prometheus.NewDesc("spillway_tls_certificate_expiry_seconds",
			"Time until a certificate in use expires; of a file of authorities the first of them; negative = it has expired.", []string{"setting", "file"}, nil)},
	}
}

func (m *tlsMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.reloads, m.expiry}
}

// AddTLS shows the certificates of a setting from now on.
func (m *tlsMetrics) AddTLS(setting string, source *tlsfiles.Source) {
	for _, result := range []string{"used", "kept"} {
		m.reloads.WithLabelValues(setting, result)
	}
	m.expiry.mu.Lock()
	defer m.expiry.mu.Unlock()
	m.expiry.mu.sources = append(m.expiry.mu.sources, expiring{setting, source})
}

// TLSReloaded counts a change of a setting's files: used, or the ones before kept.
func (m *tlsMetrics) TLSReloaded(setting string, used bool) {
	result := "kept"
	if used {
		result = "used"
	}
	m.reloads.WithLabelValues(setting, result).Inc()
}

type expiring struct {
	setting string
	source  *tlsfiles.Source
}

// expiryCollector computes what is left at each scrape.
type expiryCollector struct {
	desc *prometheus.Desc
	mu   struct {
		sync.Mutex
		sources []expiring
	}
}

// Describe implements prometheus.Collector.
func (c *expiryCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *expiryCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.sources {
		files, m := s.source.Files(), s.source.Current()
		for file, end := range map[string]time.Time{files.Cert: m.NotAfter(), files.CA: m.AuthoritiesEnd} {
			if file != "" && !end.IsZero() {
				ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, time.Until(end).Seconds(), s.setting, file)
			}
		}
	}
}
