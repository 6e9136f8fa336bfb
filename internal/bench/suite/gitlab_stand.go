package suite

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	"github.com/spillway-ci/spillway/internal/freeport"
)

// The variables that control planes read their secrets from.
const (
	apiTokenVariable    = "BENCH_GITLAB_API_TOKEN"
	runnerTokenVariable = "BENCH_GITLAB_RUNNER_TOKEN"
	hookSecretVariable  = "BENCH_GITLAB_HOOK_SECRET"

	hookSecret = "a-secret-of-a-benchmark"
)

// gitlabProject is where all jobs are.
const gitlabProject = "team/app"

// gitlabShape is how the control planes of one benchmark are configured: all defaults
// but for what is here.
type gitlabShape struct {
	pools   int
	group   asgstub.GroupConfig
	cloud   asgstub.Options
	policy  map[string]any
	section map[string]any             // of gitlab, besides url and route
	route   map[string]any             // of gitlab.route, besides addresses; nil = none
	tunnel  bool                       // runners are to come through a WebSocket
	pool    func(i int) map[string]any // besides name, provider, group and policy
	// before stands before the stand-in of GitLab; nil = nothing does.
	before func(http.Handler) http.Handler
}

// gitlabStand is what control planes of a GitLab's fleet need: Redis, the plugin for
// Auto Scaling, and stand-ins for that and for GitLab. Control planes, plugins and Redis
// are processes of their own; the stand-ins are here.
type gitlabStand struct {
	shape   gitlabShape
	dir     string
	redis   *redisd.Server
	cloud   *cloud
	gitlab  *gitlabServer
	project int64
	token   string // of the runner
	env     []string
	listen  map[string]listenAddresses // by the replica's name
	planes  []*planeProcess            // that have not been ended
}

// listenAddresses is where a replica listens, each time that it is started.
type listenAddresses struct{ gitlab, jobRouter string }

