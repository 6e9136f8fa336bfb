package minirunner_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/scriptrouter"
)

const patience = 90 * time.Second

// serve serves a router over TCP and returns the address.
func serve(t *testing.T, r *scriptrouter.Router, opts ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := r.Server(opts...)
	var done sync.WaitGroup
	done.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		g.Stop()
		done.Wait()
	})
	return l.Addr().String()
}

// tunnel serves a router over WebSockets and returns the server.
func tunnel(t *testing.T, r *scriptrouter.Router, secure bool) *httptest.Server {
	t.Helper()
	handler, closeAll := r.Tunnel()
	web := httptest.NewUnstartedServer(handler)
	if secure {
		web.StartTLS()
	} else {
		web.Start()
	}
	t.Cleanup(func() {
		closeAll()
		web.Close()
	})
	return web
}

type lab struct {
	*gitlabtest.Server
	t       *testing.T
	url     string
	project int64
	token   string
}

func newLab(t *testing.T) (*lab, *scriptrouter.Router) {
	t.Helper()
	l := &lab{Server: gitlabtest.New(gitlabtest.Options{}), t: t}
	web := httptest.NewServer(l.Server)
	t.Cleanup(func() {
		web.Close()
		l.Close()
	})
	l.url, l.project = web.URL, l.AddProject("acme/web")
	_, l.token = l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	return l, scriptrouter.New(web.URL)
}

func (l *lab) runner(change func(*minirunner.Options)) *minirunner.Runner {
	l.t.Helper()
	r := l.made(change)
	l.run(r)
	return r
}

// made is a runner that does not run.
func (l *lab) made(change func(*minirunner.Options)) *minirunner.Runner {
	l.t.Helper()
	o := minirunner.Options{
		URL: l.url, Token: l.token, SystemID: "s_one", Router: true, WorkDir: l.t.TempDir(),
		Times: minirunner.GitLabTimes().Scaled(0.005),
	}
	o.Times.Discovery = time.Hour // no test lasts until it is asked again
	if change != nil {
		change(&o)
	}
	r, err := minirunner.New(o)
	require.NoError(l.t, err)
	return r
}

func (l *lab) run(r *minirunner.Runner) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.Run(ctx) })
	l.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (l *lab) until(what func() bool) {
	l.t.Helper()
	require.Eventually(l.t, what, patience, 2*time.Millisecond)
}

func (l *lab) succeeds(id int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := l.Wait(ctx, id, gitlabtest.Success)
	require.NoError(l.t, err)
}

func TestGetJobOverEveryTransport(t *testing.T) {
	for name, offer := range map[string]func(*testing.T, *scriptrouter.Router) (url, caFile string){
		"grpc": func(t *testing.T, s *scriptrouter.Router) (string, string) { return "grpc://" + serve(t, s), "" },
		"grpcs": func(t *testing.T, s *scriptrouter.Router) (string, string) {
			web := tunnel(t, s, true) // for its certificate
			config := web.TLS.Clone()
			config.NextProtos = []string{"h2"}
			return "grpcs://" + serve(t, s, grpc.Creds(credentials.NewTLS(config))), certificate(t, web)
		},
		"ws": func(t *testing.T, s *scriptrouter.Router) (string, string) {
			return "ws" + strings.TrimPrefix(tunnel(t, s, false).URL, "http"), ""
		},
		"wss": func(t *testing.T, s *scriptrouter.Router) (string, string) {
			web := tunnel(t, s, true)
			return "wss" + strings.TrimPrefix(web.URL, "https"), certificate(t, web)
		},
	} {
		for rpc, isOld := range map[string]bool{"19": false, "18.8": true} {
			t.Run(name+" "+rpc, func(t *testing.T) {
				l, s := newLab(t)
				url, ca := offer(t, s)
				l.SetRouter(url)
				id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"echo hi"}})
				r := l.runner(func(o *minirunner.Options) {
					o.CAFile, o.OldRPC = ca, isOld
					o.Labels = map[string]string{"spillway-pool": "linux"}
				})
				l.succeeds(id)
				l.until(func() bool { return len(s.Calls()) >= 3 })
				require.Zero(t, r.Stats().Direct)
				calls := s.Calls()
				require.Equal(t, []string{"Bearer " + l.token}, calls[0].Metadata.Get("authorization"))
				require.Equal(t, []string{"runner"}, calls[0].Metadata.Get("gitlab-agent-type"))
				require.Regexp(t, "^[0-9a-f]{32}$", calls[0].Metadata.Get("x-request-id")[0])
				require.Equal(t, "s_one", calls[0].Request.SystemID)
				require.Equal(t, "linux", calls[0].Request.Info.Labels["spillway-pool"])
				require.True(t, calls[0].Request.Info.Features["two_phase_job_commit"])
				require.Empty(t, calls[0].Request.LastUpdate)
				require.NotEmpty(t, calls[len(calls)-1].Request.LastUpdate, "it is echoed")
			})
		}
	}
}

func certificate(t *testing.T, web *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}

func TestUnimplementedGoesToGitLabAtOnce(t *testing.T) {
	l, s := newLab(t)
	l.SetRouter("grpc://" + serve(t, s))
	s.Follow(scriptrouter.Script{Code: codes.Unimplemented})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	r := l.runner(nil)
	l.succeeds(id)
	l.until(func() bool { return r.Stats().Discoveries >= 3 })
	require.Equal(t, "closed", r.Stats().Breaker)
	require.False(t, r.Stats().Off)
	calls := len(s.Calls()) // it goes on calling
	require.GreaterOrEqual(t, r.Stats().Direct, calls-1, "each call is followed by a direct one")
}

