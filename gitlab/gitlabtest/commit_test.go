package gitlabtest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

func given(t *testing.T, l *lab) (id int64) {
	t.Helper()
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	id = l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	got := l.ask(token, "s_one")
	require.Equal(t, http.StatusCreated, got.status)
	var payload struct{ ID int64 }
	got.json(t, &payload)
	require.Equal(t, id, payload.ID)
	return id
}

func TestAJobStaysPendingUntilItsRunnerSaysRunning(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	require.Equal(t, gitlabtest.Pending, l.view(id).Status)
	require.True(t, l.view(id).Waiting)
	_, other := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	require.Equal(t, http.StatusNoContent, l.ask(other, "s_two").status, "it is given once")

	require.Equal(t, http.StatusOK, l.put(id, "running").status)
	require.Equal(t, gitlabtest.Running, l.view(id).Status)
	require.False(t, l.view(id).Waiting)
	l.Advance(time.Hour)
	require.Equal(t, gitlabtest.Running, l.view(id).Status)
	require.Equal(t, http.StatusBadRequest, l.put(id, "pending").status)
	require.Equal(t, http.StatusOK, l.put(id, "success").status)
	refused := l.put(id, "success")
	require.Equal(t, http.StatusForbidden, refused.status)
	require.Equal(t, "success", refused.header.Get("Job-Status"))
}

func TestAJobThatWasNotBegunCanNotBeEnded(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	for _, state := range []string{"success", "failed", "canceled", ""} {
		require.Equal(t, http.StatusBadRequest, l.put(id, state).status, state)
		require.Equal(t, gitlabtest.Pending, l.view(id).Status)
	}
	// Its trace can be written.
	require.Equal(t, http.StatusAccepted, l.patch(id, 0, "no machine\n").status)
	require.Equal(t, http.StatusOK, l.put(id, "running").status)
	require.Equal(t, http.StatusOK, l.put(id, "failed").status)
	require.Equal(t, gitlabtest.Failed, l.view(id).Status)
}

func TestPendingKeepsAJob(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	for range 5 {
		l.Advance(gitlabtest.DefaultAckWithin) // just in time
		require.Equal(t, http.StatusOK, l.put(id, "pending").status)
	}
	require.Equal(t, 5, l.view(id).Kept)
	require.Equal(t, gitlabtest.Pending, l.view(id).Status)
	l.Advance(gitlabtest.DefaultAckWithin + time.Nanosecond)
	require.Equal(t, gitlabtest.Failed, l.view(id).Status)
}

func TestAJobThatNobodyAcknowledgesIsTriedAgainAsAnother(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Name: "mine"})
	for range gitlabtest.DefaultAckRetries {
		require.Equal(t, http.StatusCreated, l.ask(token, "s_one").status)
		l.Advance(gitlabtest.DefaultAckWithin + time.Second)
		v := l.view(id)
		require.Equal(t, gitlabtest.Failed, v.Status)
		require.Equal(t, "runner_provisioning_timeout", v.FailureReason)
		late := l.put(id, "running")
		require.Equal(t, http.StatusForbidden, late.status)
		require.Equal(t, "failed", late.header.Get("Job-Status"))
		next := l.view(v.RetriedAs)
		require.Equal(t, id, next.RetryOf)
		require.Equal(t, "mine", next.Name)
		require.Equal(t, v.Pipeline, next.Pipeline)
		require.Equal(t, gitlabtest.Pending, next.Status)
		id = next.ID
	}
	require.Equal(t, http.StatusCreated, l.ask(token, "s_one").status)
	l.Advance(gitlabtest.DefaultAckWithin + time.Second)
	require.Equal(t, gitlabtest.Failed, l.view(id).Status)
	require.Zero(t, l.view(id).RetriedAs, "it was tried often enough")
}

func TestTheSystemIsTheOneThatAsked(t *testing.T) {
	l := newLab(t, stopped())
	admin := l.AddAPIToken(gitlabtest.Admin)
	id := given(t, l)
	var shown struct {
		RunnerManager *struct {
			SystemID string `json:"system_id"`
		} `json:"runner_manager"`
	}
	l.call("GET", restJob(l.project, id), nil, "Private-Token", admin).json(t, &shown)
	require.Nil(t, shown.RunnerManager, "not before it has begun")
	l.put(id, "running")
	l.call("GET", restJob(l.project, id), nil, "Private-Token", admin).json(t, &shown)
	require.Equal(t, "s_one", shown.RunnerManager.SystemID)
}

