package collect_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/server"
)

const (
	// scrapeEvery is how often the real Prometheus looks.
	scrapeEvery = "200ms"
	// peerPatience is longer than its pause of five seconds before it looks at all.
	peerPatience = 100 * time.Second
)

// fakeRunner exports what gitlab-runner does: its jobs only while it has some.
type fakeRunner struct {
	*httptest.Server

	jobs *promclient.GaugeVec
}

func newFakeRunner(t *testing.T) *fakeRunner {
	t.Helper()
	gauge := func(name string, labels ...string) *promclient.GaugeVec {
		return promclient.NewGaugeVec(promclient.GaugeOpts{Name: name, Help: "A value."}, labels)
	}
	f := &fakeRunner{jobs: gauge("gitlab_runner_jobs", "runner", "system_id", "state")}
	concurrent, version := gauge("gitlab_runner_concurrent"), gauge("gitlab_runner_version_info", "version")
	concurrent.WithLabelValues().Set(4)
	version.WithLabelValues("18.9.0").Set(1)
	registry := promclient.NewRegistry()
	registry.MustRegister(f.jobs, concurrent, version)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeRunner) run(runner string, n int) {
	f.jobs.WithLabelValues(runner, "s_1", "running").Set(float64(n))
}

// ourOwn is the control plane's own page of metrics, with some demand in it.
func ourOwn(t *testing.T) *httptest.Server {
	t.Helper()
	m := server.NewMetrics("test")
	m.AddProvider("mine")
	m.AddPool(spillway.Pool{Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 1, Provider: "mine", Group: "linux"})
	m.JobAssigned("linux", time.Second)
	m.JobFinished(spillway.Failed, spillway.ScriptFailure)
	m.DemandObserved(server.DemandView{Signals: []spillway.Signal{spillway.NewSignal(spillway.Fingerprint{1}, 7, 2, time.Now())}})
	s := httptest.NewServer(server.NewHTTPHandler(m, nil))
	t.Cleanup(s.Close)
	return s
}

// startPrometheus starts the real one, which scrapes the targets.
func startPrometheus(t *testing.T, targets ...string) (url string) {
	t.Helper()
	program := peertest.Program(t, "prometheus", "queries were not asked of a real Prometheus")
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s}\nscrape_configs:\n- job_name: all\n  static_configs: [{targets: ['%s']}]\n",
		scrapeEvery, strings.Join(targets, "','"))
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	address := peertest.FreeAddress(t)
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	peertest.Start(t, cmd, func() error {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
	return "http://" + address
}

func hostOf(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// Field case C12 against the real thing: what an idle runner, a gone one and a bad
// query look like through Prometheus.
func TestC12_RealPrometheus(t *testing.T) {
	t.Parallel()
	runner, own := newFakeRunner(t), ourOwn(t)
	url := startPrometheus(t, hostOf(runner.Server), hostOf(own))
	ask := func(q string) (pluginsdk.Count, error) {
		o := collect.PrometheusOptions{URL: url, Query: q, Transport: http.DefaultTransport}
		return prometheus(t, o).Count(t.Context())
	}
	becomes := func(q string, want float64) {
		t.Helper()
		var count pluginsdk.Count
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var err error
			count, err = ask(q)
			require.NoError(c, err)
			require.InDelta(c, want, count.Jobs, 0, q)
		}, peerPatience, often)
		require.WithinDuration(t, time.Now(), count.At, peerPatience)
	}
	// A look that comes too late leaves no values for a moment.
	says := func(q string, kind pluginsdk.Kind, sentence string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := ask(q)
			require.Equal(c, kind, pluginsdk.KindOf(err), q)
			require.ErrorContains(c, err, sentence)
		}, peerPatience, often)
	}
	const alive = "sum(gitlab_runner_jobs) or 0 * sum(gitlab_runner_concurrent)"
	becomes("sum(up)", 2)
	becomes(`sum(spillway_demand_jobs{fingerprint!="other"})`, 7)

	says("sum(gitlab_runner_jobs)", pluginsdk.KindTransient, "no value is not 0")
	becomes(alive, 0)
	runner.run("a", 2)
	runner.run("b", 1)
	becomes(alive, 3)
	becomes("scalar(sum(gitlab_runner_jobs))", 3)

	says("gitlab_runner_jobs", pluginsdk.KindInvalid, "2 series instead of one number")
	says("gitlab_runner_jobs[1m]", pluginsdk.KindInvalid, "over a range of time")
	says(`"three"`, pluginsdk.KindInvalid, "a string instead of a number")
	says("vector(0) / 0", pluginsdk.KindInvalid, "NaN, which is no number of jobs")
	says("scalar(no_such_metric)", pluginsdk.KindInvalid, "NaN, which is no number of jobs")
	says("1 / 0", pluginsdk.KindInvalid, "+Inf, which is no number of jobs")
	says("-sum(gitlab_runner_jobs)", pluginsdk.KindInvalid, "no fewer than 0 jobs")
	says("sum(", pluginsdk.KindInvalid, "refuses it: ")
	_, err := prometheus(t, collect.PrometheusOptions{URL: url + "/elsewhere"}).Count(t.Context())
	require.ErrorContains(t, err, "answers with status 404")
	_, err = prometheus(t, collect.PrometheusOptions{URL: own.URL}).Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrInvalid, "another server than Prometheus")

	runner.Close()
	require.Eventually(t, func() bool { _, err := ask(alive); return err != nil }, peerPatience, often, "a runner that is gone has no value")
	says(alive, pluginsdk.KindTransient, "no value is not 0")
}

// The runners' own pages, as the library that they use writes them.
func TestExportersReadARealPage(t *testing.T) {
	t.Parallel()
	runner := newFakeRunner(t)
	e := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": hostOf(runner.Server)}})
	require.Zero(t, scrapeOf(t, e, "i-1").Jobs)
	runner.run("a", 2)
	runner.run("b", 1)
	require.Eventually(t, func() bool { return scrapeOf(t, e, "i-1").Jobs == 3 }, patience, often)
	require.Equal(t, []string{"s_1"}, scrapeOf(t, e, "i-1").Systems)

	own := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": hostOf(ourOwn(t))}})
	s := statusOf(t, own, func(s collect.SourceStatus) bool { return s.Err != "" })
	require.Contains(t, s.Err, "none of a GitLab runner", "our own page isn't a runner's")
}

func TestOurMetricsPassPromtool(t *testing.T) {
	t.Parallel()
	program := peertest.Program(t, "promtool", "our page of metrics was not checked by Prometheus's own tool")
	resp, err := http.Get(ourOwn(t).URL + "/metrics")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	check := exec.CommandContext(t.Context(), program, "check", "metrics")
	check.Stdin = bytes.NewReader(page)
	out, err := check.CombinedOutput()
	var failed *exec.ExitError
	require.True(t, err == nil || errors.As(err, &failed), "%v", err)
	for line := range strings.Lines(string(out)) {
		// The name is one that GitLab's dashboards look for.
		require.Contains(t, line, `gitlab_runner_pool_idle_count non-histogram and non-summary metrics should not have "_count" suffix`)
	}
}
