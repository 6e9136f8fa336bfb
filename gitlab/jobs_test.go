package gitlab

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var instance = Scope{Kind: Instance}

func TestJobsOfTheInstance(t *testing.T) {
	s := newStage(t, graphAPI(func(q graphQuestion) any {
		require.Equal(t, []string{"PENDING", "RUNNING"}, q.Variables.Statuses)
		return object{"jobs": graphList(2, q.Variables.After, func(id int64) object {
			j := graphJobOf(id, "pending")
			if id == 2 {
				j["status"], j["runner"], j["runnerManager"] = "RUNNING", object{"id": "gid://gitlab/Ci::Runner/5"}, object{"systemId": "s_1"}
				j["createdByTag"], j["tags"] = true, []string{}
			}
			return j
		})}
	}))
	want := Job{
		ID: 1, Status: "pending", Name: "test", Stage: "build", Tags: []string{"docker", "linux"}, Ref: "main",
		Project: ProjectRef{7, "top/sub/app"}, Pipeline: PipelineRef{70, "running"}, CreatedAt: start.Add(-time.Hour), QueuedAt: start.Add(-time.Minute),
	}
	second := want
	second.ID, second.Status, second.RunnerID, second.SystemID, second.RefIsTag, second.Tags = 2, "running", 5, "s_1", true, []string{}
	require.Equal(t, []Job{second, want}, jobsOf(t, s, instance))
}

// Field case X07: only the first hundred were counted.
func TestX07_AllPagesOrAnError(t *testing.T) {
	lists := map[string]http.HandlerFunc{
		"GraphQL": graphAPI(func(q graphQuestion) any {
			return object{"project": object{"jobs": graphList(250, q.Variables.After, func(id int64) object { return graphJobOf(id, "pending") })}}
		}),
		"REST": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/graphql" {
				http.NotFound(w, r)
				return
			}
			if got := r.URL.Query(); got.Get("pagination") != "keyset" || strings.Join(got["scope[]"], " ") != "pending running" || r.URL.EscapedPath() != "/api/v4/projects/top%2Fsub%2Fapp/jobs" {
				t.Errorf("%s", r.URL)
			}
			restList(w, r, 250, func(id int64) any { return restJobOf(id, "pending") })
		},
	}
	scope := Scope{Kind: Projects, Paths: []string{"top/sub/app"}}
	for name, h := range lists {
		t.Run(name+": followed to the end", func(t *testing.T) {
			require.Equal(t, upTo(250), jobIDs(jobsOf(t, newStage(t, h), scope)))
		})
		t.Run(name+": a list of just as many pages as are allowed", func(t *testing.T) {
			s := newStage(t, h)
			s.pages = 3
			require.Len(t, jobsOf(t, s, scope), 250)
		})
		t.Run(name+": a cap is an error", func(t *testing.T) {
			s := newStage(t, h)
			s.pages = 2
			jobs, err := s.list(context.Background(), scope, StatusPending, StatusRunning)
			require.ErrorIs(t, err, ErrTooMany)
			require.Len(t, jobs, 200, "the error comes last")
		})
		t.Run(name+": a page that fails for good is an error", func(t *testing.T) {
			s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "cursor=200") {
					http.Error(w, "no", http.StatusBadGateway)
					return
				}
				if r.URL.Path == "/api/graphql" {
					third := graphAPI(func(q graphQuestion) any {
						if q.Variables.After != nil && *q.Variables.After == "200" {
							return object{"project": nil} // hidden, all at once
						}
						return object{"project": object{"jobs": graphList(250, q.Variables.After, func(id int64) object { return graphJobOf(id, "pending") })}}
					})
					if name == "GraphQL" {
						third(w, r)
						return
					}
				}
				h(w, r)
			}))
			jobs, err := s.list(context.Background(), scope, StatusPending, StatusRunning)
			require.Error(t, err)
			require.Len(t, jobs, 200, "the error comes last")
		})
		t.Run(name+": a page is handed on before the next one is asked for", func(t *testing.T) {
			s := newStage(t, h)
			n := 0
			for _, err := range s.Jobs(context.Background(), scope, StatusPending, StatusRunning) {
				require.NoError(t, err)
				require.Equal(t, n/PageSize+1, s.count(map[string]string{"GraphQL": "POST", "REST": "GET"}[name]), "job %d", n)
				n++
			}
			require.Equal(t, 250, n)
		})
		t.Run(name+": who has enough asks for no more", func(t *testing.T) {
			s := newStage(t, h)
			n := 0
			for _, err := range s.Jobs(context.Background(), scope, StatusPending, StatusRunning) {
				require.NoError(t, err)
				if n++; n == PageSize+1 {
					break
				}
			}
			require.Equal(t, 2, s.count(map[string]string{"GraphQL": "POST", "REST": "GET"}[name]))
		})
	}
}

