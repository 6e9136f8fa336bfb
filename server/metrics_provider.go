package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

// The closed sets of labels of a provider's calls.
var (
	providerOps = []string{
		"status", "list_instances", "set_desired", "remove", "withdraw", "protect", "complete_hook", "report_unhealthy",
		"findings", "count", otherLabel,
	}
	providerCodes = []string{
		"ok", string(pluginsdk.KindCapacity), string(pluginsdk.KindQuota), string(pluginsdk.KindThrottled),
		string(pluginsdk.KindAuth), string(pluginsdk.KindInvalid), string(pluginsdk.KindTransient),
		string(pluginsdk.KindConflict), string(pluginsdk.KindUnsupported), string(pluginsdk.KindNotFound), otherLabel,
	}
	// callBuckets end at the deadline of a read [s].
	callBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 8, 30}
)

// providerMetrics are what is counted of providers and their plugins.
type providerMetrics struct {
	calls       *prometheus.CounterVec   // provider, op, code
	callSeconds *prometheus.HistogramVec // provider, op: with the code it would be 1,400 series for each provider
	pluginUp    *prometheus.GaugeVec     // provider
	restarts    *prometheus.CounterVec   // provider
	repeats     *prometheus.CounterVec   // provider, op

	mu struct {
		sync.Mutex
		known map[string]bool
	}
}

func newProviderMetrics() *providerMetrics {
	m := &providerMetrics{
		calls:       counter("spillway_provider_calls_total", "Calls to a provider's plugin.", "provider", "op", "code"),
		callSeconds: histogram("spillway_provider_call_seconds", "Duration of calls to a provider's plugin.", callBuckets, "provider", "op"),
		pluginUp:    gauge("spillway_plugin_up_bool", "1 while the provider's plugin answers.", "provider"),
		restarts:    counter("spillway_plugin_restarts_total", "Restarts of the provider's plugin.", "provider"),
		repeats:     counter("spillway_provider_repeats_total", "Reads that were made again after a refusal.", "provider", "op"),
	}
	m.mu.known = map[string]bool{}
	return m
}

// AddProvider makes every series of a provider, at 0.
func (m *providerMetrics) AddProvider(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.known[name] = true
	m.pluginUp.WithLabelValues(name)
	m.restarts.WithLabelValues(name)
	for _, op := range providerOps {
		m.repeats.WithLabelValues(name, op)
		m.callSeconds.WithLabelValues(name, op)
		for _, code := range providerCodes {
			m.calls.WithLabelValues(name, op, code)
		}
	}
}

// RemoveProvider removes every series of a provider. What is still told of it
// afterwards is not shown.
func (m *providerMetrics) RemoveProvider(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.known, name)
	of := prometheus.Labels{"provider": name}
	m.calls.DeletePartialMatch(of)
	m.callSeconds.DeletePartialMatch(of)
	m.pluginUp.DeletePartialMatch(of)
	m.restarts.DeletePartialMatch(of)
	m.repeats.DeletePartialMatch(of)
}

// ProviderCalled counts a call to a plugin; err is nil or one of the provider's
// contract.
func (m *providerMetrics) ProviderCalled(provider, op string, err error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = within(providerCodes, string(pluginsdk.KindOf(err)))
	}
	op = within(providerOps, op)
	m.ofKnown(provider, func() {
		m.calls.WithLabelValues(provider, op, code).Inc()
		m.callSeconds.WithLabelValues(provider, op).Observe(took.Seconds())
	})
}

// ProviderRepeated counts a read that is made again.
func (m *providerMetrics) ProviderRepeated(provider, op string) {
	m.ofKnown(provider, func() { m.repeats.WithLabelValues(provider, within(providerOps, op)).Inc() })
}

// PluginState shows whether a provider's plugin answers.
func (m *providerMetrics) PluginState(provider string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	m.ofKnown(provider, func() { m.pluginUp.WithLabelValues(provider).Set(value) })
}

// PluginRestarted counts a restart.
func (m *providerMetrics) PluginRestarted(provider string) {
	m.ofKnown(provider, func() { m.restarts.WithLabelValues(provider).Inc() })
}

// ofKnown keeps a provider that was removed from coming back.
func (m *providerMetrics) ofKnown(provider string, record func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.known[provider] {
		record()
	}
}