func TestBreakerGoesAroundARouterThatIsAway(t *testing.T) {
	l, s := newLab(t)
	l.SetRouter("grpc://" + serve(t, s))
	s.Follow(scriptrouter.Script{Code: codes.Unavailable})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	r := l.runner(nil)
	l.succeeds(id)
	l.until(func() bool { return r.Stats().Trips >= 2 })
	require.False(t, r.Stats().Off, "a router that is away makes no runner unhealthy")
	s.Follow(scriptrouter.Script{Code: codes.OK})
	l.until(func() bool { return r.Stats().Breaker == "closed" })
	routed := len(s.Calls())
	l.until(func() bool { return len(s.Calls()) > routed+3 })
	require.Equal(t, 1, r.Stats().Discoveries, "where the router is stays known")
}

func TestThreeStrikesTurnARunnerOff(t *testing.T) {
	for name, spoil := range map[string]func(*scriptrouter.Router){
		"Internal":          func(s *scriptrouter.Router) { s.Follow(scriptrouter.Script{Code: codes.Internal}) },
		"ResourceExhausted": func(s *scriptrouter.Router) { s.Follow(scriptrouter.Script{Code: codes.ResourceExhausted}) },
		"Unauthenticated":   func(s *scriptrouter.Router) { s.Follow(scriptrouter.Script{Code: codes.Unauthenticated}) },
		"garbage":           func(s *scriptrouter.Router) { s.Follow(scriptrouter.Script{Garbage: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newLab(t)
			l.SetRouter("grpc://" + serve(t, s))
			spoil(s)
			const off = 300 * time.Millisecond
			began := time.Now()
			r := l.runner(func(o *minirunner.Options) { o.Times.Unhealthy = off })
			l.until(func() bool { return r.Stats().Off })
			require.Zero(t, r.Stats().Direct)
			l.until(func() bool { return len(s.Calls()) > 3 })
			require.GreaterOrEqual(t, s.Calls()[3].At.Sub(began), off, "it asks again when it has been off")
			require.Equal(t, "closed", r.Stats().Breaker)
		})
	}
}

func TestNoRouterIsRememberedToo(t *testing.T) {
	l, s := newLab(t)
	r := l.runner(nil)
	l.until(func() bool { return r.Stats().Direct >= 3 })
	l.SetRouter("grpc://" + serve(t, s))
	l.until(func() bool { return r.Stats().Direct >= 6 })
	require.Equal(t, 1, r.Stats().Discoveries)
	require.Empty(t, s.Calls())
}

func TestDiscoveryIsTriedFiveTimes(t *testing.T) {
	l, s := newLab(t)
	l.SetRouter("grpc://" + serve(t, s))
	l.Fail(gitlabtest.Fault{Route: gitlabtest.RouteDiscovery, Times: 4, Status: http.StatusServiceUnavailable})
	r := l.runner(nil)
	l.until(func() bool { return len(s.Calls()) > 0 })
	require.Len(t, l.CallsTo(gitlabtest.RouteDiscovery), 5)
	require.Equal(t, 1, r.Stats().Discoveries)
}

func TestQuitGivesUpTheOpenCall(t *testing.T) {
	l, s := newLab(t)
	l.SetRouter("grpc://" + serve(t, s))
	s.Follow(scriptrouter.Script{Hold: true})
	r := l.runner(nil)
	l.until(func() bool { return len(s.Calls()) == 1 })
	r.Quit()
	l.until(func() bool { return s.Left() == 1 })
}

func TestMetrics(t *testing.T) {
	l, _ := newLab(t)
	gate := filepath.Join(t.TempDir(), "gate")
	r := l.made(func(o *minirunner.Options) { o.Router, o.Concurrent, o.Name = false, 3, "mini" })
	scrape := func() string {
		w := httptest.NewRecorder()
		r.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	require.NotContains(t, scrape(), "gitlab_runner_jobs{")
	require.Contains(t, scrape(), "gitlab_runner_concurrent 3\n")
	l.run(r)
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{fmt.Sprintf("until [ -e %s ]; do sleep 0.02; done", gate)}})
	l.until(func() bool { return strings.Contains(scrape(), `state="running"`) })
	busy := scrape()
	require.Contains(t, busy, `system_id="s_one"} 1`)
	require.Contains(t, busy, `runner_name="mini"`)
	require.Contains(t, busy, "gitlab_runner_job_queue_size{")
	require.Contains(t, busy, "gitlab_runner_job_queue_duration_seconds_count{")
	require.NotContains(t, busy, l.token)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	l.succeeds(id)
	l.until(func() bool { return strings.Contains(scrape(), `state="idle",system_id="s_one"} 0`) })
}

func TestOptions(t *testing.T) {
	for _, o := range []minirunner.Options{
		{},
		{URL: "http://a"},
		{URL: "ftp://a", Token: "t"},
		{URL: "http://a", Token: "t", Concurrent: -1},
		{URL: "http://a", Token: "t", CAFile: "/nothing"},
	} {
		_, err := minirunner.New(o)
		require.ErrorIs(t, err, minirunner.ErrOptions)
	}
}
