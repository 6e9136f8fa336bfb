package collect_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

const (
	patience = 90 * time.Second
	often    = 5 * time.Millisecond
	quick    = 50 * time.Millisecond // between two scrapes
)

// What a runner exports besides its jobs, and what it adds while it runs some.
const (
	idlePage = `# HELP gitlab_runner_concurrent The current value of concurrent setting
# TYPE gitlab_runner_concurrent gauge
gitlab_runner_concurrent 4
# TYPE gitlab_runner_limit gauge
gitlab_runner_limit{runner="t1_abc",runner_name="one",system_id="s_1"} 0
# TYPE gitlab_runner_version_info gauge
gitlab_runner_version_info{version="18.9.0"} 1
# TYPE go_goroutines gauge
go_goroutines 12
`
	busyPage = `# TYPE gitlab_runner_jobs gauge
gitlab_runner_jobs{executor_stage="docker_run",runner="t1_abc",runner_name="one",stage="step_script",state="running",system_id="s_1"} 2
gitlab_runner_jobs{executor_stage="",runner="t2_def",runner_name="two",stage="prepare_script",state="running",system_id="s_2"} 1
` + idlePage
)

// pageServer serves what is set at the time.
type pageServer struct {
	*httptest.Server

	answer atomic.Pointer[http.HandlerFunc]
	asked  atomic.Int64
}

func newPageServer(t *testing.T, text string) *pageServer {
	t.Helper()
	s := &pageServer{}
	s.page(text)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *pageServer) set(h http.HandlerFunc) { s.answer.Store(&h) }

func (s *pageServer) page(text string) {
	s.set(withType("text/plain; version=0.0.4; charset=utf-8", text))
}

func (s *pageServer) address() string { return strings.TrimPrefix(s.URL, "http://") }

func withType(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text) // a client that has gone is none of the test's
	}
}

// run runs exporters for the pool "blue" until the test ends.
func run(t *testing.T, pool collect.ExporterPool, change ...func(*collect.ExporterOptions)) *collect.Exporters {
	t.Helper()
	pool.Every = quick
	o := collect.ExporterOptions{Pools: map[string]collect.ExporterPool{"blue": pool}, Timeout: patience}
	for _, c := range change {
		c(&o)
	}
	e, err := collect.NewExporters(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(ctx) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return e
}

func scrapeOf(t *testing.T, e *collect.Exporters, instance string) evidence.Scrape {
	t.Helper()
	var s evidence.Scrape
	require.Eventually(t, func() bool {
		var ok bool
		s, ok = e.Scrapes("blue")[instance]
		return ok
	}, patience, often)
	return s
}

// statusOf waits for a status that is as wanted.
func statusOf(t *testing.T, e *collect.Exporters, wanted func(collect.SourceStatus) bool) collect.SourceStatus {
	t.Helper()
	var s collect.SourceStatus
	require.Eventually(t, func() bool {
		s = e.Status()[0]
		return wanted(s)
	}, patience, often)
	return s
}

// A runner exports gitlab_runner_jobs only while a job runs: who answers and doesn't
// name it has none, and who doesn't answer may have any.
func TestC12_AbsentJobsOfARunnerThatAnswersAreNone(t *testing.T) {
	t.Parallel()
	server := newPageServer(t, busyPage)
	e := run(t, collect.ExporterPool{})
	require.Empty(t, e.Scrapes("blue"))
	require.NotNil(t, e.Scrapes("blue"), "it is asked")
	require.Nil(t, e.Scrapes("green"), "it isn't")
	before := time.Now()
	e.SetInstances("blue", []collect.Target{{Instance: "i-1", Address: server.address()}})
	busy := scrapeOf(t, e, "i-1")
	require.Equal(t, 3, busy.Jobs)
	require.Equal(t, 4, busy.Concurrent)
	require.Equal(t, []string{"s_1", "s_2"}, busy.Systems)
	require.Equal(t, busy.At, busy.LastBusyAt)
	require.WithinRange(t, busy.FirstAt, before, time.Now())

	server.page(idlePage)
	require.Eventually(t, func() bool { return scrapeOf(t, e, "i-1").Jobs == 0 }, patience, often)
	idle := scrapeOf(t, e, "i-1")
	require.Equal(t, busy.FirstAt, idle.FirstAt)
	require.True(t, idle.At.After(idle.LastBusyAt))
	require.False(t, idle.LastBusyAt.Before(busy.At))
	require.Equal(t, []string{"s_1"}, idle.Systems)
	s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Jobs == 0 })
	require.Equal(t, "metrics/blue", s.Name)
	require.Empty(t, s.Err)
	require.False(t, s.Partial)
	require.Positive(t, s.Calls)
}