// withGitLab runs a benchmark on a stand of its own, and tells what the control planes
// complained of.
func withGitLab(ctx context.Context, b *bench, f gitlabShape, run func(context.Context, *bench, *gitlabStand) error) error {
	dir, err := os.MkdirTemp("", "spillway-bench-gitlab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := newGitLabStand(ctx, dir, f)
	if err != nil {
		return err
	}
	err = run(ctx, b, s)
	logs := s.logs()
	if stopErr := s.stop(); err == nil {
		err = stopErr
	}
	for _, l := range logs {
		l.complain(b)
	}
	return err
}

// newGitLabStand builds what is needed below dir. No control plane runs yet.
func newGitLabStand(ctx context.Context, dir string, f gitlabShape) (_ *gitlabStand, err error) {
	if err := buildPrograms(ctx, dir, servePlane, asgPlugin); err != nil {
		return nil, err
	}
	s := &gitlabStand{shape: f, dir: dir, listen: map[string]listenAddresses{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.redis, err = redisd.Start(ctx); err != nil {
		return nil, err
	}
	if s.cloud, err = startCloud(f.cloud, f.pools, f.group); err != nil {
		return nil, err
	}
	if s.gitlab, err = startGitLab(f.before); err != nil {
		return nil, err
	}
	s.project = s.gitlab.AddProject(gitlabProject)
	_, s.token = s.gitlab.AddRunner(gitlabtest.RunnerSpec{Tags: []string{routeTag}})
	s.env = append(slices.Clone(cloudEnvironment), apiTokenVariable+"="+s.gitlab.AddAPIToken(gitlabtest.Admin),
		runnerTokenVariable+"="+s.token, hookSecretVariable+"="+hookSecret)
	return s, nil
}

// routeTag is what the stand's runner takes.
const routeTag = "docker"

// start starts a replica. One of the same name has the same addresses each time.
func (s *gitlabStand) start(ctx context.Context, name string) (*planeProcess, error) {
	at, known := s.listen[name]
	if !known {
		var errs [2]error
		at.gitlab, errs[0] = freeAddress()
		at.jobRouter, errs[1] = freeAddress()
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		s.listen[name] = at
	}
	p, err := startPlaneProcess(ctx, s.dir, name, s.configuration(name, at), s.env...)
	if err != nil {
		return nil, err
	}
	s.planes = append(s.planes, p)
	return p, nil
}

// gone notes that a control plane was ended.
func (s *gitlabStand) gone(p *planeProcess) {
	s.planes = slices.DeleteFunc(s.planes, func(other *planeProcess) bool { return other == p })
}

func fromVariable(name string) map[string]any { return map[string]any{"env": name} }

func (s *gitlabStand) configuration(name string, at listenAddresses) map[string]any {
	listen := map[string]any{"runners": "127.0.0.1:0", "api": "127.0.0.1:0", "metrics": "127.0.0.1:0"}
	section := map[string]any{"url": s.gitlab.url}
	maps.Copy(section, s.shape.section)
	if s.shape.route != nil || section["webhook"] != nil {
		listen["gitlab"] = at.gitlab
	}
	if s.shape.route != nil {
		listen["job_router"] = at.jobRouter
		route := map[string]any{"server_url": "grpc://" + at.jobRouter, "advertise": at.jobRouter}
		if s.shape.tunnel {
			route["server_url"] = "ws://" + at.gitlab + controlplane.TunnelPath
		}
		maps.Copy(route, s.shape.route)
		section["route"] = route
	}
	pools := make([]any, s.shape.pools)
	for i := range pools {
		pool := map[string]any{"name": poolName(i), "provider": "aws", "group": groupName(i), "policy": s.shape.policy}
		maps.Copy(pool, s.shape.pool(i))
		pools[i] = pool
	}
	return map[string]any{
		"replica": name, "listen": listen, "log": map[string]any{"format": "json"},
		"store":     map[string]any{"redis": map[string]any{"addrs": []string{s.redis.Addr}}},
		"providers": asgProvider(s.dir, s.cloud.pluginConfig()),
		"gitlab":    section, "pools": pools,
	}
}

// routePool is a pool of route mode that takes the runner's jobs.
func routePool(int) map[string]any {
	return map[string]any{
		"mode": "route", "capability": map[string]any{"tags": []string{routeTag}},
		"gitlab": map[string]any{"token": fromVariable(runnerTokenVariable)},
	}
}

func (s *gitlabStand) logs() (all []*serveLog) {
	for _, p := range s.planes {
		all = append(all, p.log)
	}
	return all
}

// stop takes all down that still runs.
func (s *gitlabStand) stop() error {
	var errs []error
	for _, p := range s.planes {
		errs = append(errs, p.stop())
	}
	s.planes = nil
	if s.gitlab != nil {
		s.gitlab.stop()
	}
	if s.cloud != nil {
		s.cloud.stop()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	return errors.Join(errs...)
}

// gitlabServer is a stand-in for GitLab on a socket.
type gitlabServer struct {
	*gitlabtest.Server

	url     string
	server  *http.Server
	serving sync.WaitGroup
}

func startGitLab(before func(http.Handler) http.Handler) (*gitlabServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// A token is asked with more often than GitLab allows when replicas do it that should not,
	// and that is to be seen.
	g := &gitlabServer{Server: gitlabtest.New(gitlabtest.Options{RequestsPerMinute: -1}), url: "http://" + l.Addr().String()}
	var handler http.Handler = g.Server
	if before != nil {
		handler = before(handler)
	}
	g.server = &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	g.serving.Go(func() { _ = g.server.Serve(l) }) // ends with Close
	return g, nil
}

func (g *gitlabServer) stop() {
	_ = g.server.Close()
	g.serving.Wait()
	g.Close()
}

// freeAddress is one that is free now, for those who must know it before they listen.
func freeAddress() (string, error) {
	port, err := freeport.Find(nil)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
