package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/server"
)

// plugins is the folder of the plugin that the tests run. It is built once.
var plugins string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "spillway-plugins-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "spillway-provider-fake"), "./cmd/plugins/fake")
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the plugin: %v\n%s", err, out)
			return 1
		}
		plugins = dir
		return m.Run()
	}())
}

// newGitLab is a stand-in, and where it is served.
func newGitLab(t *testing.T) (*gitlabtest.Server, string) {
	t.Helper()
	g := gitlabtest.New(gitlabtest.Options{})
	s := httptest.NewServer(g)
	t.Cleanup(func() {
		s.Close()
		g.Close()
	})
	return g, s.URL
}

// secretFile holds a secret; it is what a configuration says of it.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	return fmt.Sprintf("{file: %q}", path)
}

// configure is a control plane of two pools on a cloud in memory: own, of our own queue,
// and theirs, of GitLab, with what pool says of it. There is one instance of theirs.
func configure(t *testing.T, gitlab, pool string) *config.Config {
	t.Helper()
	listen := `runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0"`
	if strings.Contains(gitlab, "webhook: ") || strings.Contains(gitlab, "route: ") {
		listen += `, gitlab: "127.0.0.1:0"`
	}
	if strings.Contains(gitlab, "route: ") {
		listen += `, job_router: "127.0.0.1:0"`
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, `
listen: {%s}
tick: 200ms
timeouts: {heartbeat_every: 1s, silent: 3s}
plugin_dir: %s
gitlab: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {own: {}, theirs: {initial: 1}}}}
pools:
  - {name: own, capability: {tags: [own]}, provider: cloud, policy: {max: 5}}
  - {name: theirs, provider: cloud, policy: {max: 5}, %s}
`, listen, plugins, gitlab, pool))
	require.NoError(t, err)
	return cfg
}

// journal is what a control plane logs.
type journal struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.String()
}

// running is a control plane that runs until the test ends.
type running struct {
	*ControlPlane
	t   *testing.T
	log *journal
}

func run(t *testing.T, cfg *config.Config) *running {
	t.Helper()
	r := &running{t: t, log: &journal{}}
	var err error
	r.ControlPlane, err = New(t.Context(), cfg, Options{Log: slog.New(slog.NewTextHandler(r.log, nil)), Version: "test"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return r
}

func (r *running) pool(name string) server.PoolStatus {
	for _, p := range r.Pools() {
		if p.Pool.Name == name {
			return p
		}
	}
	r.t.Fatalf("no pool %s", name)
	return server.PoolStatus{}
}

// await waits until a pool is as ok wants it.
func (r *running) await(pool, what string, ok func(server.PoolStatus) bool) server.PoolStatus {
	r.t.Helper()
	var s server.PoolStatus
	require.Eventually(r.t, func() bool { s = r.pool(pool); return ok(s) }, within, 20*time.Millisecond, "pool %s: %s", pool, what)
	return s
}

// requireOthersWork: our own queue is scaled, whatever is wrong with the rest.
func (r *running) requireOthersWork() {
	r.t.Helper()
	_, err := r.store.Push(r.t.Context(), []spillway.Job{{ID: "job-1", Script: "true", Requirement: spillway.Requirement{Tags: []string{"own"}}}})
	require.NoError(r.t, err)
	r.poke()
	r.await("own", "scaled out", func(s server.PoolStatus) bool { return s.Desired == 1 })
}

// requireHeld: the pool says why it is held, and its instance stays.
func (r *running) requireHeld(why policy.Reason) server.PoolStatus {
	r.t.Helper()
	s := r.await("theirs", string(why), func(s server.PoolStatus) bool { return s.Hold == why })
	require.Equal(r.t, 1, s.Desired)
	return s
}

// answering is an HTTP server with one answer.
func answering(t *testing.T, kind, body string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(body)) // a client that has gone is none of the test's
	}))
	t.Cleanup(s.Close)
	return s
}

func hostOf(s *httptest.Server) string {
	return strings.TrimPrefix(strings.TrimPrefix(s.URL, "https://"), "http://")
}
