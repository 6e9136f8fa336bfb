package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// A GitLab fleet as it is today, watched and scaled: from zero by the queue, and back
// to zero by sidecars.
func TestObserveWithSidecars(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	r := startReplica(t, s.config(fleet{
		gitlab: "api_token: {file: DIR/api}\njobs: {every: 1s}", sidecar: true, max: 3,
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nrunner_token: {file: DIR/sidecar}\nobserve: {drain: sidecar}",
	}, "", ""))
	ids := s.enqueue(6, "sleep 0.5; echo it ran")
	s.awaitSuccess(r, ids, "it ran")
	r.awaitEmpty()
	r.stop()
}

// Without a sidecar and without a hook nothing can tell a runner to stop: the pool
// grows, and never shrinks.
func TestC20_ObserveWithoutADrainNeverScalesIn(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	r := startReplica(t, s.config(fleet{
		gitlab: "api_token: {file: DIR/api}\njobs: {every: 1s}", max: 2,
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nobserve: {metrics: {every: 1s}}",
	}, "", ""))
	release := filepath.Join(t.TempDir(), "release")
	ids := s.enqueue(4, until(release)+"; echo it ran")
	require.Eventually(t, func() bool { return r.pool().InService == 2 }, within, 10*poll, "%v", r.err)
	touch(t, release)
	s.awaitSuccess(r, ids, "it ran")
	require.Eventually(t, func() bool {
		p := r.pool()
		return p.Hold == "cannot_drain" && p.Desired == 2 && p.InService == 2
	}, within, 10*poll, "%v", r.err)
	r.stop()
}

// route is a fleet of unmodified runners whose job router is Spillway.
func (s *gitlabStand) route(scheme string, front bool) fleet {
	f := fleet{
		max: 3, url: "http://" + s.listen,
		command: []string{"--router", "--labels", "spillway-pool=linux,spillway-instance={instance}"},
		gitlab:  "route: {server_url: '" + scheme + "://" + s.jobRouter + "', front: true}",
		pool:    "mode: route\ncapability: {tags: [docker], run_untagged: true}\ngitlab: {token: {file: DIR/runner}}",
	}
	if scheme == "ws" {
		f.gitlab = "route: {server_url: 'ws://" + s.listen + "/runners/router', front: true}"
	}
	if !front {
		f.url = s.ingress()
		f.gitlab = "api_token: {file: DIR/api}\njobs: {every: 1s}\nroute: {server_url: '" + scheme + "://" + s.jobRouter + "'}"
		f.pool = "mode: route\ngitlab: {runner_id: RUNNER, token: {file: DIR/runner}}\nobserve: {metrics: {every: 1s}}"
	}
	return f
}

// From zero and without a token of the API: one job is asked for and kept until a
// machine is there. Then machines fetch theirs by GetJob, and go when they are idle.
func TestRouteAsFrontProxy(t *testing.T) {
	for _, scheme := range []string{"grpc", "ws"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := newGitLabStand(t, gitlabtest.Options{})
			r := startReplica(t, s.config(s.route(scheme, true), s.listen, s.jobRouter))
			ids := s.enqueue(6, "sleep 0.5; echo it ran")
			s.awaitSuccess(r, ids, "it ran")
			r.awaitEmpty()
			requireNoDirectPolls(t, s)
			r.stop()
		})
	}
}

// Runners without the feature flag ask GitLab through the proxy, which knows what each
// of them has; the job that was kept for the pool at zero goes to the first that asks.
func TestRouteOfRunnersThatAskDirectly(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	f := s.route("grpc", true)
	f.command = f.command[1:] // not --router
	r := startReplica(t, s.config(f, s.listen, s.jobRouter))
	s.awaitSuccess(r, s.enqueue(6, "sleep 0.5; echo it ran"), "it ran")
	r.awaitEmpty()
	r.stop()
}

// An ingress sends one path here; everything else that runners say goes to GitLab.
func TestRouteOnOnePath(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	r := startReplica(t, s.config(s.route("grpc", false), s.listen, s.jobRouter))
	ids := s.enqueue(6, "sleep 0.5; echo it ran")
	s.awaitSuccess(r, ids, "it ran")
	r.awaitEmpty()
	requireNoDirectPolls(t, s)
	r.stop()
}

// requireNoDirectPolls: the runners asked their router, and only that asked GitLab.
func requireNoDirectPolls(t *testing.T, s *gitlabStand) {
	t.Helper()
	polls := s.gitlab.CallsTo(gitlabtest.RouteRequestJob)
	require.NotEmpty(t, polls)
	for _, c := range polls {
		require.NotContains(t, c.Header.Get("User-Agent"), "gitlab-runner", "a runner asked GitLab itself")
	}
}
