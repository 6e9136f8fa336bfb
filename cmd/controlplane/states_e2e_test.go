package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A17: a job can be taken back in each state, at either replica. It stays so, whatever
// comes later, and what of it runs is ended.
func TestA17_CanceledInEachState(t *testing.T) {
	t.Parallel()
	shows(t, "A17")
	s := newSteadyStand(t, "admission: {controllers: [{name: image-policy, scope: project, projects: [7], deadline: 2m}]}\n", handPool{"linux", linuxPool})
	policy := controller(t, "admission-image-policy", s.a().api, "-allow", "ruby:*")
	cancel := func(r *replica, id, is string) {
		t.Helper()
		require.Equal(t, is, r.await(id, is).State)
		r.must("jobs", "cancel", id, "--reason", "not wanted")
		rec := s.a().await(id, "canceled")
		require.Equal(t, []string{"job_canceled", "not wanted"}, []string{rec.Result.Reason, rec.Result.Detail})
		require.Equal(t, is, rec.Transitions[len(rec.Transitions)-2].State)
	}

	s.a().submit(job{"id": "pending", "script": "true"})
	cancel(s.b(), "pending", "pending")

	require.NoError(t, policy.Process.Signal(syscall.SIGSTOP))
	s.b().submit(job{"id": "routing", "script": "true", "project": 7, "image": "ruby:3.3"})
	cancel(s.b(), "routing", "routing")
	require.NoError(t, policy.Process.Signal(syscall.SIGCONT))

	s.b().submit(job{"id": "admitted", "script": "true", "project": 7, "image": "ruby:3.3"})
	cancel(s.b(), "admitted", "admitted")

	m := s.machine("a", "linux", "m1")
	m.freeze(t)
	ran := filepath.Join(t.TempDir(), "ran")
	s.b().submit(job{"id": "assigned", "script": "sleep 1000; touch " + ran})
	cancel(s.b(), "assigned", "assigned")
	m.thaw(t)

	pid := filepath.Join(t.TempDir(), "pid")
	s.b().submit(job{"id": "running", "script": "echo $$ > " + pid + "; trap '' TERM; while :; do sleep 0.1; done"})
	s.b().await("running", "running")
	require.Eventually(t, func() bool { text, _ := os.ReadFile(pid); return len(text) > 0 }, within, poll)
	text, err := os.ReadFile(pid)
	require.NoError(t, err)
	shell, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	cancel(s.b(), "running", "running")
	requireGone(t, []int{shell})

	// What has ended stays as it is; and the machine has been let go of each time.
	s.b().submit(job{"id": "completed", "script": "true"})
	require.Equal(t, []string{"pending", "assigned", "running", "completed"}, s.b().await("completed", "completed").way())
	require.Contains(t, s.b().must("jobs", "cancel", "completed"), "completed")
	for _, id := range []string{"pending", "routing", "admitted", "assigned", "running"} {
		require.Equal(t, "canceled", s.a().record(id).State)
	}
	require.NoFileExists(t, ran)
}

// A17: no job stays in a state for ever, and each end has its reason.
func TestA17_EveryEndHasAReason(t *testing.T) {
	t.Parallel()
	shows(t, "A17")
	s := newSteadyStand(t, "", handPool{"linux", linuxPool})
	s.machine("a", "linux", "m1")
	s.b().submit(
		job{"id": "nowhere", "tags": []string{"solaris"}, "script": "true"},
		job{"id": "fails", "script": "exit 9"},
		job{"id": "long", "script": "sleep 1000", "timeout": "1s"},
		job{"id": "done", "script": "true"},
	)
	for id, end := range map[string]struct {
		state, reason, detail string
		exitCode              int
	}{
		"nowhere": {"rejected", "unmatched", "tag", 0},
		"fails":   {"failed", "script_failure", "exit code 9", 9},
		"long":    {"failed", "job_execution_timeout", "the time limit of 1s was reached", 0},
		"done":    {"completed", "", "", 0},
	} {
		rec := s.a().await(id, end.state)
		require.Equal(t, end.reason, rec.Result.Reason, id)
		require.Contains(t, rec.Result.Detail, end.detail, id)
		if id != "long" { // however its shell came to its end
			require.Equal(t, end.exitCode, rec.Result.ExitCode, id)
		}
	}
	require.Equal(t, []string{"pending", "rejected"}, s.a().record("nowhere").way())
}