// What was handed on can't be taken back: REST begins with the next list.
func TestAGraphQLThatGoesAwayInTheMiddleOfAList(t *testing.T) {
	page := graphAPI(func(q graphQuestion) any {
		return object{"project": object{"jobs": graphList(250, q.Variables.After, func(id int64) object { return graphJobOf(id, "pending") })}}
	})
	asked := 0
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/api/graphql":
			restList(w, r, 250, func(id int64) any { return restJobOf(id, "pending") })
		case asked == 1:
			http.NotFound(w, r)
		default:
			asked++
			page(w, r)
		}
	}))
	scope := Scope{Kind: Projects, Paths: []string{"a/b"}}
	jobs, err := s.list(context.Background(), scope, StatusPending)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Len(t, jobs, PageSize)
	require.Zero(t, s.count("GET"))
	require.Equal(t, upTo(250), jobIDs(jobsOf(t, s, scope)))
	require.Equal(t, 3, s.count("GET"))
}

func TestAPageIsBounded(t *testing.T) {
	read := func(n int) (int, error) {
		text := "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]"
		page, err := entries[struct{}](answer{body: &body{r: strings.NewReader(text), left: MaxAnswerBytes, limit: MaxAnswerBytes}}, nil)
		return len(page), err
	}
	n, err := read(maxPageEntries)
	require.NoError(t, err)
	require.Equal(t, maxPageEntries, n)
	_, err = read(maxPageEntries + 1)
	require.ErrorIs(t, err, ErrTooMany)
}

func TestAPageThatFailsOnceIsAskedForAgain(t *testing.T) {
	failures := 2
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/graphql" {
			graphErrorAPI("Field 'queuedAt' doesn't exist on type 'CiJobInterface'", "undefinedField")(w, r)
			return
		}
		if r.URL.Query().Get("cursor") == "100" && failures > 0 {
			failures--
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`[{"id":150},{"id":149},`)) // cut off in the middle: what it had must not be counted twice
			return
		}
		restList(w, r, 250, func(id int64) any { return restJobOf(id, "pending") })
	}))
	require.Equal(t, upTo(250), jobIDs(jobsOf(t, s, Scope{Kind: Projects, Paths: []string{"a/b"}})))
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, s.waits)
}

func TestAListThatDoesNotMoveOnIsAnError(t *testing.T) {
	for name, page := range map[string]object{
		"the same cursor": {"nodes": []object{graphJobOf(1, "pending")}, "pageInfo": object{"hasNextPage": true, "endCursor": "x"}},
		"no cursor":       {"nodes": []object{}, "pageInfo": object{"hasNextPage": true, "endCursor": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, graphAPI(func(graphQuestion) any { return object{"jobs": page} }))
			_, err := s.list(context.Background(), instance, StatusPending)
			require.ErrorIs(t, err, ErrProtocol)
			require.LessOrEqual(t, s.count("POST"), 2)
		})
	}
	t.Run("a link to itself", func(t *testing.T) {
		s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "<"+r.URL.String()+`>; rel="next"`)
			writeJSON(w, http.StatusOK, []object{})
		}))
		_, err := s.Ancestors(context.Background(), 7)
		require.ErrorIs(t, err, ErrProtocol)
	})
}

// GitLab answers "all jobs" with none to who is no administrator; a scaler that believed it
// would take the fleet down.
func TestNoJobsAtAllAreProven(t *testing.T) {
	answer := func(status int) *stage {
		mux := http.NewServeMux()
		mux.HandleFunc("/api/graphql", graphAPI(func(q graphQuestion) any { return object{"jobs": graphList(0, nil, nil)} }))
		mux.HandleFunc("/api/v4/runners/all", func(w http.ResponseWriter, _ *http.Request) {
			if status == http.StatusOK {
				writeJSON(w, status, []object{{"id": 1}})
			} else {
				writeJSON(w, status, object{"message": "403 Forbidden"})
			}
		})
		return newStage(t, mux)
	}
	jobs, err := answer(http.StatusOK).list(context.Background(), instance, StatusPending)
	require.NoError(t, err)
	require.Empty(t, jobs)
	_, err = answer(http.StatusForbidden).list(context.Background(), instance, StatusPending)
	require.ErrorIs(t, err, ErrForbidden)
	require.ErrorContains(t, err, "administrator")
}

