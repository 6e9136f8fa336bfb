package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/realrunner"
)

// withoutRunner is what isn't tried where there is no real gitlab-runner.
const withoutRunner = "the whole was not tried with a real gitlab-runner"

// realStand is a gitlabStand whose runners are real ones.
type realStand struct {
	*gitlabStand
	binary string
	logs   string // directory of the runners' logs, one for each instance

	certFile, keyFile string // of the control plane; empty: it has no TLS
}

func newRealStand(t *testing.T) *realStand {
	t.Helper()
	s := &realStand{binary: realrunner.Binary(t, withoutRunner), gitlabStand: newGitLabStand(t, gitlabtest.Options{TraceEvery: time.Second})}
	s.logs = filepath.Join(s.dir, "logs")
	require.NoError(t, os.Mkdir(s.logs, 0o700))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the runners said:\n%s", s.said())
		}
	})
	return s
}

// said is what all runners have written.
func (s *realStand) said() string {
	paths, err := filepath.Glob(filepath.Join(s.logs, "*"))
	require.NoError(s.t, err)
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(s.t, err)
		_, _ = fmt.Fprintf(&all, "== %s\n%s", filepath.Base(path), text)
	}
	return all.String()
}

// theCommand is the command of an instance in a configuration.
var theCommand = regexp.MustCompile(`command: \[[^\]]*\]`)

// serve starts a control plane whose instances are real runners.
func (s *realStand) serve(f fleet, runner realrunner.Options) *replica {
	s.t.Helper()
	command, err := json.Marshal(s.command(runner))
	require.NoError(s.t, err)
	listen, jobRouter := s.listen, s.jobRouter
	if !runner.Router {
		listen, jobRouter = "", ""
	}
	text := theCommand.ReplaceAllLiteralString(s.config(f, listen, jobRouter), "command: "+string(command))
	require.Contains(s.t, text, s.binary)
	if s.certFile != "" {
		text = strings.Replace(text, "listen: {", fmt.Sprintf("listen: {tls: {cert_file: %q, key_file: %q}, ", s.certFile, s.keyFile), 1)
	}
	return startReplica(s.t, text)
}

// command makes a runner of an instance. Each needs a system_id of its own, which
// runners on one machine would all make from the machine's id.
func (s *realStand) command(o realrunner.Options) []string {
	o.Token, o.Name, o.Metrics = s.token, "{instance}", "127.0.0.1:{metrics_port}"
	if o.Router {
		o.Labels = map[string]string{"spillway-pool": "linux", "spillway-instance": "{instance}"}
	}
	return []string{"sh", "-c", fmt.Sprintf(`id=r_$(printf %%s {instance} | tail -c 12)
printf %%s "$id" > .runner_system_id
cat > config.toml <<'END'
%sEND
exec %s run --config {work_dir}/config.toml --working-directory {work_dir} > %s/{instance} 2>&1`, o.Config("{work_dir}"), s.binary, s.logs)}
}

// gated is a job that ends when gate is opened.
func (s *realStand) gated() (id int64, open func()) {
	s.t.Helper()
	gate := filepath.Join(s.t.TempDir(), "gate")
	script := "echo it has begun; until [ -e " + gate + " ]; do sleep 0.1; done; echo it ran"
	return s.enqueue(1, script)[0], func() {
		s.t.Helper()
		require.NoError(s.t, os.WriteFile(gate, nil, 0o600))
	}
}

// await waits until a job is as ok wants it.
func (s *realStand) await(r *replica, id int64, what string, ok func(gitlabtest.JobView) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	_, err := s.gitlab.WaitFor(ctx, id, what, ok)
	require.NoError(s.t, err, "%v", r.err)
}

// awaitEach waits until each job has run, and its log is in GitLab.
func (s *realStand) awaitEach(r *replica, ids ...int64) {
	s.t.Helper()
	for _, id := range ids {
		s.await(r, id, "success", func(v gitlabtest.JobView) bool { return v.Status == gitlabtest.Success })
	}
	s.awaitSuccess(r, ids, "it ran")
}

// awaitStreaming waits until the log of a job that runs is in GitLab.
func (s *realStand) awaitStreaming(r *replica, id int64) {
	s.t.Helper()
	s.await(r, id, "a log while it runs", func(v gitlabtest.JobView) bool {
		return v.Status == gitlabtest.Running && strings.Contains(v.Trace, "it has begun")
	})
}

// awaitSize waits until the pool wants so many instances, and has them.
func (r *replica) awaitSize(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { p := r.pool(); return p.Desired == n && p.InService == n }, within, 100*time.Millisecond, "%v", r.err)
}

// busyAndIdle runs jobs while one of them is held, and shows that what goes meanwhile is
// what idles: the instance with that job is the only one that stays.
func (s *realStand) busyAndIdle(r *replica) {
	s.t.Helper()
	held, open := s.gated()
	quick := s.enqueue(4, "sleep 0.5; echo it ran")
	s.awaitStreaming(r, held)
	s.awaitEach(r, quick...)
	r.awaitSize(1)
	require.Contains(s.t, r.must("runners"), "busy")
	open()
	s.awaitEach(r, held)
	r.awaitSize(0)
	require.Contains(s.t, r.err.String(), "remove(", "by name")
}

