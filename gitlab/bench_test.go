package gitlab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const manyJobs = 100_000

// manyGraph answers with pages of many jobs, made by hand so that the server costs little:
// 40 tag lists, 500 projects, each job with a name of its own.
func manyGraph(atPage func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		from := 0
		if _, after, found := strings.Cut(string(body), `"after":"`); found {
			from, _ = strconv.Atoi(after[:strings.IndexByte(after, '"')])
		}
		w.Header().Set("Content-Type", "application/json")
		var b strings.Builder
		b.WriteString(`{"data":{"jobs":{"nodes":[`)
		for i := from; i < from+PageSize; i++ {
			if i > from {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":"gid://gitlab/Ci::Build/%d","status":"PENDING","name":"test %d","tags":["docker","linux-%d"],"createdAt":"2030-05-17T11:00:00Z","queuedAt":"2030-05-17T11:59:00Z","refName":"branch-%d","createdByTag":false,"stage":{"name":"test"},"project":{"id":"gid://gitlab/Project/%d","fullPath":"top/sub/app-%d"},"pipeline":{"id":"gid://gitlab/Ci::Pipeline/%d","status":"RUNNING"},"runner":null,"runnerManager":null}`,
				manyJobs-i, i, i%40, i%3000, i%500+1, i%500+1, i/20)
		}
		fmt.Fprintf(&b, `],"pageInfo":{"hasNextPage":%t,"endCursor":"%d"}}}}`, from+PageSize < manyJobs, from+PageSize)
		atPage()
		_, _ = io.WriteString(w, b.String())
	}
}

// manyREST is the same over REST, with all that GitLab sends of a job and we don't read.
func manyREST(atPage func()) http.HandlerFunc {
	padding := strings.Repeat("a line of a commit message ", 20)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/graphql" {
			http.NotFound(w, r)
			return
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		if from+PageSize < manyJobs {
			q := r.URL.Query()
			q.Set("cursor", strconv.Itoa(from+PageSize))
			w.Header().Set("Link", `<https://gitlab.example.com/api?`+q.Encode()+`>; rel="next"`)
		}
		w.Header().Set("Content-Type", "application/json")
		atPage()
		_, _ = io.WriteString(w, "[")
		for i := from; i < from+PageSize; i++ {
			if i > from {
				_, _ = io.WriteString(w, ",")
			}
			fmt.Fprintf(w, `{"id":%d,"status":"pending","stage":"test","name":"test %d","ref":"branch-%d","tag":false,"created_at":"2030-05-17T11:00:00Z","started_at":null,"queued_duration":60.5,"user":{"id":1,"name":"x","bio":%q},"commit":{"id":"0ff3ae198f8601a285adcf5c0fff204ee6fba5fd","message":%q},"pipeline":{"id":%d,"project_id":%d,"status":"running"},"web_url":"https://gitlab.example.com/top/sub/app-%d/-/jobs/%d","artifacts":[],"runner":null,"runner_manager":null,"tag_list":["docker","linux-%d"]}`,
				manyJobs-i, i, i%3000, padding, padding, i/20, i%500+1, i%500+1, manyJobs-i, i%40)
		}
		_, _ = io.WriteString(w, "]")
	}
}

// maxListBytes is what a list of any length may take while it is read [bytes]: some pages.
// It holds with the server in the same process.
const maxListBytes = 32 << 20

func TestAHundredThousandJobsTakeTheMemoryOfAPage(t *testing.T) {
	if testing.Short() {
		t.Skip("lists 200,000 jobs")
	}
	for name, api := range map[string]func(func()) http.HandlerFunc{"GraphQL": manyGraph, "REST": manyREST} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			var most atomic.Uint64
			page := 0
			s := newStage(t, api(func() {
				if page++; page%20 == 0 {
					runtime.ReadMemStats(&now)
					most.Store(max(most.Load(), now.HeapInuse))
				}
			}))
			scope := instance
			if name == "REST" {
				scope = Scope{Kind: Projects, Paths: []string{"top/sub/app"}}
			}
			require.Equal(t, manyJobs, countJobs(t, s.Client, scope))
			peak := int64(most.Load()) - int64(before.HeapInuse)
			t.Logf("at most %.1f MiB above %d MiB", float64(peak)/(1<<20), before.HeapInuse>>20)
			require.Positive(t, most.Load())
			require.Less(t, peak, int64(maxListBytes))
		})
	}
}

// countJobs reads a list and keeps nothing of it.
func countJobs(t testing.TB, c *Client, scope Scope) (jobs int) {
	t.Helper()
	for _, err := range c.Jobs(context.Background(), scope, StatusPending) {
		require.NoError(t, err)
		jobs++
	}
	return jobs
}

func BenchmarkJobs100kGraphQL(b *testing.B) {
	benchmarkJobs(b, manyGraph(func() {}), instance)
}

func BenchmarkJobs100kREST(b *testing.B) {
	benchmarkJobs(b, manyREST(func() {}), Scope{Kind: Projects, Paths: []string{"top/sub/app"}})
}

// benchmarkJobs reads lists; the server's share is in what it reports.
func benchmarkJobs(b *testing.B, h http.Handler, scope Scope) {
	server := httptest.NewServer(h)
	defer server.Close()
	c, err := New(Options{URL: server.URL, Token: func() (string, error) { return apiToken, nil }})
	require.NoError(b, err)
	defer c.http.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		if jobs := countJobs(b, c, scope); jobs != manyJobs {
			b.Fatal(jobs)
		}
	}
}
