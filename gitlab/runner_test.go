package gitlab

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

func runnerAPI(details object) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v4/runners/5", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, details) })
	mux.HandleFunc("/api/v4/runners/5/managers", func(w http.ResponseWriter, r *http.Request) {
		restList(w, r, 101, func(id int64) any {
			return object{"id": id, "system_id": "s_x", "version": "19.4.0", "ip_address": "10.0.0.1", "status": "online"}
		})
	})
	return mux
}

func TestRunner(t *testing.T) {
	details := object{
		"id": 5, "runner_type": "group_type", "tag_list": []string{"docker"}, "run_untagged": true, "access_level": "ref_protected",
		"paused": true, "locked": true, "groups": []object{{"id": 3}}, "token": "not ours to keep",
	}
	r, err := newStage(t, runnerAPI(details)).Runner(context.Background(), 5)
	require.NoError(t, err)
	require.Len(t, r.Managers, 101)
	require.Equal(t, Manager{"s_x", "10.0.0.1", "19.4.0", "online"}, r.Managers[0])
	r.Managers = nil
	require.Equal(t, Runner{ID: 5, Type: spillway.GroupType, Tags: []string{"docker"}, RunUntagged: true, Protected: true, Paused: true, Locked: true, Groups: []int64{3}}, r)
}

func TestProjectRunner(t *testing.T) {
	details := object{"id": 5, "runner_type": "project_type", "access_level": "not_protected", "projects": []object{{"id": 8}, {"id": 9}}}
	r, err := newStage(t, runnerAPI(details)).Runner(context.Background(), 5)
	require.NoError(t, err)
	require.Equal(t, []int64{8, 9}, r.Projects)
	require.False(t, r.Protected)

	delete(details, "projects") // newer versions leave them out of REST
	mux := runnerAPI(details)
	mux.HandleFunc("/api/graphql", graphAPI(func(q graphQuestion) any {
		require.Equal(t, "gid://gitlab/Ci::Runner/5", q.Variables.ID)
		return object{"runner": object{"projects": graphList(150, q.Variables.After, func(id int64) object {
			return object{"id": "gid://gitlab/Project/" + strings.TrimLeft("1000", "0")}
		})}}
	}))
	r, err = newStage(t, mux).Runner(context.Background(), 5)
	require.NoError(t, err)
	require.Len(t, r.Projects, 150)

	mux = runnerAPI(details)
	mux.HandleFunc("/api/graphql", graphAPI(func(graphQuestion) any { return object{"runner": nil} }))
	_, err = newStage(t, mux).Runner(context.Background(), 5)
	require.ErrorIs(t, err, ErrForbidden)
}

func TestARunnerThatIsNotShown(t *testing.T) {
	for status, is := range map[int]error{404: ErrNotFound, 403: ErrForbidden, 401: ErrUnauthorized} {
		_, err := newStage(t, answering(status, asJSON, `{"message":"no"}`)).Runner(context.Background(), 5)
		require.ErrorIs(t, err, is)
	}
	for _, odd := range []object{{"id": 6, "runner_type": "group_type"}, {"id": 5, "runner_type": "other"}, {}} {
		_, err := newStage(t, runnerAPI(odd)).Runner(context.Background(), 5)
		require.ErrorIs(t, err, ErrProtocol)
	}
}

func TestAncestors(t *testing.T) {
	groups := []object{{"id": 9}, {"id": 3}}
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/api/v4/projects/7/groups", r.URL.Path)
		writeJSON(w, http.StatusOK, groups)
	}))
	ask := func() []int64 {
		got, err := s.Ancestors(context.Background(), 7)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []int64{3, 9}, ask())
	groups = []object{}
	require.Equal(t, []int64{3, 9}, ask(), "remembered")
	require.Equal(t, 1, s.count(""))
	s.pass(ancestorsAge)
	require.Equal(t, []int64{}, ask(), "and not for ever: it was moved to a user")
	require.Empty(t, ask())
	require.Equal(t, 2, s.count(""), "none is an answer, too")
}

func TestTooManyAncestors(t *testing.T) {
	list := func(n int) error {
		_, err := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			restList(w, r, n, func(id int64) any { return object{"id": id} })
		})).Ancestors(context.Background(), 7)
		return err
	}
	require.NoError(t, list(maxAncestors))
	require.ErrorIs(t, list(maxAncestors+1), ErrTooMany)
}

func TestJobAndPipeline(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v4/projects/7/jobs/1", func(w http.ResponseWriter, _ *http.Request) {
		j := restJobOf(1, "running")
		j["started_at"], j["queued_duration"], j["runner"], j["runner_manager"] = start, 30.0, object{"id": 5}, object{"system_id": "s_1"}
		writeJSON(w, http.StatusOK, j)
	})
	mux.HandleFunc("/api/v4/projects/7/pipelines/70", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, object{"id": 70, "status": "failed"})
	})
	s := newStage(t, mux)
	j, err := s.Job(context.Background(), 7, 1)
	require.NoError(t, err)
	require.Equal(t, Job{
		ID: 1, Status: "running", Name: "test", Stage: "build", Tags: []string{"docker", "linux"}, Ref: "main", Project: ProjectRef{7, "top/sub/app"},
		Pipeline: PipelineRef{70, "running"}, CreatedAt: start.Add(-time.Hour), QueuedAt: start.Add(-30 * time.Second), RunnerID: 5, SystemID: "s_1",
	}, j)
	p, err := s.Pipeline(context.Background(), 7, 70)
	require.NoError(t, err)
	require.Equal(t, PipelineRef{70, "failed"}, p)
	_, err = s.Job(context.Background(), 7, 2)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Pipeline(context.Background(), 7, 71)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestCheck(t *testing.T) {
	refuse := map[string]int{}
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if status := refuse[path]; status != 0 {
			writeJSON(w, status, object{"message": "no"})
			return
		}
		switch {
		case strings.HasSuffix(path, "empty/projects"):
			writeJSON(w, http.StatusOK, []object{})
		case strings.HasSuffix(path, "/projects"):
			writeJSON(w, http.StatusOK, []object{{"id": 6, "jobs_enabled": false}, {"id": 7}, {"id": 8}})
		default:
			writeJSON(w, http.StatusOK, []object{{}})
		}
	}))
	check := func(kind ScopeKind, paths ...string) error {
		return s.Check(context.Background(), Scope{Kind: kind, Paths: paths})
	}
	require.NoError(t, check(Instance))
	require.NoError(t, check(Groups, "top/sub", "empty"))
	require.NoError(t, check(Projects, "top/app"))
	require.Equal(t, 5, s.count("GET"))

	refuse = map[string]int{
		"/api/v4/runners/all": 403, "/api/v4/groups/top%2Fsub/projects": 404, "/api/v4/projects/7/jobs": 403, "/api/v4/projects/top%2Fapp/jobs": 401,
	}
	err := check(Instance)
	require.ErrorIs(t, err, ErrForbidden)
	require.ErrorContains(t, err, "administrator")
	err = check(Groups, "top/sub")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "group top/sub")
	err = check(Groups, "other")
	require.ErrorIs(t, err, ErrForbidden)
	require.ErrorContains(t, err, "Reporter")
	err = check(Projects, "top/app")
	require.ErrorIs(t, err, ErrUnauthorized)
	require.False(t, errors.Is(err, ErrForbidden))
}
