package gitlabtest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

func restJob(project, id int64) string {
	return fmt.Sprintf("/api/v4/projects/%d/jobs/%d", project, id)
}

type listed struct {
	ID      int64    `json:"id"`
	Status  string   `json:"status"`
	TagList []string `json:"tag_list"`
}

func (l *lab) fill(n int) {
	for range n {
		l.Enqueue(gitlabtest.JobSpec{Project: l.project, Tags: []string{"a"}})
	}
}

var nextLink = regexp.MustCompile(`<([^>]*)>; rel="next"`)

func TestRESTPages(t *testing.T) {
	for name, query := range map[string]string{"offset": "", "keyset": "&pagination=keyset&order_by=id&sort=desc"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, stopped())
			token := l.AddAPIToken(gitlabtest.ProjectToken, "acme/shop/web")
			l.fill(230)
			_, runner := l.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"a"}})
			require.Equal(t, http.StatusCreated, l.ask(runner, "s_one").status) // still pending
			path := "/api/v4/projects/" + url.PathEscape("acme/shop/web") + "/jobs?scope[]=pending&per_page=100" + query
			seen := map[int64]bool{}
			pages := 0
			for last := int64(1 << 60); path != ""; pages++ {
				got := l.call("GET", path, nil, "Private-Token", token)
				require.Equal(t, http.StatusOK, got.status)
				var jobs []listed
				got.json(t, &jobs)
				for _, j := range jobs {
					require.Less(t, j.ID, last, "the newest first")
					require.Equal(t, []string{"a"}, j.TagList)
					last, seen[j.ID] = j.ID, true
				}
				path = ""
				if link := nextLink.FindStringSubmatch(got.header.Get("Link")); link != nil {
					path = strings.TrimPrefix(link[1], l.url)
				}
			}
			require.Equal(t, 3, pages)
			require.Len(t, seen, 230)
		})
	}
}

func TestPageSizes(t *testing.T) {
	l := newLab(t, stopped())
	token := l.AddAPIToken(gitlabtest.Admin)
	l.fill(120)
	for query, want := range map[string]int{"": 20, "?per_page=0": 20, "?per_page=1000": 100, "?page=2&per_page=100": 20, "?page=9": 0} {
		var jobs []listed
		l.call("GET", fmt.Sprintf("/api/v4/projects/%d/jobs%s", l.project, query), nil, "Authorization", "Bearer "+token).json(t, &jobs)
		require.Len(t, jobs, want, query)
	}
	require.Equal(t, http.StatusBadRequest, l.call("GET", fmt.Sprintf("/api/v4/projects/%d/jobs?scope[]=waiting", l.project), nil, "Private-Token", token).status)
}

func TestRights(t *testing.T) {
	l := newLab(t, stopped())
	other := l.AddProject("acme/blog")
	project := l.AddAPIToken(gitlabtest.ProjectToken, "acme/shop/web")
	group := l.AddAPIToken(gitlabtest.GroupToken, "acme/shop")
	admin := l.AddAPIToken(gitlabtest.Admin)
	none := l.AddAPIToken(gitlabtest.NoRights)
	for _, c := range []struct {
		token, path string
		status      int
	}{
		{"wrong", "/api/v4/version", http.StatusUnauthorized},
		{none, "/api/v4/version", http.StatusForbidden},
		{project, fmt.Sprintf("/api/v4/projects/%d", l.project), http.StatusOK},
		{project, fmt.Sprintf("/api/v4/projects/%d/jobs", other), http.StatusNotFound},
		{group, fmt.Sprintf("/api/v4/projects/%d/groups", l.project), http.StatusOK},
		{group, "/api/v4/groups/acme%2Fshop/projects", http.StatusOK},
		{group, "/api/v4/groups/acme", http.StatusNotFound},
		{group, "/api/v4/runners/all", http.StatusForbidden},
		{admin, "/api/v4/runners/all", http.StatusOK},
		{admin, "/api/v4/projects", http.StatusOK},
		{admin, "/api/v4/runners/99999", http.StatusNotFound},
		{admin, "/api/v4/nothing", http.StatusNotFound},
	} {
		require.Equal(t, c.status, l.call("GET", c.path, nil, "Private-Token", c.token).status, c.path)
	}
	l.Revoke(admin)
	require.Equal(t, http.StatusUnauthorized, l.call("GET", "/api/v4/projects", nil, "Private-Token", admin).status)
}