func TestAJobBetweenTwoLooksIsSeen(t *testing.T) {
	t.Parallel()
	count := func(n int) string {
		return fmt.Sprintf("gitlab_runner_jobs_total{system_id=\"s_1\"} %d\n%s", n, idlePage)
	}
	server := newPageServer(t, count(7))
	e := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": server.address()}})
	require.Zero(t, scrapeOf(t, e, "i-1").LastBusyAt, "what it had before we knew it, nobody saw")
	server.page(count(8))
	require.Eventually(t, func() bool { return !scrapeOf(t, e, "i-1").LastBusyAt.IsZero() }, patience, often)
	last := scrapeOf(t, e, "i-1").LastBusyAt
	server.page(count(0)) // restarted
	asked := server.asked.Load()
	require.Eventually(t, func() bool { return server.asked.Load() > asked+2 }, patience, often)
	require.Equal(t, last, scrapeOf(t, e, "i-1").LastBusyAt, "which is no job")
}

// Whatever else comes says nothing: neither that there are no jobs nor that the runner
// is heard.
func TestC12_WhatIsNoRunnersPageChangesNothing(t *testing.T) {
	t.Parallel()
	html := "<!DOCTYPE html><html><body>Sign in</body></html>"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
		reason collect.ScrapeReason
	}{
		"web page": {withType("text/html; charset=utf-8", html), `"text/html" instead of metrics`, collect.ScrapeNotMetrics},
		"no type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, idlePage)
		}, "instead of metrics", collect.ScrapeNotMetrics},
		"lying web page": {withType("text/plain", html), "no metrics", collect.ScrapeNotMetrics},
		"garbage":        {withType("text/plain", "\x00\x01\x02 gitlab_runner_"), "no metrics", collect.ScrapeNotMetrics},
		"cut off":        {withType("text/plain", idlePage[:len(idlePage)-9]), "no metrics", collect.ScrapeNotMetrics},
		"nothing":        {withType("text/plain", ""), "none of a GitLab runner", collect.ScrapeNoRunner},
		"somebody else":  {withType("text/plain", "# TYPE go_goroutines gauge\ngo_goroutines 12\n"), "none of a GitLab runner", collect.ScrapeNoRunner},
		"names only":     {withType("text/plain", "# TYPE gitlab_runner_jobs gauge\n"), "none of a GitLab runner", collect.ScrapeNoRunner},
		"too large":      {withType("text/plain", idlePage+strings.Repeat("# so much to say\n", collect.MaxPageBytes/16)), "more than 4194304 bytes", collect.ScrapeNotMetrics},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/in?secret=1", http.StatusFound)
		}, `redirects to "https://login.example/in":`, collect.ScrapeStatus},
		"not found":    {http.NotFound, "status 404", collect.ScrapeStatus},
		"broken":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status 502", collect.ScrapeStatus},
		"NaN":          {withType("text/plain", "gitlab_runner_jobs NaN\n"+idlePage), "says NaN", collect.ScrapeBadValue},
		"Inf":          {withType("text/plain", "gitlab_runner_jobs +Inf\n"+idlePage), "says +Inf", collect.ScrapeBadValue},
		"negative":     {withType("text/plain", "gitlab_runner_jobs -1\n"+idlePage), "says -1", collect.ScrapeBadValue},
		"far too many": {withType("text/plain", "gitlab_runner_jobs 1000001\n"+idlePage), "1.000001e+06 jobs", collect.ScrapeBadValue},
		"bad limit":    {withType("text/plain", "gitlab_runner_limit{runner=\"x\"} NaN\ngitlab_runner_version_info 1\n"), "gitlab_runner_limit says NaN", collect.ScrapeBadValue},
		"a histogram":  {withType("text/plain", "# TYPE gitlab_runner_jobs histogram\ngitlab_runner_jobs_bucket{le=\"+Inf\"} 1\ngitlab_runner_jobs_sum 1\ngitlab_runner_jobs_count 1\n"), "else than a number", collect.ScrapeBadValue},
		"short of its length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", fmt.Sprint(len(busyPage)))
			_, _ = io.WriteString(w, idlePage)
		}, "unexpected EOF", collect.ScrapeUnreachable},
		"end unknown": {raw("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + idlePage), "where its answer ends", collect.ScrapeNotMetrics},
		"no HTTP":     {raw("SSH-2.0-OpenSSH_9.2\r\n"), "malformed HTTP", collect.ScrapeUnreachable},
		"hangs up":    {raw(""), "EOF", collect.ScrapeUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newPageServer(t, busyPage)
			var told atomic.Pointer[collect.ScrapeInfo]
			e := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": server.address()}}, func(o *collect.ExporterOptions) {
				o.Changed = func(i collect.ScrapeInfo) { told.Store(&i) }
			})
			require.Equal(t, 3, scrapeOf(t, e, "i-1").Jobs)
			server.set(c.answer)
			s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err != "" })
			require.Contains(t, s.Err, "none of 1 runners answers; i-1: "+server.URL+"/metrics")
			require.Contains(t, s.Err, c.says)
			require.NotContains(t, s.Err, "\n")
			require.NotContains(t, s.Err, "%!")
			require.NotContains(t, s.Err, "secret")
			require.Eventually(t, func() bool { return told.Load() != nil }, patience, often)
			var cause *collect.ScrapeError
			require.ErrorAs(t, told.Load().Err, &cause)
			require.Equal(t, c.reason, cause.Reason)

			kept := scrapeOf(t, e, "i-1")
			require.Equal(t, 3, kept.Jobs)
			asked := server.asked.Load()
			require.Eventually(t, func() bool { return server.asked.Load() > asked+2 }, patience, often)
			require.Equal(t, kept, scrapeOf(t, e, "i-1"), "it grows old")

			server.page(idlePage)
			require.Eventually(t, func() bool { return told.Load().Err == nil }, patience, often)
			statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err == "" && s.Jobs == 0 })
		})
	}
}