// Jobs of GitLab start instances, on which unmodified runners fetch them by GetJob.
func TestRealRunnerRoutedByTheFrontProxy(t *testing.T) {
	for _, scheme := range []string{"grpc", "ws"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := newRealStand(t)
			f := s.route(scheme, true)
			r := s.serve(f, realrunner.Options{URL: f.url, Router: true})
			s.busyAndIdle(r)
			requireNoDirectPolls(t, s.gitlabStand)
			require.NotContains(t, s.said(), "unhealthy")
			r.stop()
		})
	}
}

// On one path an instance goes when GitLab and the runner's own metrics agree.
func TestRealRunnerRoutedOnOnePath(t *testing.T) {
	t.Parallel()
	s := newRealStand(t)
	f := s.route("grpc", false)
	r := s.serve(f, realrunner.Options{URL: f.url, Router: true})
	s.busyAndIdle(r)
	requireNoDirectPolls(t, s.gitlabStand)
	r.stop()
}

// Nothing is changed on the runners, but that a sidecar stands beside each.
func TestRealRunnerObservedBesideASidecar(t *testing.T) {
	t.Parallel()
	s := newRealStand(t)
	r := s.serve(fleet{
		gitlab: "api_token: {file: DIR/api}\njobs: {every: 1s}", sidecar: true, max: 3,
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nrunner_token: {file: DIR/sidecar}\nobserve: {drain: sidecar}",
	}, realrunner.Options{URL: s.url})
	s.busyAndIdle(r)
	require.Contains(t, s.said(), "graceful shutdown", "by SIGQUIT")
	r.stop()
}

// Nothing but the runner's own metrics tells of its jobs. One without a job says so by a
// series of the state idle, which it has since it first asked for a job.
func TestRealRunnerObservedByItsMetrics(t *testing.T) {
	t.Parallel()
	s := newRealStand(t)
	r := s.serve(fleet{
		max: 1, policy: "min: 1",
		pool: "mode: observe\ncapability: {tags: [docker]}\nobserve: {metrics: {every: 1s}}",
	}, realrunner.Options{URL: s.url})
	s.awaitRunner(r, "0/1", "ready")
	require.Contains(t, s.page(), "gitlab_runner_concurrent 1")
	require.NotRegexp(t, `(?m)^gitlab_runner_jobs\{.*\} [1-9]`, s.page())
	held, open := s.gated()
	s.awaitStreaming(r, held)
	s.awaitRunner(r, "1/1", "busy")
	require.Regexp(t, `(?m)^gitlab_runner_jobs\{.*state="running".*\} 1$`, s.page())
	open()
	s.awaitEach(r, held)
	s.awaitRunner(r, "0/1", "ready")
	require.Regexp(t, `(?m)^gitlab_runner_jobs\{.*state="idle".*\} 0$`, s.page())
	require.NotRegexp(t, `(?m)^gitlab_runner_jobs\{.*\} [1-9]`, s.page())
	require.Equal(t, 1, r.pool().InService, "nobody can drain it")
	r.stop()
}

// awaitRunner waits until the list of runners has one with these jobs and in this state.
func (s *realStand) awaitRunner(r *replica, jobs, state string) {
	s.t.Helper()
	like := regexp.MustCompile(`(?m)^\S+ +linux-\S+ +linux +` + jobs + ` +` + state + ` `)
	require.Eventually(s.t, func() bool { return like.MatchString(r.must("runners")) }, within, 100*time.Millisecond, "%v", r.err)
}

var metricsAt = regexp.MustCompile(`Metrics server listening.*?(127\.0\.0\.1:\d+)`)

// page is the metrics of the only runner.
func (s *realStand) page() string {
	s.t.Helper()
	at := metricsAt.FindStringSubmatch(s.said())
	require.NotNil(s.t, at, s.said())
	response, err := http.Get("http://" + at[1] + "/metrics")
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return string(body)
}

// A control plane that is stopped sends the runners that wait to GitLab: they ask it
// with the same poll.
func TestRealRunnerGoesToGitLabWhenTheControlPlaneStops(t *testing.T) {
	t.Parallel()
	s := newRealStand(t)
	f := s.route("grpc", false)
	f.policy = "paused: true"
	r := s.serve(f, realrunner.Options{URL: f.url, Router: true})
	outside := realrunner.Start(t, s.binary, realrunner.Options{
		URL: f.url, Token: s.token, Name: "outside", Router: true, Labels: map[string]string{"spillway-pool": "linux"},
	})
	require.Eventually(t, func() bool { return strings.Contains(r.must("runners"), "ready") }, within, 100*time.Millisecond, "%v", r.err)
	require.Contains(t, outside.Log(), "Using job router at")
	requireNoDirectPolls(t, s.gitlabStand)
	r.stop()
	s.awaitEach(r, s.enqueue(1, "echo it ran")...)
	require.Contains(t, outside.Log(), "Job router is disabled, falling back")
	require.NotContains(t, outside.Log(), "circuit breaker")
	require.NotContains(t, outside.Log(), "unhealthy")
}
