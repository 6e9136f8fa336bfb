package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// refused waits until GitLab has a job as failed, and returns its log. It must have failed
// for no fault of its own, and no machine may have begun it.
func (s *tokenStand) refused(id int64, ran string) string {
	s.t.Helper()
	view, err := s.gitlab.Wait(s.t.Context(), id, gitlabtest.Failed)
	require.NoError(s.t, err)
	require.Equal(s.t, "runner_system_failure", view.FailureReason)
	require.Zero(s.t, view.RetriedAs, "GitLab does not try it again by itself")
	_, err = os.Stat(ran)
	require.ErrorIs(s.t, err, os.ErrNotExist, "its script was run")
	return view.Trace
}

// controllerThere is how the status of admission has a controller of which some are there.
var controllerThere = regexp.MustCompile(`(?m)^image-policy +\S+ +[1-9]`)

// awaitController waits until every replica knows whether the controller is there.
func (s *tokenStand) awaitController(there bool) {
	s.t.Helper()
	for _, r := range s.replicas {
		status := func() string { return r.must("admission", "status") }
		require.Eventually(s.t, func() bool { return controllerThere.MatchString(status()) == there }, within, 5*poll, "%v\n%v", lazily(status), r.err)
	}
}

// A8 for GitLab's jobs: what a controller refuses is failed in GitLab with the reason in
// its log, and no machine begins it; so is what no controller answers for. That holds for
// machines that ask their job router and for those that ask GitLab through the front
// proxy, wherever the controller is connected.
func TestA8_GitLabsJobsAreReviewedBeforeTheyAreHandedOver(t *testing.T) {
	t.Parallel()
	shows(t, "A8")
	s := newTokenStand(t, `admission:
  controllers: [{name: image-policy, scope: instance, deadline: 10s}]
`, tokenPool{"routed", "docker", "priority: 0"}, tokenPool{"direct", "shell", "priority: 0"})
	policy := controller(t, "admission-image-policy", s.replicas["a"].api, "-allow", "ruby:*")
	s.awaitController(true)
	s.runner("b", "routed", "--router")
	s.runner("b", "direct")
	dir := t.TempDir()
	job := func(tag, image, name string) (id int64, ran string) {
		ran = filepath.Join(dir, tag+name)
		return s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{tag}, Image: image, Script: []string{fmt.Sprintf("touch %q; echo it ran", ran)}}), ran
	}
	for _, tag := range []string{"docker", "shell"} {
		bad, ran := job(tag, "miner:1", "bad")
		require.Contains(t, s.refused(bad, ran), "admission controller image-policy: image miner:1 is not allowed; allowed are ruby:*")
		good, ran := job(tag, "ruby:3.3", "good")
		view, err := s.gitlab.Wait(t.Context(), good, gitlabtest.Success)
		require.NoError(t, err)
		require.Contains(t, view.Trace, "it ran")
		require.FileExists(t, ran)
	}
	require.NoError(t, policy.Process.Signal(syscall.SIGTERM))
	_ = policy.Wait()
	s.awaitController(false)
	for _, tag := range []string{"docker", "shell"} {
		late, ran := job(tag, "ruby:3.3", "late")
		require.Contains(t, s.refused(late, ran), "admission controller image-policy is not connected")
	}
	s.awaitMetric("b", `spillway_gitlab_jobs_total\{outcome="refused"\} [1-9]`)
}