// raw answers with these bytes.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

func TestC12_SilentRunnersSayNothing(t *testing.T) {
	t.Parallel()
	server := newPageServer(t, busyPage)
	release := make(chan struct{})
	defer close(release)
	e := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": server.address()}}, func(o *collect.ExporterOptions) { o.Timeout = 50 * time.Millisecond })
	kept := scrapeOf(t, e, "i-1")
	server.set(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err != "" })
	require.Contains(t, s.Err, "doesn't answer in time")
	require.Equal(t, kept.Jobs, scrapeOf(t, e, "i-1").Jobs)

	other := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": peertest.DeadAddress(t)}})
	s = statusOf(t, other, func(s collect.SourceStatus) bool { return s.Err != "" })
	require.Contains(t, s.Err, "connection refused")
	require.Empty(t, other.Scrapes("blue"), "it never answered")
	require.True(t, s.At.IsZero())
}

func TestRunnersOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(withType("text/plain", idlePage))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	address := strings.TrimPrefix(server.URL, "https://")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))

	stranger := run(t, collect.ExporterPool{TLS: true, Targets: map[string]string{"i-1": address}})
	s := statusOf(t, stranger, func(s collect.SourceStatus) bool { return s.Err != "" })
	require.Contains(t, s.Err, "isn't trusted")
	require.Contains(t, s.Err, "set ca_file")

	e := run(t, collect.ExporterPool{TLS: true, CAFile: ca, Targets: map[string]string{"i-1": address}})
	require.Equal(t, 4, scrapeOf(t, e, "i-1").Concurrent)

	_, err := collect.NewExporters(collect.ExporterOptions{Pools: map[string]collect.ExporterPool{"blue": {CAFile: ca + "x"}}})
	require.ErrorContains(t, err, "pool blue: ca_file")
	require.NoError(t, os.WriteFile(ca, []byte("no certificate"), 0o600))
	_, err = collect.NewExporters(collect.ExporterOptions{Pools: map[string]collect.ExporterPool{"blue": {CAFile: ca}}})
	require.ErrorContains(t, err, "no certificate in PEM")
}