func TestJobsOfGroups(t *testing.T) {
	project := func(path string, archived, enabled bool) object {
		return object{"fullPath": path, "archived": archived, "jobsEnabled": enabled}
	}
	var asked []string
	s := newStage(t, graphAPI(func(q graphQuestion) any {
		if strings.Contains(q.Query, "group(") {
			require.Contains(t, q.Query, "includeSubgroups:true")
			nodes := []object{project(q.Variables.Path+"/app", false, true), project("top/old", true, true), project("top/docs", false, false), project("top/gone", false, true)}
			return object{"group": object{"projects": object{"nodes": nodes, "pageInfo": object{"hasNextPage": false}}}}
		}
		asked = append(asked, q.Variables.Path)
		if q.Variables.Path == "top/gone" {
			return object{"project": nil}
		}
		return object{"project": object{"jobs": graphList(1, nil, func(int64) object { return graphJobOf(int64(len(asked)), "pending") })}}
	}))
	jobs := jobsOf(t, s, Scope{Kind: Groups, Paths: []string{"top", "top/sub", "top"}})
	require.Equal(t, []string{"top/app", "top/gone", "top/sub/app"}, asked, "each project once; archived ones and those without jobs not at all")
	require.Len(t, jobs, 2)
}

func TestJobsOfGroupsOverREST(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v4/groups/{group}/projects", func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "false", r.URL.Query().Get("with_shared"))
		restList(w, r, 120, func(id int64) any {
			return object{"id": id, "jobs_enabled": id != 3, "builds_access_level": map[bool]string{true: "disabled", false: "enabled"}[id == 4]}
		})
	})
	mux.HandleFunc("/api/v4/projects/{id}/jobs", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("id") {
		case "5":
			writeJSON(w, http.StatusNotFound, object{"message": "404 Project Not Found"}) // deleted since
		case "3", "4":
			writeJSON(w, http.StatusForbidden, object{"message": "403 Forbidden"})
		case "9":
			restList(w, r, 2, func(id int64) any { return restJobOf(id, "running") })
		default:
			writeJSON(w, http.StatusOK, []object{})
		}
	})
	s := newStage(t, mux)
	scope := Scope{Kind: Groups, Paths: []string{"top"}}
	require.Equal(t, upTo(2), jobIDs(jobsOf(t, s, scope)))
	require.Equal(t, 1, s.count("POST /api/graphql"))
	require.Len(t, jobsOf(t, s, scope), 2)
	require.Equal(t, 1, s.count("POST /api/graphql"), "which API to use is remembered")
	s.pass(schemaAge)
	require.Len(t, jobsOf(t, s, scope), 2)
	require.Equal(t, 2, s.count("POST /api/graphql"), "and not for ever")
}

func TestJobsOfTheInstanceOverREST(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/graphql", graphErrorAPI("Field 'jobs' doesn't exist on type 'Query'", ""))
	mux.HandleFunc("/api/v4/runners/all", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, []object{}) })
	mux.HandleFunc("/api/v4/projects", func(w http.ResponseWriter, r *http.Request) {
		restList(w, r, 2, func(id int64) any { return object{"id": id} })
	})
	mux.HandleFunc("/api/v4/projects/{id}/jobs", func(w http.ResponseWriter, r *http.Request) {
		restList(w, r, 1, func(int64) any { return restJobOf(int64(r.PathValue("id")[0]-'0'), "pending") })
	})
	require.Equal(t, upTo(2), jobIDs(jobsOf(t, newStage(t, mux), instance)))
}

func TestWhatIsHiddenIsAnError(t *testing.T) {
	project := Scope{Kind: Projects, Paths: []string{"a/b"}}
	group := Scope{Kind: Groups, Paths: []string{"a"}}
	for _, tt := range []struct {
		name  string
		scope Scope
		data  object
		is    error
	}{
		{"no such project", project, object{"project": nil}, ErrNotFound},
		{"a project's jobs", project, object{"project": object{"jobs": nil}}, ErrForbidden},
		{"one job", project, object{"project": object{"jobs": object{"nodes": []any{nil}, "pageInfo": object{}}}}, ErrForbidden},
		{"a job without an id", project, object{"project": object{"jobs": object{"nodes": []object{{"id": "7"}}, "pageInfo": object{}}}}, ErrProtocol},
		{"no such group", group, object{"group": nil}, ErrNotFound},
		{"a group's projects", group, object{"group": object{"projects": nil}}, ErrForbidden},
		{"one project", group, object{"group": object{"projects": object{"nodes": []any{nil}, "pageInfo": object{}}}}, ErrForbidden},
		{"the instance's jobs", instance, object{"jobs": nil}, ErrForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, graphAPI(func(graphQuestion) any { return tt.data }))
			_, err := s.list(context.Background(), tt.scope, StatusPending)
			require.ErrorIs(t, err, tt.is)
			require.Equal(t, 1, s.count(""), "nothing to try again")
		})
	}
}

