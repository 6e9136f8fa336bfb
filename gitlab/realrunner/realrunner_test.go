package realrunner_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest/scriptrouter"
	"github.com/spillway-ci/spillway/gitlab/realrunner"
	"github.com/spillway-ci/spillway/internal/peertest"
)

const (
	patience = 60 * time.Second
	without  = "no real gitlab-runner was driven"
)

type lab struct {
	*gitlabtest.Server
	t       *testing.T
	url     string
	token   string
	project int64
	router  *scriptrouter.Router
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Server: gitlabtest.New(gitlabtest.Options{}), t: t}
	web := httptest.NewServer(l.Server)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		l.Close()
	})
	l.url = web.URL
	l.project = l.AddProject("acme/web")
	_, l.token = l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	l.router = scriptrouter.New(web.URL)
	return l
}

// grpc serves the router and tells runners of it.
func (l *lab) grpc() {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(l.t, err)
	server := l.router.Server()
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	l.t.Cleanup(func() {
		server.Stop()
		done.Wait()
	})
	l.SetRouter("grpc://" + listener.Addr().String())
}

func (l *lab) ws() {
	handler, closeAll := l.router.Tunnel()
	web := httptest.NewServer(handler)
	l.t.Cleanup(func() {
		closeAll()
		web.Close()
	})
	l.SetRouter("ws" + strings.TrimPrefix(web.URL, "http"))
}

func (l *lab) start(binary string, change func(*realrunner.Options)) *realrunner.Process {
	o := realrunner.Options{URL: l.url, Token: l.token, Name: "real", Router: true}
	if change != nil {
		change(&o)
	}
	return realrunner.Start(l.t, binary, o)
}

func (l *lab) wait(id int64, status string) gitlabtest.JobView {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	v, err := l.Wait(ctx, id, status)
	require.NoError(l.t, err)
	return v
}

func TestARealRunnerGetsItsJobByGetJob(t *testing.T) {
	binary := realrunner.Binary(t, without)
	for name, serve := range map[string]func(*lab){"grpc": (*lab).grpc, "ws": (*lab).ws} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			serve(l)
			id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{`echo "hello from $CI_JOB_ID"`}})
			l.start(binary, func(o *realrunner.Options) { o.Labels = map[string]string{"spillway-pool": "linux"} })
			v := l.wait(id, gitlabtest.Success)
			require.Contains(t, v.Trace, fmt.Sprintf("hello from %d", id))
			require.Contains(t, v.Trace, "Job succeeded")
			require.Empty(t, l.direct(), "all went by the router")
			call := l.router.Calls()[0]
			require.Equal(t, []string{"Bearer " + l.token}, call.Metadata.Get("authorization"))
			require.Equal(t, "linux", call.Request.Info.Labels["spillway-pool"])
			require.Equal(t, v.SystemID, call.Request.SystemID)
		})
	}
}

// direct are the requests for a job that did not come from the router.
func (l *lab) direct() []gitlabtest.Call {
	return slices.DeleteFunc(l.CallsTo(gitlabtest.RouteRequestJob), func(c gitlabtest.Call) bool {
		return strings.HasPrefix(c.Header.Get("User-Agent"), "Go-http-client")
	})
}

func TestUnimplementedSendsARealRunnerToGitLab(t *testing.T) {
	binary := realrunner.Binary(t, without)
	l := newLab(t)
	l.grpc()
	l.router.Follow(scriptrouter.Script{Code: codes.Unimplemented})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	p := l.start(binary, nil)
	l.wait(id, gitlabtest.Success)
	require.NotEmpty(t, l.direct())
	require.NotContains(t, p.Log(), "is unhealthy")
}

// A replica that drains says 503, and the next one is found; 501 is kept for an hour.
func TestARealRunnerLooksForARouterAgainAfter503(t *testing.T) {
	binary := realrunner.Binary(t, without)
	for status, found := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusNotImplemented: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			l := newLab(t)
			l.grpc()
			l.Fail(gitlabtest.Fault{Route: gitlabtest.RouteDiscovery, Times: 2, Status: status})
			id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
			l.start(binary, nil)
			l.wait(id, gitlabtest.Success)
			require.Equal(t, found, len(l.direct()) == 0)
			require.Equal(t, found, len(l.router.Calls()) > 0)
		})
	}
}

func TestThreeStrikesTurnARealRunnerOff(t *testing.T) {
	binary := realrunner.Binary(t, without)
	l := newLab(t)
	l.grpc()
	l.router.Follow(scriptrouter.Script{Code: codes.ResourceExhausted})
	p := l.start(binary, nil)
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), "is unhealthy and will be disabled") }, patience, 50*time.Millisecond)
	require.Len(t, l.router.Calls(), 3)
	require.Empty(t, l.direct())
}