func TestCapacityIsWhatConcurrentAndAllLimitsAllow(t *testing.T) {
	t.Parallel()
	limits := func(concurrent string, of ...int) string {
		text := "gitlab_runner_version_info 1\n" + concurrent
		for i, l := range of {
			text += fmt.Sprintf("gitlab_runner_limit{runner=\"%d\"} %d\n", i, l)
		}
		return text
	}
	for name, c := range map[string]struct {
		page string
		want int
	}{
		"concurrent only":    {limits("gitlab_runner_concurrent 4\n"), 4},
		"smaller limits":     {limits("gitlab_runner_concurrent 10\n", 2, 3), 5},
		"larger limits":      {limits("gitlab_runner_concurrent 4\n", 2, 3), 4},
		"one without":        {limits("gitlab_runner_concurrent 4\n", 1, 0), 4},
		"limits only":        {limits("", 3), 3},
		"nothing is said":    {limits(""), 0},
		"more than anything": {limits("gitlab_runner_concurrent 1e15\n"), 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newPageServer(t, c.page)
			e := run(t, collect.ExporterPool{Targets: map[string]string{"i": server.address()}})
			require.Equal(t, c.want, scrapeOf(t, e, "i").Concurrent)
		})
	}
}

// Of more systems than a runner can have the same ones are kept each time.
func TestTheSystemsOfAPageAreBounded(t *testing.T) {
	t.Parallel()
	text := idlePage
	for i := range 90 {
		text += fmt.Sprintf("gitlab_runner_metric_%d{system_id=\"s_%03d\"} 1\n", i, i)
	}
	server := newPageServer(t, text)
	e := run(t, collect.ExporterPool{Targets: map[string]string{"i": server.address()}})
	systems := scrapeOf(t, e, "i").Systems
	require.Len(t, systems, 64)
	require.Equal(t, "s_000", systems[0])
	require.Equal(t, "s_063", systems[63])
}

func TestInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	one, two := newPageServer(t, busyPage), newPageServer(t, idlePage)
	e := run(t, collect.ExporterPool{})
	set := func(targets ...collect.Target) { e.SetInstances("blue", targets) }
	e.SetInstances("green", []collect.Target{{Instance: "i", Address: one.address()}}) // nobody's
	set(collect.Target{Instance: "i-1", Address: one.address()}, collect.Target{Instance: "i-2", Address: two.address()})
	first := scrapeOf(t, e, "i-1")
	require.Zero(t, scrapeOf(t, e, "i-2").Jobs)

	set(collect.Target{Instance: "i-1"}, collect.Target{Instance: "i-3"})
	require.Len(t, e.Scrapes("blue"), 1, "the other has gone, and its word with it")
	s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Partial })
	require.Contains(t, s.Why, "1 of 2 runners don't answer; i-3: no address is known")
	require.Eventually(t, func() bool { return scrapeOf(t, e, "i-1").At.After(first.At) }, patience, often, "its last address is good until there is another")

	set(collect.Target{Instance: "i-1", Address: two.address()})
	require.Eventually(t, func() bool { return scrapeOf(t, e, "i-1").Jobs == 0 }, patience, often)
	require.Equal(t, first.FirstAt, scrapeOf(t, e, "i-1").FirstAt)
	oneAsked, twoAsked := one.asked.Load(), two.asked.Load()
	require.Eventually(t, func() bool {
		if two.asked.Load() < twoAsked+3 {
			return false
		}
		if one.asked.Load() == oneAsked {
			return true
		}
		oneAsked, twoAsked = one.asked.Load(), two.asked.Load()
		return false
	}, patience, often, "nobody asks the old address any more")

	set()
	require.Empty(t, e.Scrapes("blue"))
	set(collect.Target{Instance: "i-1", Address: two.address()})
	require.True(t, scrapeOf(t, e, "i-1").FirstAt.After(first.FirstAt), "the same id anew is another instance")
}

