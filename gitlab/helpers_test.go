package gitlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const apiToken = "glpat-Very-Secret-0123456789"

var start = time.Date(2030, 5, 17, 12, 0, 0, 0, time.UTC)

// stage is a client, the server that it talks to, and its clock, which moves only when
// the client waits.
type stage struct {
	*Client
	server *httptest.Server

	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
	calls []string // "GET /api/v4/…" or "POST /api/graphql"
}

func newStage(t testing.TB, h http.Handler, change ...func(*Options)) *stage {
	t.Helper()
	s := &stage{now: start}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.EscapedPath())
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	o := Options{URL: s.server.URL, Token: func() (string, error) { return apiToken, nil }, Now: s.clock}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	require.NoError(t, err)
	c.wait = s.sleep
	s.Client = c
	t.Cleanup(c.http.CloseIdleConnections)
	return s
}

func (s *stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stage) sleep(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return false
	default:
	}
	s.pass(d)
	return true
}

func (s *stage) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	s.waits = append(s.waits, d)
}

// count is the number of calls that begin with a prefix.
func (s *stage) count(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

type object = map[string]any

// graphQuestion is a query as it arrives.
type graphQuestion struct {
	Query     string
	Variables struct {
		Path     string
		ID       string
		After    *string
		Statuses []string
	}
}

// graphAPI answers queries with data.
func graphAPI(data func(graphQuestion) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q graphQuestion
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Header.Get("Authorization") != "Bearer "+apiToken {
			writeJSON(w, http.StatusUnauthorized, object{"errors": []object{{"message": "Invalid token"}}})
			return
		}
		writeJSON(w, http.StatusOK, object{"data": data(q)})
	}
}

// graphError answers a query with an error, as GitLab does: with status 200.
func graphErrorAPI(message, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		e := object{"message": message}
		if code != "" {
			e["extensions"] = object{"code": code}
		}
		writeJSON(w, http.StatusOK, object{"errors": []object{e}})
	}
}

func graphJobOf(id int64, status string) object {
	return object{
		"id": fmt.Sprintf("gid://gitlab/Ci::Build/%d", id), "status": strings.ToUpper(status), "name": "test", "tags": []string{"docker", "linux"},
		"createdAt": start.Add(-time.Hour), "queuedAt": start.Add(-time.Minute), "refName": "main", "createdByTag": false,
		"stage": object{"name": "build"}, "project": object{"id": "gid://gitlab/Project/7", "fullPath": "top/sub/app"},
		"pipeline": object{"id": "gid://gitlab/Ci::Pipeline/70", "status": "RUNNING"}, "runner": nil, "runnerManager": nil,
	}
}

// graphList is page after of n jobs, the newest first, 100 to a page.
func graphList(n int, after *string, node func(id int64) object) object {
	from := 0
	if after != nil {
		from, _ = strconv.Atoi(*after)
	}
	to := min(from+PageSize, n)
	nodes := []object{}
	for i := from; i < to; i++ {
		nodes = append(nodes, node(int64(n-i)))
	}
	return object{"nodes": nodes, "pageInfo": object{"hasNextPage": to < n, "endCursor": strconv.Itoa(to)}}
}

func restJobOf(id int64, status string) object {
	return object{
		"id": id, "status": status, "name": "test", "stage": "build", "ref": "main", "tag": false, "tag_list": []string{"docker", "linux"},
		"created_at": start.Add(-time.Hour), "started_at": nil, "queued_duration": 60.0,
		"pipeline": object{"id": 70, "project_id": 7, "status": "running", "ref": "main"}, "runner": nil, "runner_manager": nil,
		"web_url": "https://gitlab.example.com/top/sub/app/-/jobs/" + strconv.FormatInt(id, 10),
		"commit":  object{"message": "a commit", "id": "0ff3ae19"}, "user": object{"name": "somebody"}, "artifacts": []object{},
	}
}

// restList writes a page of a keyset list of n entries and its Link header, whose host is
// one that must never be asked.
func restList(w http.ResponseWriter, r *http.Request, n int, entry func(id int64) any) {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	to := min(from+max(size, 1), n)
	if to < n {
		q := r.URL.Query()
		q.Set("cursor", strconv.Itoa(to))
		w.Header().Set("Link", fmt.Sprintf(`<https://another.example.com%s?%s>; rel="next", <https://another.example.com/>; rel="first"`, r.URL.Path, q.Encode()))
	}
	list := []any{}
	for i := from; i < to; i++ {
		list = append(list, entry(int64(n-i)))
	}
	writeJSON(w, http.StatusOK, list)
}

func jobIDs(jobs []Job) []int64 {
	var out []int64
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	slices.Sort(out)
	return out
}

func upTo(n int64) []int64 {
	var out []int64
	for id := int64(1); id <= n; id++ {
		out = append(out, id)
	}
	return out
}

// unused reads a request away and says nothing.
func discard(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// list reads a list to its end: every job that came, and the error, after which nothing
// may come.
func (s *stage) list(ctx context.Context, scope Scope, statuses ...string) (jobs []Job, failed error) {
	for j, err := range s.Jobs(ctx, scope, statuses...) {
		switch {
		case failed != nil:
			return nil, errors.New("something came after the error")
		case err != nil:
			failed = err
		default:
			jobs = append(jobs, j)
		}
	}
	return jobs, failed
}

func jobsOf(t *testing.T, s *stage, scope Scope) []Job {
	t.Helper()
	jobs, err := s.list(context.Background(), scope, StatusPending, StatusRunning)
	require.NoError(t, err)
	return jobs
}
