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

// A list of this length may take 200 MiB at its peak; it holds with the server in the
// same process.
func TestAHundredThousandJobsFitInBoundedMemory(t *testing.T) {
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
			jobs := jobsOf(t, s, scope)
			require.Len(t, jobs, manyJobs)
			peak := int64(most.Load()) - int64(before.HeapInuse)
			t.Logf("at most %d MiB above %d MiB", peak>>20, before.HeapInuse>>20)
			require.Less(t, peak, int64(200<<20))
			runtime.KeepAlive(jobs)
		})
	}
}

func BenchmarkJobs100kGraphQL(b *testing.B) {
	benchmarkJobs(b, manyGraph(func() {}), instance)
}

func BenchmarkJobs100kREST(b *testing.B) {
	benchmarkJobs(b, manyREST(func() {}), Scope{Kind: Projects, Paths: []string{"top/sub/app"}})
}

// benchmarkJobs reports, besides the usual, what a held list costs [B/job]; the server's
// share is in allocs.
func benchmarkJobs(b *testing.B, h http.Handler, scope Scope) {
	server := httptest.NewServer(h)
	defer server.Close()
	c, err := New(Options{URL: server.URL, Token: func() (string, error) { return apiToken, nil }})
	require.NoError(b, err)
	defer c.http.CloseIdleConnections()
	var before, after runtime.MemStats
	var held struct{ jobs []Job }
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		held.jobs = nil // the last round's is garbage now
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		if held.jobs, err = c.Jobs(context.Background(), scope, StatusPending); err != nil || len(held.jobs) != manyJobs {
			b.Fatal(len(held.jobs), err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/manyJobs, "B/job")
	runtime.KeepAlive(held)
}