func TestRunnersByREST(t *testing.T) {
	l := newLab(t, stopped())
	admin := l.AddAPIToken(gitlabtest.Admin)
	group := l.AddGroup("acme/shop")
	id, token := l.AddRunner(gitlabtest.RunnerSpec{Type: "group", Tags: []string{"a"}, Protected: true, Groups: []int64{group}})
	l.PauseRunner(id, true)
	l.ask(token, "s_one")
	var details struct {
		RunnerType  string `json:"runner_type"`
		AccessLevel string `json:"access_level"`
		Paused      bool
		TagList     []string `json:"tag_list"`
		Groups      []struct{ ID int64 }
	}
	l.call("GET", fmt.Sprintf("/api/v4/runners/%d", id), nil, "Private-Token", admin).json(t, &details)
	require.Equal(t, "group_type", details.RunnerType)
	require.Equal(t, "ref_protected", details.AccessLevel)
	require.True(t, details.Paused)
	require.Equal(t, []string{"a"}, details.TagList)
	require.Equal(t, group, details.Groups[0].ID)
	var managers []struct {
		SystemID string `json:"system_id"`
		IP       string `json:"ip_address"`
	}
	l.call("GET", fmt.Sprintf("/api/v4/runners/%d/managers", id), nil, "Private-Token", admin).json(t, &managers)
	require.Equal(t, "s_one", managers[0].SystemID)
	require.Equal(t, "127.0.0.1", managers[0].IP)
}

func TestWhatIsStale(t *testing.T) {
	l := newLab(t, stopped())
	admin := l.AddAPIToken(gitlabtest.Admin)
	ghost, dead, deleted := l.Enqueue(gitlabtest.JobSpec{Project: l.project}), l.Enqueue(gitlabtest.JobSpec{Project: l.project}), l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	l.Ghost(ghost)
	l.FailPipeline(dead)
	l.DeleteJob(deleted)
	var jobs []listed
	l.call("GET", fmt.Sprintf("/api/v4/projects/%d/jobs?scope[]=pending", l.project), nil, "Private-Token", admin).json(t, &jobs)
	require.Len(t, jobs, 2)
	require.Equal(t, http.StatusNotFound, l.call("GET", restJob(l.project, ghost), nil, "Private-Token", admin).status)
	require.Equal(t, http.StatusNotFound, l.call("GET", restJob(l.project, deleted), nil, "Private-Token", admin).status)
	var pipeline struct{ Status string }
	l.call("GET", fmt.Sprintf("/api/v4/projects/%d/pipelines/%d", l.project, l.view(dead).Pipeline), nil, "Private-Token", admin).json(t, &pipeline)
	require.Equal(t, "failed", pipeline.Status)
}

func TestRateLimitPerToken(t *testing.T) {
	o := stopped()
	o.RequestsPerMinute = 3
	l := newLab(t, o)
	_, token := l.AddRunner(gitlabtest.RunnerSpec{})
	_, other := l.AddRunner(gitlabtest.RunnerSpec{})
	for range 3 {
		require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status)
	}
	over := l.ask(token, "s_two")
	require.Equal(t, http.StatusTooManyRequests, over.status)
	require.Equal(t, "61", over.header.Get("Retry-After"))
	require.NotEmpty(t, over.header.Get("RateLimit-ResetTime"))
	require.Equal(t, http.StatusNoContent, l.ask(other, "s_one").status)
	l.Advance(time.Minute)
	require.Equal(t, http.StatusNoContent, l.ask(token, "s_one").status)
}

func TestCalls(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	l.ask(token, "s_one", "last_update", "v0")
	l.put(id, "running")
	l.call("GET", "/api/v4/version", nil, "Private-Token", "wrong", "X-Replica", "a")
	calls := l.Calls()
	require.Len(t, calls, 3)
	require.Equal(t, gitlabtest.RouteRequestJob, calls[0].Route)
	require.Equal(t, gitlabtest.RunnerToken, calls[0].TokenKind)
	require.Equal(t, gitlabtest.HashToken(token), calls[0].TokenHash)
	require.Equal(t, "s_one", calls[0].SystemID)
	require.Equal(t, "v0", calls[0].LastUpdate)
	require.Equal(t, id, calls[0].JobID)
	require.Equal(t, http.StatusCreated, calls[0].Status)
	require.Equal(t, "running", calls[1].State)
	require.Equal(t, http.StatusUnauthorized, calls[2].Status)
	require.Equal(t, "a", calls[2].Header.Get("X-Replica"))
	require.Empty(t, calls[2].Header.Get("Private-Token"), "no token is kept")
	l.ForgetCalls()
	require.Empty(t, l.Calls())
}

func TestDiscovery(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{})
	ask := func(token string) reply {
		return l.call("GET", "/api/v4/runners/router/discovery", nil, "Runner-Token", token)
	}
	require.Equal(t, http.StatusForbidden, ask("wrong").status)
	require.Equal(t, http.StatusNotImplemented, ask(token).status)
	l.SetRouter("grpc://127.0.0.1:1")
	require.JSONEq(t, `{"server_url":"grpc://127.0.0.1:1"}`, string(ask(token).body))
}

func TestBodiesAreBounded(t *testing.T) {
	l := newLab(t, stopped())
	_, token := l.AddRunner(gitlabtest.RunnerSpec{})
	require.Equal(t, http.StatusRequestEntityTooLarge, l.ask(token, "s_one", "session", strings.Repeat("x", gitlabtest.MaxRequestBytes)).status)
	require.Equal(t, http.StatusBadRequest, l.call("POST", "/api/v4/jobs/request", "{").status)
	require.Equal(t, http.StatusBadRequest, l.call("POST", "/api/v4/jobs/request", "{}").status)
	require.Equal(t, http.StatusForbidden, l.ask("wrong", "s_one").status)
}
