package gitlabtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
)

func jobPath(id int64) string { return fmt.Sprintf("/api/v4/jobs/%d", id) }

func whys(v gitlabtest.JobView) string {
	var all []string
	for _, c := range v.History {
		all = append(all, c.Why)
	}
	return strings.Join(all, " ")
}

func TestAJobsWholeLife(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	runner, token := l.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"linux"}})
	id := l.Enqueue(gitlabtest.JobSpec{
		Project: l.project, Tags: []string{"linux"}, Name: "greet",
		Script: []string{`echo "hello $WHO from job $CI_JOB_ID"`}, Variables: map[string]string{"WHO": "world"},
	})
	l.runner(token, nil)

	v, err := l.Wait(l.ctx(), id, gitlabtest.Success)
	require.NoError(t, err)
	require.Contains(t, v.Trace, fmt.Sprintf("hello world from job %d\n", id))
	require.Contains(t, v.Trace, "Job succeeded")
	require.Equal(t, runner, v.RunnerID)
	require.Equal(t, "s_one", v.SystemID)
	require.Equal(t, "enqueued assigned accepted finished", whys(v))
	require.Equal(t, []string{"s_one"}, l.Managers(runner))
}

func TestHowJobsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		spec     gitlabtest.JobSpec
		legacy   bool
		reason   string
		exitCode int
		history  string
	}{
		"by its exit code":    {gitlabtest.JobSpec{Script: []string{"echo no", "exit 7"}}, false, "script_failure", 7, "enqueued assigned accepted finished"},
		"by its time":         {gitlabtest.JobSpec{Script: []string{"sleep 60"}, Timeout: time.Second}, false, "job_execution_timeout", 0, "enqueued assigned accepted finished"},
		"of a legacy runner":  {gitlabtest.JobSpec{Script: []string{"false"}}, true, "script_failure", 1, "enqueued requested finished"},
		"for want of feature": {gitlabtest.JobSpec{Needs: []string{"vault_secrets"}}, false, "runner_unsupported", 0, "enqueued unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gitlabtest.Options{})
			_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
			c.spec.Project = l.project
			id := l.Enqueue(c.spec)
			l.runner(token, func(o *minirunner.Options) { o.Legacy = c.legacy })
			v, err := l.Wait(l.ctx(), id, gitlabtest.Failed)
			require.NoError(t, err)
			require.Equal(t, c.reason, v.FailureReason)
			require.Equal(t, c.exitCode, v.ExitCode)
			require.Equal(t, c.history, whys(v))
		})
	}
}

func TestCancelARunningJob(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"echo begun", "while :; do echo on; sleep 0.1; done"}})
	l.runner(token, nil)
	_, err := l.WaitFor(l.ctx(), id, "a trace", func(v gitlabtest.JobView) bool { return strings.Contains(v.Trace, "begun") })
	require.NoError(t, err)

	l.Cancel(id)
	v, err := l.Wait(l.ctx(), id, gitlabtest.Canceled)
	require.NoError(t, err)
	require.Equal(t, "job_canceled", v.FailureReason)
	require.Equal(t, "enqueued assigned accepted cancel finished", whys(v))
}

func TestAJobThatGitLabEndsIsLeft(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"while :; do echo on; sleep 0.1; done"}})
	r := l.runner(token, func(o *minirunner.Options) { o.Features = map[string]bool{"cancel_gracefully": false} })
	_, err := l.Wait(l.ctx(), id, gitlabtest.Running)
	require.NoError(t, err)

	l.Cancel(id)
	require.Equal(t, gitlabtest.Canceled, l.view(id).Status)
	require.Eventually(t, func() bool { return r.Stats().Finished == 1 }, patience, 10*time.Millisecond)
}

func TestQuitLetsJobsFinish(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	gate := filepath.Join(t.TempDir(), "gate")
	first := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"until [ -e " + gate + " ]; do sleep 0.02; done"}})
	second := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	r := l.runner(token, nil)
	_, err := l.Wait(l.ctx(), first, gitlabtest.Running)
	require.NoError(t, err)

	r.Quit()
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	_, err = l.Wait(l.ctx(), first, gitlabtest.Success)
	require.NoError(t, err)
	require.Equal(t, gitlabtest.Pending, l.view(second).Status)
	require.Zero(t, l.view(second).RunnerID)
}

func TestAFullRunnerDoesNotAsk(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	gate := filepath.Join(t.TempDir(), "gate")
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"until [ -e " + gate + " ]; do sleep 0.02; done"}})
	r := l.runner(token, nil)
	_, err := l.Wait(l.ctx(), id, gitlabtest.Running)
	require.NoError(t, err)

	asked := len(l.CallsTo(gitlabtest.RouteRequestJob))
	touches := len(l.CallsTo(gitlabtest.RouteUpdateJob))
	// It goes on to say that the job runs, so that it is not merely dead.
	require.Eventually(t, func() bool { return len(l.CallsTo(gitlabtest.RouteUpdateJob)) >= touches+2 }, patience, 10*time.Millisecond)
	require.Len(t, l.CallsTo(gitlabtest.RouteRequestJob), asked)
	require.Equal(t, 1, r.Stats().Running)
	l.Cancel(id)
}