func TestLastUpdate(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"a"}})
	first := l.ask(token, "s_one")
	require.Equal(t, http.StatusNoContent, first.status)
	version := first.header.Get("X-GitLab-Last-Update")
	require.NotEmpty(t, version)
	l.Enqueue(gitlabtest.JobSpec{Project: l.project, Tags: []string{"b"}})
	same := l.ask(token, "s_one", "last_update", version)
	require.Equal(t, version, same.header.Get("X-GitLab-Last-Update"), "a job for others changes nothing")
	l.Enqueue(gitlabtest.JobSpec{Project: l.project, Tags: []string{"a"}})
	require.Equal(t, http.StatusCreated, l.ask(token, "s_one", "last_update", version).status)
}

func TestLongPollIsHeldUntilAJobComes(t *testing.T) {
	l := newLab(t, gitlabtest.Options{LongPoll: patience})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	version := l.ask(token, "s_one").header.Get("X-GitLab-Last-Update")
	answered := make(chan reply, 1)
	go func() { answered <- l.ask(token, "s_one", "last_update", version) }()
	require.Eventually(t, func() bool { return len(l.CallsTo(gitlabtest.RouteRequestJob)) == 2 }, patience, time.Millisecond)
	select {
	case got := <-answered:
		t.Fatalf("it was not held: %d", got.status)
	default:
	}
	l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	require.Equal(t, http.StatusCreated, (<-answered).status)
}

func TestWhoGetsWhat(t *testing.T) {
	l := newLab(t, stopped())
	other := l.AddProject("acme/blog")
	shop := l.AddGroup("acme/shop")
	for name, c := range map[string]struct {
		runner gitlabtest.RunnerSpec
		job    gitlabtest.JobSpec
		fits   bool
	}{
		"tags are a subset":               {gitlabtest.RunnerSpec{Tags: []string{"a", "b"}}, gitlabtest.JobSpec{Tags: []string{"b"}}, true},
		"a tag is missing":                {gitlabtest.RunnerSpec{Tags: []string{"a"}}, gitlabtest.JobSpec{Tags: []string{"a", "b"}}, false},
		"untagged, not allowed":           {gitlabtest.RunnerSpec{Tags: []string{"a"}}, gitlabtest.JobSpec{}, false},
		"a protected job needs no such":   {gitlabtest.RunnerSpec{RunUntagged: true}, gitlabtest.JobSpec{Protected: true}, true},
		"a protected runner needs such":   {gitlabtest.RunnerSpec{RunUntagged: true, Protected: true}, gitlabtest.JobSpec{}, false},
		"a group runner below its group":  {gitlabtest.RunnerSpec{RunUntagged: true, Type: "group", Groups: []int64{shop}}, gitlabtest.JobSpec{}, true},
		"a group runner beside its group": {gitlabtest.RunnerSpec{RunUntagged: true, Type: "group", Groups: []int64{shop}}, gitlabtest.JobSpec{Project: other}, false},
		"a project runner elsewhere":      {gitlabtest.RunnerSpec{RunUntagged: true, Type: "project", Projects: []int64{other}}, gitlabtest.JobSpec{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			_, token := l.AddRunner(c.runner)
			if c.job.Project == 0 {
				c.job.Project = l.project
			}
			id := l.Enqueue(c.job)
			got := l.ask(token, "s_one").status
			l.DeleteJob(id)
			require.Equal(t, map[bool]int{true: http.StatusCreated, false: http.StatusNoContent}[c.fits], got)
		})
	}
}

func TestInstanceRunnersAreFair(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	loud, quiet := l.project, l.AddProject("acme/blog")
	first := l.Enqueue(gitlabtest.JobSpec{Project: loud})
	second := l.Enqueue(gitlabtest.JobSpec{Project: loud})
	third := l.Enqueue(gitlabtest.JobSpec{Project: quiet})
	var order []int64
	for range 3 {
		var p struct{ ID int64 }
		l.ask(token, "s_one").json(t, &p)
		order = append(order, p.ID)
		l.put(p.ID, "running")
	}
	require.Equal(t, []int64{first, third, second}, order)
}

func TestPausedAndDeletedRunners(t *testing.T) {
	l := newLab(t, stopped())
	runner, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	l.PauseRunner(runner, true)
	require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status)
	l.PauseRunner(runner, false)
	require.Equal(t, http.StatusCreated, l.ask(token, "s_one").status)
	require.Equal(t, http.StatusOK, l.call("POST", "/api/v4/runners/verify", object{"token": token}).status)
	gone := object{"token": token, "system_id": "s_one"}
	require.Equal(t, http.StatusNoContent, l.call("DELETE", "/api/v4/runners/managers", gone).status)
	require.Equal(t, http.StatusNotFound, l.call("DELETE", "/api/v4/runners/managers", gone).status)
	l.DeleteRunner(runner)
	require.Equal(t, http.StatusForbidden, l.ask(token, "s_one").status)
	require.Equal(t, http.StatusForbidden, l.call("POST", "/api/v4/runners/verify", object{"token": token}).status)
}