func TestFixedTargetsAreThoseThatTheGroupHas(t *testing.T) {
	t.Parallel()
	server := newPageServer(t, idlePage)
	e := run(t, collect.ExporterPool{Targets: map[string]string{"i-1": server.address(), "i-2": server.address()}})
	scrapeOf(t, e, "i-1")
	scrapeOf(t, e, "i-2")
	e.SetInstances("blue", []collect.Target{{Instance: "i-2", Address: "127.0.0.1:1"}, {Instance: "i-3"}})
	require.Len(t, e.Scrapes("blue"), 1)
	require.Contains(t, e.Scrapes("blue"), "i-2")
	statusOf(t, e, func(s collect.SourceStatus) bool {
		return strings.Contains(s.Why, "i-3: observe.metrics.targets names no address of it: add it there")
	})
}

func TestAddressesWithoutAPort(t *testing.T) {
	t.Parallel()
	var hosts sync.Map
	asked := roundTrip(func(r *http.Request) (*http.Response, error) {
		hosts.Store(r.URL.String(), true)
		return nil, errors.New("nobody is there")
	})
	e := run(t, collect.ExporterPool{Port: 9000, Path: "/m"}, func(o *collect.ExporterOptions) { o.Transport = asked })
	e.SetInstances("blue", []collect.Target{
		{Instance: "a", Address: "10.0.0.1"},
		{Instance: "b", Address: "10.0.0.1:77"},
		{Instance: "c", Address: "fd00::1"},
		{Instance: "d", Address: "[fd00::2]"},
		{Instance: "e", Address: "[fd00::3]:78"},
		{Instance: "f", Address: "host.internal"},
	})
	for _, url := range []string{
		"http://10.0.0.1:9000/m", "http://10.0.0.1:77/m", "http://[fd00::1]:9000/m", "http://[fd00::2]:9000/m", "http://[fd00::3]:78/m", "http://host.internal:9000/m",
	} {
		require.Eventually(t, func() bool { _, ok := hosts.Load(url); return ok }, patience, often, url)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheTargetsFileIsReadAgain(t *testing.T) {
	t.Parallel()
	server := newPageServer(t, idlePage)
	file := filepath.Join(t.TempDir(), "targets.json")
	e := run(t, collect.ExporterPool{TargetsFile: file})
	s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err != "" })
	require.Contains(t, s.Err, "no such file")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	has := func(instances ...string) func() bool {
		return func() bool {
			got := e.Scrapes("blue")
			for _, i := range instances {
				if _, ok := got[i]; !ok {
					return false
				}
			}
			return len(got) == len(instances)
		}
	}
	write(fmt.Sprintf(`{"i-1": %q}`, server.address()))
	require.Eventually(t, has("i-1"), patience, often)
	for text, says := range map[string]string{
		`{"i-1": "nowhere"}`:                   `"nowhere": write HOST:PORT`,
		`{"i-1": "h:metrics"}`:                 `"h:metrics": write HOST:PORT`,
		`{"i-1": "h:0"}`:                       `"h:0": write HOST:PORT`,
		`["i-1"]`:                              "not a JSON object",
		`{"x": "` + strings.Repeat("x", 2<<20): "more than 2097152 bytes",
	} {
		write(text)
		require.Eventually(t, func() bool { return strings.Contains(e.Status()[0].Err, says) }, patience, often, says)
		require.True(t, has("i-1")(), "what it said before stays in force")
	}
	write(fmt.Sprintf(`{"i-1": %[1]q, "i-2": %[1]q}`, server.address()))
	require.Eventually(t, has("i-1", "i-2"), patience, often)
	statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err == "" })
	require.NoError(t, os.Rename(file, file+".away"))
	statusOf(t, e, func(s collect.SourceStatus) bool { return strings.Contains(s.Err, "no such file") })
	require.NoError(t, os.Rename(file+".away", file))
	statusOf(t, e, func(s collect.SourceStatus) bool { return s.Err == "" }) // though it says what it said before
}

