package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/peertest"
)

// queueExporter tells Prometheus how many jobs wait, or what it is told to say instead.
type queueExporter struct {
	*httptest.Server
	instead atomic.Pointer[string]
}

func (s *gitlabStand) exportQueue() *queueExporter {
	e := &queueExporter{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if page := e.instead.Load(); page != nil {
			_, _ = io.WriteString(w, *page)
			return
		}
		pending := 0
		for _, j := range s.gitlab.Jobs() {
			if j.Status == gitlabtest.Pending {
				pending++
			}
		}
		_, _ = fmt.Fprintf(w, "ci_jobs_waiting %d\n", pending)
	}))
	s.t.Cleanup(e.Close)
	return e
}

// prometheus is a real one, which scrapes the queue, and runners that a file names.
type prometheus struct {
	t       *testing.T
	url     string
	targets string // the file
}

func startPrometheus(t *testing.T, queue string) *prometheus {
	t.Helper()
	program := peertest.Program(t, "prometheus", "no pool was scaled by a real Prometheus")
	dir := t.TempDir()
	p := &prometheus{t: t, url: "http://" + peertest.FreeAddress(t), targets: filepath.Join(dir, "runners.json")}
	p.scrape(nil)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
- {job_name: queue, static_configs: [{targets: ['%s']}]}
- {job_name: runners, file_sd_configs: [{files: ['%s'], refresh_interval: 1s}]}
`, queue, p.targets), 0o600))
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.url, "http://"), "--log.level=error")
	peertest.Start(t, cmd, func() error {
		_, err := p.ask("up{job='queue'}")
		return err
	})
	return p
}

// scrape has it scrape these runners from now on.
func (p *prometheus) scrape(addresses []string) {
	p.t.Helper()
	data, err := json.Marshal([]map[string]any{{"targets": append([]string{}, addresses...)}})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(p.targets+".new", data, 0o600))
	require.NoError(p.t, os.Rename(p.targets+".new", p.targets))
}

// ask returns the one number of a query.
func (p *prometheus) ask(query string) (string, error) {
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if len(answer.Data.Result) != 1 {
		return "", fmt.Errorf("%d results", len(answer.Data.Result))
	}
	value, _ := answer.Data.Result[0].Value[1].(string)
	return value, nil
}

// runnerMetrics is where the runners below a process have their metrics.
func runnerMetrics(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	for _, child := range descendants(t, pid) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "cmdline"))
		args := strings.Split(string(line), "\x00")
		if err != nil || filepath.Base(args[0]) != "minirunnerd" {
			continue // ended, or something else
		}
		for i, arg := range args[:len(args)-1] {
			if arg == "--listen-metrics" {
				addresses = append(addresses, args[i+1])
			}
		}
	}
	return addresses
}

// The alarm-and-Lambda setup with real parts: a Prometheus that knows how many jobs wait
// and run, and nothing else, drives a pool by steps of 3 between 3 and 10. What is no
// number holds it.
func TestB2B3B4_PrometheusAloneDrivesThePool(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	release := filepath.Join(t.TempDir(), "release")
	ids := s.enqueue(12, until(release)+"; echo it ran")
	queue := s.exportQueue()
	p := startPrometheus(t, queue.Listener.Addr().String())
	const query = "ci_jobs_waiting + on() group_left() (sum(gitlab_runner_jobs) or vector(0))"
	require.Eventually(t, func() bool { n, _ := p.ask(query); return n == "12" }, within, 5*poll)
	r := startReplica(t, s.config(fleet{
		policy: "min: 3, need: step, step: 3, step_wait: 1s", max: 10, sidecar: true,
		pool: "mode: observe\ncapability: {tags: [docker], run_untagged: true}\nrunner_token: {file: DIR/sidecar}\nobserve: {drain: sidecar}\n" +
			fmt.Sprintf("count: {every: 10s, means: jobs, prometheus: {url: %q, query: %q}}", p.url, query),
	}, "", ""))
	require.Eventually(t, func() bool { return r.pool().InService == 10 }, within, 5*poll, "%v", r.err)
	for _, step := range []string{"set_desired(3, expected 0)", "set_desired(6, expected 3)", "set_desired(9, expected 6)", "set_desired(10, expected 9)"} {
		require.Contains(t, r.err.String(), step)
	}
	var addresses []string
	require.Eventually(t, func() bool {
		addresses = runnerMetrics(t, r.Process.Pid)
		return len(addresses) == 10
	}, within, 5*poll, "%v", r.err)
	p.scrape(addresses)
	require.Eventually(t, func() bool { n, _ := p.ask("sum(gitlab_runner_jobs)"); return n == "10" }, within, 5*poll)
	require.Eventually(t, func() bool { n, _ := p.ask(query); return n == "12" }, within, 5*poll, "two wait still, and ten run")

	// All of a sudden it is two numbers, and then none: nobody knows that nothing is left.
	queue.say("ci_jobs_waiting{queue=\"a\"} 0\nci_jobs_waiting{queue=\"b\"} 0\n")
	r.awaitCount("answers with 2 series instead of one number")
	touch(t, release) // not before: what runs and what waits are not scraped at once
	s.awaitSuccess(r, ids, "it ran")
	queue.say("ci_jobs_waiting NaN\n")
	r.awaitCount("NaN, which is no number of jobs")
	require.Eventually(t, func() bool { return r.pool().Hold == "hold_stale" }, within, 5*poll, "%v", r.err)
	require.Equal(t, 10, r.pool().Desired, "all of them idle, as far as sidecars know")

	queue.say("ci_jobs_waiting 0\n")
	require.Eventually(t, func() bool { p := r.pool(); return p.Desired == 3 && p.InService == 3 && p.Hold == "" }, within, 5*poll, "%v", r.err)
	require.Eventually(t, func() bool { return r.source("count/linux").Error == "" }, within, 5*poll, "%v", r.err)
	r.stop()
}

func (e *queueExporter) say(page string) { e.instead.Store(&page) }

// awaitCount waits until the source of the count is shown to say that.
func (r *replica) awaitCount(text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Contains(r.source("count/linux").Error, text) }, within, 5*poll, "%v", r.err)
}
