package gitlabtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

type graphAnswer struct {
	Data   map[string]any
	Errors []struct {
		Message    string
		Extensions struct{ Code string }
	}
}

func (l *lab) graphql(token, query string, vars object) graphAnswer {
	l.t.Helper()
	got := l.call("POST", "/api/graphql", object{"query": query, "variables": vars}, "Authorization", "Bearer "+token)
	require.Equal(l.t, http.StatusOK, got.status, "%s", got.body)
	var a graphAnswer
	got.json(l.t, &a)
	return a
}

const pendingJobs = `
query pending($path: ID!, $statuses: [CiJobStatus!], $after: String) { # one project
  project(fullPath: $path) {
    jobs(statuses: $statuses, first: 100, after: $after) {
      pageInfo { hasNextPage endCursor }
      nodes { ...fields runnerManager { systemId } }
    }
  }
}
fragment fields on CiJob { id status name tags queuedAt project { id fullPath } pipeline { id ... on Pipeline { status } } runner { id } stage { name } }`

func TestGraphQLPages(t *testing.T) {
	l := newLab(t, stopped())
	token := l.AddAPIToken(gitlabtest.ProjectToken, "acme/shop/web")
	l.fill(205)
	vars := object{"path": "acme/shop/web", "statuses": []string{"PENDING"}, "after": nil}
	seen := map[any]bool{}
	for pages := 1; ; pages++ {
		a := l.graphql(token, pendingJobs, vars)
		require.Empty(t, a.Errors)
		jobs := a.Data["project"].(object)["jobs"].(object)
		for _, node := range jobs["nodes"].([]any) {
			seen[node.(object)["id"]] = true
		}
		info := jobs["pageInfo"].(object)
		if info["hasNextPage"] == false {
			require.Equal(t, 3, pages)
			break
		}
		vars["after"] = info["endCursor"]
	}
	require.Len(t, seen, 205)
	first := l.graphql(token, `{project(fullPath:"acme/shop/web"){jobs(first:1){nodes{id status tags stage{name} queuedDuration pipeline{id ...on Pipeline{status}}}}}}`, nil)
	node := first.Data["project"].(object)["jobs"].(object)["nodes"].([]any)[0].(object)
	require.Contains(t, node["id"], "gid://gitlab/Ci::Build/")
	require.Equal(t, "PENDING", node["status"])
	require.Equal(t, "PENDING", node["pipeline"].(object)["status"])
	require.Equal(t, []any{"a"}, node["tags"])
	require.Equal(t, "test", node["stage"].(object)["name"])
}

func TestGraphQLRefusesWhatGitLabDoes(t *testing.T) {
	l := newLab(t, stopped())
	l.AddProject("acme/shop/api")
	l.fill(1)
	admin := l.AddAPIToken(gitlabtest.Admin)
	for name, c := range map[string]struct{ query, message, code string }{
		"field":        {`{jobs{nodes{id protected}}}`, "Field 'protected' doesn't exist on type 'CiJobInterface'", "undefinedField"},
		"of interface": {`{jobs{nodes{id runnerManager{systemId}}}}`, "doesn't exist on type 'CiJobInterface'", "undefinedField"},
		"argument":     {`{jobs(state:PENDING){nodes{id}}}`, "doesn't accept argument 'state'", "argumentNotAccepted"},
		"value":        {`{jobs(statuses:[WAITING]){nodes{id}}}`, "invalid value", "argumentLiteralsIncompatible"},
		"leaf":         {`{jobs{nodes{id{x}}}}`, "must have selections", "selectionMismatch"},
		"compatible":   {`{jobs(compatibleRunnerId:"gid://gitlab/Ci::Runner/1"){nodes{id}}}`, "can only be used when", ""},
		"jobs of many": {`{group(fullPath:"acme"){projects(includeSubgroups:true){nodes{jobs{nodes{id}}}}}}`, `"jobs" field can be requested only for 1 Project(s) at a time.`, ""},
		"complexity":   {`{projects{nodes{id ` + strings.Repeat("name ", 200) + `}}}`, "exceeds max complexity of 300", ""},
		"mutation":     {`mutation{jobCancel{job{id}}}`, "not modelled", ""},
		"depth":        {strings.Repeat("{a", 30), "too deep", ""},
		"cursor":       {`{jobs(after:"x"){nodes{id}}}`, "valid cursor", ""},
		"syntax":       {`{jobs(`, "syntax error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			a := l.graphql(admin, c.query, nil)
			require.NotEmpty(t, a.Errors)
			require.Contains(t, a.Errors[0].Message, c.message)
			require.Equal(t, c.code, a.Errors[0].Extensions.Code)
		})
	}
}

func TestGraphQLRights(t *testing.T) {
	l := newLab(t, stopped())
	l.fill(2)
	project := l.AddAPIToken(gitlabtest.ProjectToken, "acme/shop/web")
	admin := l.AddAPIToken(gitlabtest.Admin)
	const all = `{jobs(statuses:[PENDING]){count nodes{id ...on CiJob{runnerManager{systemId}}}}}`
	require.EqualValues(t, 0, l.graphql(project, all, nil).Data["jobs"].(object)["count"])
	require.EqualValues(t, 2, l.graphql(admin, all, nil).Data["jobs"].(object)["count"])
	require.Nil(t, l.graphql(project, `{group(fullPath:"acme"){id}}`, nil).Data["group"])
	require.Equal(t, http.StatusUnauthorized, l.call("POST", "/api/graphql", object{"query": all}).status)
	none := l.AddAPIToken(gitlabtest.NoRights)
	require.Equal(t, http.StatusForbidden, l.call("POST", "/api/graphql", object{"query": all}, "Authorization", "Bearer "+none).status)
}

func TestGraphQLRunnersAndCompatibleJobs(t *testing.T) {
	l := newLab(t, stopped())
	admin := l.AddAPIToken(gitlabtest.Admin)
	id, token := l.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"a"}, Type: "project", Projects: []int64{l.project}})
	l.fill(1)
	l.Enqueue(gitlabtest.JobSpec{Project: l.project, Tags: []string{"b"}})
	gid := fmt.Sprintf("gid://gitlab/Ci::Runner/%d", id)
	fit := l.graphql(admin, `query($r:CiRunnerID){jobs(statuses:[PENDING],compatibleRunnerId:$r){count}}`, object{"r": gid})
	require.EqualValues(t, 1, fit.Data["jobs"].(object)["count"])
	l.ask(token, "s_one")
	a := l.graphql(admin, `query($r:CiRunnerID!){it: runner(id:$r){runnerType accessLevel tagList runUntagged paused locked
		managers{nodes{systemId ipAddress}} projects{nodes{id}} groups{nodes{id}}}}`, object{"r": gid})
	require.Empty(t, a.Errors)
	r := a.Data["it"].(object)
	require.Equal(t, "PROJECT_TYPE", r["runnerType"])
	require.Equal(t, "NOT_PROTECTED", r["accessLevel"])
	require.Equal(t, []any{"a"}, r["tagList"])
	require.Equal(t, "s_one", r["managers"].(object)["nodes"].([]any)[0].(object)["systemId"])
	require.Equal(t, fmt.Sprintf("gid://gitlab/Project/%d", l.project), r["projects"].(object)["nodes"].([]any)[0].(object)["id"])
	require.Nil(t, r["groups"])
}