// Where it was asked before may be another's by now.
func TestARunnerThatTheFileNamesNoMoreIsNotAsked(t *testing.T) {
	t.Parallel()
	one, two := newPageServer(t, busyPage), newPageServer(t, idlePage)
	file := filepath.Join(t.TempDir(), "targets.json")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(fmt.Sprintf(`{"i-1": %q, "i-2": %q}`, one.address(), two.address()))
	e := run(t, collect.ExporterPool{TargetsFile: file})
	e.SetInstances("blue", []collect.Target{{Instance: "i-1"}, {Instance: "i-2"}})
	require.Equal(t, 3, scrapeOf(t, e, "i-1").Jobs)
	write(fmt.Sprintf(`{"i-2": %q}`, two.address()))
	s := statusOf(t, e, func(s collect.SourceStatus) bool { return s.Partial })
	require.Contains(t, s.Why, "1 of 2 runners don't answer; i-1: observe.metrics.targets_file names no address of it: add it there")
	kept := scrapeOf(t, e, "i-1")
	asked := two.asked.Load()
	require.Eventually(t, func() bool { return two.asked.Load() > asked+3 }, patience, often)
	require.Equal(t, kept, scrapeOf(t, e, "i-1"), "it grows old")
}

// Runners that don't answer hold their places only, and never more than there are.
func TestScrapesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 3
	var now, highest atomic.Int64
	server := newPageServer(t, idlePage)
	page := *server.answer.Load()
	server.set(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
			continue
		}
		page(w, r)
	})
	targets := make([]collect.Target, 40)
	for i := range targets {
		targets[i] = collect.Target{Instance: fmt.Sprintf("i-%d", i), Address: server.address()}
	}
	e := run(t, collect.ExporterPool{}, func(o *collect.ExporterOptions) { o.Scrapes = most })
	e.SetInstances("blue", targets)
	require.Eventually(t, func() bool { return len(e.Scrapes("blue")) == len(targets) }, patience, often)
	require.LessOrEqual(t, highest.Load(), int64(most))
}

// Each is asked once in each interval, at its own time.
func TestScrapesAreSpreadOverTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, every = 300, 15 * time.Second
		var mu sync.Mutex
		asked := map[string][]time.Time{}
		e, err := collect.NewExporters(collect.ExporterOptions{
			Pools: map[string]collect.ExporterPool{"blue": {}},
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[r.URL.Host] = append(asked[r.URL.Host], time.Now())
				return &http.Response{
					StatusCode: http.StatusOK, ProtoMajor: 2, Header: http.Header{"Content-Type": {"text/plain"}},
					Body: io.NopCloser(strings.NewReader(idlePage)), Request: r,
				}, nil
			}),
		})
		require.NoError(t, err)
		targets := make([]collect.Target, instances)
		for i := range targets {
			targets[i] = collect.Target{Instance: fmt.Sprintf("i-%d", i), Address: fmt.Sprintf("h%d:1", i)}
		}
		e.SetInstances("blue", targets)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.Run(ctx) })
		start := time.Now()
		time.Sleep(4*every - time.Millisecond)
		stop()
		wg.Wait()

		perSecond := map[int]int{}
		for host, times := range asked {
			require.Len(t, times, 5, "%s: at once, and then in each interval", host)
			require.Equal(t, start, times[0])
			for i := 2; i < len(times); i++ {
				require.Equal(t, every, times[i].Sub(times[i-1]))
			}
			perSecond[int(times[2].Sub(start)%every/time.Second)]++
		}
		require.Len(t, asked, instances)
		require.Len(t, perSecond, int(every/time.Second))
		for second, n := range perSecond {
			require.Less(t, n, instances/5, "second %d", second)
		}
	})
}

func TestTooManyInstancesAreSaid(t *testing.T) {
	t.Parallel()
	e, err := collect.NewExporters(collect.ExporterOptions{Pools: map[string]collect.ExporterPool{"blue": {}}})
	require.NoError(t, err)
	targets := make([]collect.Target, 10_001)
	for i := range targets {
		targets[i] = collect.Target{Instance: fmt.Sprintf("i-%d", i), Address: "10.0.0.1"}
	}
	e.SetInstances("blue", targets[:10_000])
	require.False(t, e.Status()[0].Partial)
	e.SetInstances("blue", targets)
	require.True(t, e.Status()[0].Partial)
	require.Contains(t, e.Status()[0].Why, "1 instances aren't asked")
}
