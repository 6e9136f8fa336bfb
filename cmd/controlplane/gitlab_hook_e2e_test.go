package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/asgstub"
)

// hooked is a fleet that is only watched: what is idle is told by the runners' metrics
// and by GitLab, and a terminating hook has runners take no more jobs.
func (s *gitlabCloud) hooked() fleet {
	return fleet{
		provider: s.aws(), max: 3, gitlab: "api_token: {file: DIR/api}\njobs: {every: 1s}",
		pool: "mode: observe\ngitlab: {runner_id: RUNNER}\nobserve: {drain: hook, metrics: {targets_file: DIR/targets.json, every: 1s}}",
	}
}

func TestObserveDrainsByTheGroupsHook(t *testing.T) {
	t.Parallel()
	s := newGitLabCloud(t, asgstub.HookConfig{Name: "drain", Transition: asgstub.Terminating, HeartbeatTimeout: 60})
	r := startReplicaWith(t, keys("one"), s.config(s.hooked(), "", ""))
	soon, late := filepath.Join(t.TempDir(), "soon"), filepath.Join(t.TempDir(), "late")
	long := s.enqueue(1, until(late)+"; echo it ran")
	short := s.enqueue(2, until(soon)+"; echo it ran")
	var where []string // of each job
	for _, id := range slices.Concat(long, short) {
		view, err := s.gitlab.WaitFor(t.Context(), id, "to say where it runs", func(v gitlabtest.JobView) bool { return ranOn(&v) != "" })
		require.NoError(t, err)
		where = append(where, ranOn(&view))
	}
	touch(t, soon)
	s.awaitSuccess(r, short, "it ran")
	require.Eventually(t, func() bool { return s.cloud.Live(linux) == 1 }, within, 5*poll, "%v", r.err)
	require.ElementsMatch(t, where[1:], s.completed(), "each of the two waited for its hook")
	busy, _ := s.gitlab.Job(long[0])
	require.Equal(t, gitlabtest.Running, busy.Status)
	require.Equal(t, where[0], s.cloud.Existing(linux)[0].ID, "the busy one stays")

	touch(t, late)
	s.awaitSuccess(r, long, "it ran")
	s.awaitScaledIn(r, 0)
	require.ElementsMatch(t, where, s.completed())
	r.stop()
}

// completed are the instances whose hook was completed, each once.
func (s *gitlabCloud) completed() (ids []string) {
	for _, a := range s.gate.arrivals() {
		if id := a.instance(); a.op == completeHook && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Nothing would tell the runner of an instance that goes.
func TestObserveWithoutTheHookNeverScalesIn(t *testing.T) {
	t.Parallel()
	s := newGitLabCloud(t)
	r := startReplicaWith(t, keys("one"), s.config(s.hooked(), "", ""))
	release := filepath.Join(t.TempDir(), "release")
	ids := s.enqueue(2, until(release)+"; echo it ran")
	require.Eventually(t, func() bool { return r.pool().InService == 2 }, within, 5*poll, "%v", r.err)
	touch(t, release)
	s.awaitSuccess(r, ids, "it ran")
	require.Eventually(t, func() bool {
		p := r.pool()
		return p.Hold == "cannot_drain" && p.InService == 2 && strings.Contains(p.Finding, "no terminating hook")
	}, within, 5*poll, "%v", r.err)
	require.Equal(t, 2, s.cloud.Live(linux))
	require.Zero(t, s.cloud.CountOf(terminate))
	r.stop()
}