func TestGraphQLErrors(t *testing.T) {
	for message, is := range map[string]error{
		"Timeout on CiJobInterface.tags":                                   ErrUnavailable,
		"Internal server error":                                            ErrUnavailable,
		"Query has complexity of 300, which exceeds max complexity of 250": ErrProtocol,
		"The resource that you are attempting to access does not exist or you don't have permission to perform this action": ErrForbidden,
	} {
		t.Run(message, func(t *testing.T) {
			s := newStage(t, graphErrorAPI(message, ""))
			_, err := s.list(context.Background(), instance, StatusPending)
			require.ErrorIs(t, err, is)
		})
	}
	t.Run("data with an error beside it is not whole", func(t *testing.T) {
		s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, object{"data": object{"jobs": graphList(1, nil, func(id int64) object { return graphJobOf(id, "pending") })}, "errors": []object{{"message": "something"}}})
		}))
		_, err := s.list(context.Background(), instance, StatusPending)
		require.ErrorIs(t, err, ErrProtocol)
	})
	t.Run("neither data nor error", func(t *testing.T) {
		s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, object{}) }))
		_, err := s.list(context.Background(), instance, StatusPending)
		require.ErrorIs(t, err, ErrProtocol)
	})
}

func TestScopesAreChecked(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	many := make([]string, MaxScopePaths+1)
	for i := range many {
		many[i] = "a"
	}
	for _, scope := range []Scope{{Kind: 3}, {Kind: -1}, {Kind: Instance, Paths: []string{"a"}}, {Kind: Groups}, {Kind: Projects, Paths: []string{"/"}}, {Kind: Projects, Paths: many}} {
		_, err := s.list(context.Background(), scope, StatusPending)
		require.Error(t, err)
		require.Error(t, s.Check(context.Background(), scope))
	}
	_, err := s.list(context.Background(), instance)
	require.Error(t, err)
	_, err = s.list(context.Background(), instance, make([]string, maxStatuses+1)...)
	require.Error(t, err)
	require.Zero(t, s.count(""))
	require.NoError(t, Scope{Kind: Projects, Paths: many[1:]}.validate())
}

func TestNextPage(t *testing.T) {
	for header, want := range map[string]string{
		``:                                 "",
		`<https://a/x?page=2>; rel="next"`: "page=2",
		`<https://a/x?p=1>; rel="prev", <https://a/x?p=3,4>; rel="next"`: "p=3%2C4",
		`<https://a/x?p=1>; rel="first",<https://a/x?p=9>; rel="last"`:   "",
		`<https://a/x?p=2>; title="rel=prev"; rel=next`:                  "p=2",
		`garbage`: "", `<https://a/x?p=2`: "",
	} {
		q, more, err := nextPage(http.Header{"Link": {header}})
		require.NoError(t, err, header)
		require.Equal(t, want, q.Encode(), header)
		require.Equal(t, want != "", more, header)
	}
	for _, header := range []string{`<https://a/x>; rel="next"`, `<%zz?p=1>; rel="next"`, `<https://a/x?p=%zz>; rel="next"`} {
		_, _, err := nextPage(http.Header{"Link": {header}})
		require.ErrorIs(t, err, ErrProtocol, header)
	}
}

func TestProjectPath(t *testing.T) {
	for address, want := range map[string]string{
		"https://gitlab.example.com/top/sub/app/-/jobs/7": "top/sub/app", "https://gitlab.example.com/": "", "": "", "top/-/jobs/7": "",
	} {
		require.Equal(t, want, projectPath(address), address)
	}
}

func TestQueuedAtCountsBack(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	started := start.Add(-time.Hour)
	require.Equal(t, start.Add(-90*time.Second), queuedAt(f(90), nil, start))
	require.Equal(t, started.Add(-90*time.Second), queuedAt(f(90), &started, start))
	require.Zero(t, queuedAt(nil, nil, start))
	require.Zero(t, queuedAt(f(-1), nil, start))
	require.Zero(t, queuedAt(f(1e300), nil, start))
}

func TestGID(t *testing.T) {
	for text, want := range map[string]gid{`"gid://gitlab/Ci::Build/42"`: 42, `"gid:\/\/gitlab\/Ci::Build\/42"`: 42, `"42"`: 0, `"gid://gitlab/Ci::Build/x"`: 0, `"gid://gitlab/Ci::Build/-1"`: 0, `""`: 0, `null`: 0} {
		var g gid
		require.NoError(t, g.UnmarshalJSON([]byte(text)))
		require.Equal(t, want, g, text)
	}
	var g gid
	require.Error(t, g.UnmarshalJSON([]byte(`7`)))
}

func TestEscapedPathsStayOneSegment(t *testing.T) {
	require.Equal(t, "top%2Fsub", escaped("/top/sub/"))
	u, err := url.Parse("https://a/" + escaped("a/../b?c"))
	require.NoError(t, err)
	require.Equal(t, "/a/../b?c", u.Path)
}
