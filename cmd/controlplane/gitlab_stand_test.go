package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/internal/peertest"
)

// gitlabStand is a stand-in of GitLab with one project and one runner, whose machines
// are real processes.
type gitlabStand struct {
	t        *testing.T
	gitlab   *gitlabtest.Server
	url      string
	project  int64
	runner   int64
	token    string // of the runner
	apiToken string

	redis             string // empty: the store is inside the process
	listen, jobRouter string // addresses of the first replica
	dir               string
}

func newGitLabStand(t *testing.T, o gitlabtest.Options) *gitlabStand {
	t.Helper()
	s := &gitlabStand{t: t, gitlab: gitlabtest.New(o), dir: t.TempDir(), listen: peertest.FreeAddress(t), jobRouter: peertest.FreeAddress(t)}
	server := httptest.NewServer(s.gitlab)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(s.gitlab.Close)
	s.url = server.URL
	s.project = s.gitlab.AddProject("team/app")
	s.runner, s.token = s.gitlab.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}, RunUntagged: true})
	s.apiToken = s.gitlab.AddAPIToken(gitlabtest.Admin)
	s.secret("runner", s.token)
	s.secret("api", s.apiToken)
	s.secret("sidecar", "a-token-of-a-test")
	s.secret("hook", "a-secret-of-a-test")
	return s
}

func (s *gitlabStand) secret(name, value string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(value), 0o600))
}

// fleet is how the stand's one pool is configured.
type fleet struct {
	replica  string   // its name; empty: its own
	gitlab   string   // settings of the gitlab section, besides the URL
	pool     string   // settings of the pool, besides name, provider and policy
	policy   string   // besides max and idle_time
	provider string   // settings of the pool's provider; empty: instances are processes
	command  []string // of such an instance, besides the runner's URL, token, name and metrics
	url      string   // that the runners have; empty: GitLab's own
	sidecar  bool
	stop     string        // the signal that ends an instance; empty: the one that lets jobs end
	idleTime time.Duration // 0 = 1s
	max      int
}

// config is the configuration of a replica.
func (s *gitlabStand) config(f fleet, listen, jobRouter string) string {
	s.t.Helper()
	store := ""
	if s.redis != "" {
		store = fmt.Sprintf("store: {redis: {addrs: [%q]}}\n", s.redis)
	}
	if f.replica != "" {
		store += "replica: " + f.replica + "\n"
	}
	runners := peertest.FreeAddress(s.t)
	provider := f.provider
	if provider == "" {
		provider = s.processes(f, runners)
	}
	return strings.NewReplacer("DIR", s.dir, "RUNNER", fmt.Sprint(s.runner)).Replace(fmt.Sprintf(`listen: {runners: %q, api: "127.0.0.1:0", metrics: "127.0.0.1:0", gitlab: %q, job_router: %q}
%stick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 8s}
plugin_dir: %s
providers:
  cloud: {%s}
gitlab:
  url: %s
  %s
pools:
  - name: linux
    provider: cloud
    policy: {max: %d, idle_time: %s, %s}
    %s
`, runners, listen, jobRouter, store, filepath.Join(bin, "plugins"), provider, s.url, strings.ReplaceAll(f.gitlab, "\n", "\n  "),
		f.max, cmp.Or(f.idleTime, time.Second), f.policy, strings.ReplaceAll(f.pool, "\n", "\n    ")))
}

// processes is a provider whose instances are processes of this machine.
func (s *gitlabStand) processes(f fleet, router string) string {
	s.t.Helper()
	command := append([]string{
		filepath.Join(bin, "minirunnerd"), "--url", cmp.Or(f.url, s.url), "--token", s.token, "--name", "{instance}", "--system-id", "{instance}",
		"--listen-metrics", "127.0.0.1:{metrics_port}", "--work-dir", "{work_dir}", "--check-interval", "100ms", "--time-scale", "0.1",
	}, f.command...)
	args, err := json.Marshal(command)
	require.NoError(s.t, err)
	group := fmt.Sprintf("{name: linux, max: %d, command: %s", f.max, args)
	if f.sidecar {
		group += ", sidecar: true, token_file: " + filepath.Join(s.dir, "sidecar") + "}"
	} else {
		group += ", stop_signal: " + cmp.Or(f.stop, "SIGQUIT") + "}"
	}
	return fmt.Sprintf("plugin: spillway-provider-local, env: [PATH], config: {agent: %s, router: %q, plaintext: true, stop_grace: 5s, work_dir: %q, groups: [%s]}",
		filepath.Join(bin, "spillway-agent"), router, s.t.TempDir(), group)
}

// ingress sends the one path to a replica, and everything else to GitLab.
func (s *gitlabStand) ingress() string {
	s.t.Helper()
	proxy := func(to string) http.Handler {
		u, err := url.Parse(to)
		require.NoError(s.t, err)
		return httputil.NewSingleHostReverseProxy(u)
	}
	router, gitlab := proxy("http://"+s.listen), proxy(s.url)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == jobrouter.DiscoveryPath {
			router.ServeHTTP(w, r)
			return
		}
		gitlab.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	return server.URL
}

func (s *gitlabStand) enqueue(n int, script string) (ids []int64) {
	for i := range n {
		ids = append(ids, s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{"docker"}, Name: fmt.Sprint("job-", i), Script: []string{script}}))
	}
	return ids
}

// awaitSuccess waits until each job has run, exactly once, and its log is in GitLab.
func (s *gitlabStand) awaitSuccess(r *replica, ids []int64, log string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%v", r.err)
		}
	}()
	for _, id := range ids {
		view, err := s.gitlab.Wait(s.t.Context(), id, gitlabtest.Success)
		require.NoError(s.t, err)
		require.Contains(s.t, view.Trace, log)
		runs := 0
		for _, change := range view.History {
			if change.Status == gitlabtest.Running {
				runs++
			}
		}
		require.Equal(s.t, 1, runs, "%v", view.History)
	}
}

// pool is what the control plane says of the pool.
func (r *replica) pool() (p struct {
	Desired, InService int
	Hold, Finding      string
},
) {
	r.t.Helper()
	var list struct {
		Pools []struct {
			Desired   int    `json:"desired"`
			InService int    `json:"in_service"`
			Hold      string `json:"hold"`
			Finding   string `json:"finding"`
		} `json:"pools"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("pools", "-o", "json")), &list))
	p.Desired, p.InService, p.Hold, p.Finding = list.Pools[0].Desired, list.Pools[0].InService, list.Pools[0].Hold, list.Pools[0].Finding
	return p
}

func (r *replica) awaitEmpty() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { p := r.pool(); return p.Desired == 0 && p.InService == 0 }, within, 10*poll, "%v", r.err)
}

// stop ends a replica in order, and nothing of it is left.
func (r *replica) stop() {
	r.t.Helper()
	left := descendants(r.t, r.Process.Pid)
	require.NoError(r.t, r.Process.Signal(os.Interrupt))
	require.Equal(r.t, exitOK, r.code(), "%v", r.err)
	requireGone(r.t, left)
}
