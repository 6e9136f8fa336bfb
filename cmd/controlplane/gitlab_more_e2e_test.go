package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// The lists come so seldom that all that happens is a webhook's work. One without the
// secret does nothing.
func TestAWebhookStartsAnInstance(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	r := startReplica(t, s.config(fleet{
		gitlab: "api_token: {file: DIR/api}\njobs: {every: 10m}\nwebhook: {secret: {file: DIR/hook}}", sidecar: true, max: 2,
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nrunner_token: {file: DIR/sidecar}\nobserve: {drain: sidecar}",
	}, s.listen, ""))
	require.Eventually(t, func() bool { return r.source("gitlab/jobs").GoodAt != "" }, within, 5*poll, "%v", r.err)

	hook := "http://" + s.listen + controlplane.WebhookPath
	s.gitlab.AddWebhook(hook, "not the secret")
	unheard := s.enqueue(1, "echo it ran")
	require.Eventually(t, func() bool { return len(s.gitlab.HookCalls()) > 0 }, within, poll, "%v", r.err)
	require.Equal(t, http.StatusUnauthorized, s.gitlab.HookCalls()[0].Status)
	require.Zero(t, r.pool().Desired)
	require.Contains(t, r.must("demand"), "No job waits.")

	s.gitlab.AddWebhook(hook, "a-secret-of-a-test")
	heard := s.enqueue(1, "echo it ran")
	began := time.Now()
	require.Eventually(t, func() bool { return r.pool().Desired > 0 }, within, poll, "%v", r.err)
	t.Logf("webhook to instance: %s", time.Since(began))
	s.awaitSuccess(r, append(unheard, heard...), "it ran")
	r.awaitEmpty()
	r.stop()
}

// feed is a source as spillwayctl has it.
type feed struct {
	Name   string `json:"name"`
	GoodAt string `json:"good_at"` // empty = never
	Error  string `json:"error"`
}

func (r *replica) source(name string) feed {
	r.t.Helper()
	var list struct {
		Sources []feed `json:"sources"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("sources", "-o", "json")), &list))
	for _, f := range list.Sources {
		if f.Name == name {
			return f
		}
	}
	return feed{Error: "there is no source " + name}
}

// A runner changes in GitLab while its fleet runs: it is paused, takes other tags, and
// is deleted. C20, and what people see of it.
func TestC20_TheFleetFollowsItsRunner(t *testing.T) {
	t.Parallel()
	s := newGitLabStand(t, gitlabtest.Options{})
	r := startReplica(t, s.config(fleet{
		gitlab: "api_token: {file: DIR/api}\njobs: {every: 1s}", sidecar: true, max: 1, idleTime: time.Hour,
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nrunner_token: {file: DIR/sidecar}\nobserve: {drain: sidecar}",
	}, "", ""))
	release := filepath.Join(t.TempDir(), "release")
	first := s.enqueue(1, until(release)+"; echo it ran")
	_, err := s.gitlab.Wait(t.Context(), first[0], gitlabtest.Running)
	require.NoError(t, err)
	waiting := s.enqueue(1, "echo it ran")

	before := spillway.Capability{Origin: s.url, Type: spillway.InstanceType, Tags: []string{"docker"}, RunUntagged: true}
	s.requireShown(r, before.Fingerprint(), waiting[0])
	for _, name := range []string{"gitlab/jobs", "gitlab/runners"} {
		require.Empty(t, r.source(name).Error, name)
		require.NotEmpty(t, r.source(name).GoodAt, name)
	}

	s.gitlab.PauseRunner(s.runner, true)
	r.awaitFinding("1 paused")
	require.Eventually(t, func() bool { return strings.Contains(r.must("runners"), "paused") }, within, 5*poll, "%v", r.err)
	touch(t, release)
	s.awaitSuccess(r, first, "it ran")

	s.gitlab.SetRunner(s.runner, func(spec *gitlabtest.RunnerSpec) { spec.Tags = []string{"docker", "arm"} })
	after := before
	after.Tags = []string{"arm", "docker"}
	require.Eventually(t, func() bool {
		list, err := r.ctl("runners", "--fingerprint", after.Fingerprint().String())
		return err == nil && strings.Contains(list, "linux")
	}, within, 5*poll, "%v", r.err)
	require.Eventually(t, func() bool { return strings.Contains(r.must("pools"), "arm,docker") }, within, 5*poll, "%v", r.err)
	s.gitlab.PauseRunner(s.runner, false)
	s.awaitSuccess(r, waiting, "it ran")
	arm := s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{"arm"}, Script: []string{"echo it ran"}})
	s.awaitSuccess(r, []int64{arm}, "it ran")

	require.Equal(t, 1, r.pool().Desired)
	s.gitlab.DeleteRunner(s.runner)
	s.enqueue(1, "echo nobody runs it")
	r.awaitEmpty()
	r.awaitFinding("1 are deleted")
	r.stop()
}

// requireShown: what runs and what waits is listed by the fingerprint, and not by
// another one.
func (s *gitlabStand) requireShown(r *replica, fp spillway.Fingerprint, waiting int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		jobs, jobsErr := r.ctl("demand", "--fingerprint", fp.String())
		runners, runnersErr := r.ctl("runners", "--fingerprint", fp.String()[:12])
		return jobsErr == nil && runnersErr == nil && strings.Contains(jobs, fmt.Sprint(waiting)) && strings.Contains(runners, "busy")
	}, within, 5*poll, "%v", r.err)
	other := spillway.Capability{Origin: s.url, Tags: []string{"other"}}.Fingerprint().String()
	for _, what := range []string{"demand", "runners"} {
		out, err := r.ctl(what, "--fingerprint", other)
		require.Error(s.t, err)
		require.Contains(s.t, out, "no pool has the fingerprint")
	}
}

func (r *replica) awaitFinding(text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Contains(r.pool().Finding, text) }, within, 5*poll, "%v\n%v", r.pool(), r.err)
}