func TestARealRunnersBreakerGoesAroundTheRouter(t *testing.T) {
	binary := realrunner.Binary(t, without)
	l := newLab(t)
	l.grpc()
	l.router.Follow(scriptrouter.Script{Code: codes.Unavailable})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	p := l.start(binary, nil)
	l.wait(id, gitlabtest.Success)
	require.Contains(t, p.Log(), "circuit breaker tripped")
	require.GreaterOrEqual(t, len(l.router.Calls()), 3)
}

func TestQUITLetsARealRunnerFinish(t *testing.T) {
	binary := realrunner.Binary(t, without)
	l := newLab(t)
	l.grpc()
	gate := filepath.Join(t.TempDir(), "gate")
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"until [ -e " + gate + " ]; do sleep 0.1; done"}})
	second := l.Enqueue(gitlabtest.JobSpec{Project: l.project})
	metrics := peertest.FreeAddress(t)
	p := l.start(binary, func(o *realrunner.Options) { o.Metrics = metrics })
	l.wait(id, gitlabtest.Running)
	require.Eventually(t, func() bool { return strings.Contains(scrape(metrics), "gitlab_runner_jobs{") }, patience, 50*time.Millisecond)
	p.Signal(t, syscall.SIGQUIT)
	require.Eventually(t, func() bool { return strings.Contains(p.Log(), "graceful shutdown") }, patience, 50*time.Millisecond)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	l.wait(id, gitlabtest.Success)
	require.Equal(t, 0, p.ExitCode(t, patience))
	v, _ := l.Job(second)
	require.Equal(t, gitlabtest.Pending, v.Status)
}

func TestARealRunnerStopsACanceledJob(t *testing.T) {
	binary := realrunner.Binary(t, without)
	l := newLab(t)
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"while :; do echo on; sleep 0.5; done"}})
	l.start(binary, func(o *realrunner.Options) { o.Router = false })
	l.wait(id, gitlabtest.Running)
	l.Cancel(id)
	require.Equal(t, "job_canceled", l.wait(id, gitlabtest.Canceled).FailureReason)
}

// TestTheDoubleIsLikeTheRealOne holds what minirunner says on the wire against what
// gitlab-runner says.
func TestTheDoubleIsLikeTheRealOne(t *testing.T) {
	binary := realrunner.Binary(t, without)
	spec := gitlabtest.JobSpec{Script: []string{"echo one", "sleep 4", "echo two", "exit 3"}}
	real := newLab(t)
	real.grpc()
	spec.Project = real.project
	realJob := real.Enqueue(spec)
	real.start(binary, nil)
	realEnd := real.wait(realJob, gitlabtest.Failed)

	mini := newLab(t)
	mini.grpc()
	spec.Project = mini.project
	miniJob := mini.Enqueue(spec)
	r, err := minirunner.New(minirunner.Options{URL: mini.url, Token: mini.token, Router: true, WorkDir: t.TempDir()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.Run(ctx) })
	defer done.Wait()
	defer cancel()
	miniEnd := mini.wait(miniJob, gitlabtest.Failed)

	require.Equal(t, realEnd.FailureReason, miniEnd.FailureReason)
	require.Equal(t, realEnd.ExitCode, miniEnd.ExitCode)
	require.Equal(t, steps(real.Server), steps(mini.Server))
	for _, route := range []string{gitlabtest.RouteDiscovery, gitlabtest.RouteUpdateJob, gitlabtest.RoutePatchTrace} {
		require.Equal(t, headers(real.CallsTo(route)[0]), headers(mini.CallsTo(route)[0]), route)
	}
	realCall, miniCall := real.router.Calls()[0], mini.router.Calls()[0]
	for _, name := range []string{"authorization", "gitlab-agent-type", "x-request-id"} {
		require.Len(t, miniCall.Metadata.Get(name), len(realCall.Metadata.Get(name)), name)
	}
	require.Equal(t, realCall.Request.Info.Executor, miniCall.Request.Info.Executor)
	for feature, has := range miniCall.Request.Info.Features {
		require.Equal(t, realCall.Request.Info.Features[feature], has, feature)
	}
}

// steps are what a runner did about its job, without repetitions.
func steps(s *gitlabtest.Server) []string {
	var all []string
	for _, c := range s.Calls() {
		if c.Route == gitlabtest.RouteRequestJob && c.Status == http.StatusNoContent {
			continue
		}
		all = append(all, strings.TrimSpace(fmt.Sprintln(c.Route, c.State, c.Status)))
	}
	return slices.Compact(all)
}

var idle = regexp.MustCompile(`^(Accept-Encoding|User-Agent|Content-Length|Sentry-.*|Traceparent|Baggage)$`)

// headers are the names of a call's headers that mean something.
func headers(c gitlabtest.Call) []string {
	var names []string
	for name := range c.Header {
		if !idle.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func scrape(address string) string {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	var text strings.Builder
	_, _ = fmt.Fprint(&text, response.Status, "\n")
	buffer := make([]byte, 64<<10)
	for {
		n, err := response.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return text.String()
		}
	}
}
