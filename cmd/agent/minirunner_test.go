package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/peertest"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// A runner that gets a real job from a GitLab: its job is seen, the drain ends neither it
// nor the runner before its time, and nothing takes the next job.
func TestB7_ADrainedRunnerFinishesTheJobThatGitLabGaveIt(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds a runner")
	}
	runner := filepath.Join(t.TempDir(), "minirunnerd")
	output, err := exec.Command("go", "build", "-o", runner, "github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunnerd").CombinedOutput()
	require.NoError(t, err, string(output))
	lab := gitlabtest.New(gitlabtest.Options{})
	server := httptest.NewServer(lab)
	defer server.Close()
	project := lab.AddProject("group/project")
	_, runnerToken := lab.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	goOn := filepath.Join(t.TempDir(), "go-on")
	enqueue := func() int64 {
		return lab.Enqueue(gitlabtest.JobSpec{Project: project, Script: []string{"while [ ! -e " + goOn + " ]; do sleep 0.02; done"}})
	}
	first := enqueue()

	d := startDrainer(t)
	metrics := peertest.FreeAddress(t)
	p := startProcess(t, append(withToken, "GITLAB_RUNNER_TOKEN="+runnerToken),
		"--router", d.address, "--plaintext", "--instance-id", "i-1", "--sidecar", "--runner-metrics", "http://"+metrics+"/metrics",
		"--runner-metrics-every", "100ms", "--exec", "--",
		runner, "--url", server.URL, "--listen-metrics", metrics, "--check-interval", "50ms", "--work-dir", t.TempDir())
	d.wait(t, func(m *runnerv1.RunnerMessage) bool { return m.GetRegister().GetCapacity() == 1 })
	d.beat(t, 1, false)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err = lab.Wait(ctx, first, "running")
	require.NoError(t, err)

	d.orders <- &runnerv1.Drain{DrainId: 1, Draining: true, Terminate: true}
	require.True(t, d.acked(t, 1))
	d.beat(t, 1, true)
	second := enqueue()
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	_, err = lab.Wait(ctx, first, "success")
	require.NoError(t, err)
	d.beat(t, 0, true)
	p.requireExit(t, exitLeft)
	left, ok := lab.Job(second)
	require.True(t, ok)
	require.Equal(t, "pending", left.Status)
	require.NotContains(t, p.stderr.String(), runnerToken)
}
