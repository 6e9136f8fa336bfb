package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// tokenStand is a GitLab with a runner for each of some pools, whose machines are started
// by hand at one of two replicas. What a pool's provider launches takes its time to boot.
type tokenStand struct {
	*gitlabStand
	tokens   map[string]string // by pool
	ids      map[string]int64  // GitLab's, by pool
	at       map[string][2]string
	replicas map[string]*replica
}

// lists is how a replica learns from GitLab which jobs wait.
const lists = "api_token: {file: DIR/api}\n  jobs: {every: 1s}"

// tokenPool is a pool and the tag that its runner takes.
type tokenPool struct{ name, tag, settings string }

func newTokenStand(t *testing.T, more string, pools ...tokenPool) *tokenStand {
	t.Helper()
	return newTokenStandOf(t, []string{"a", "b"}, lists, more, pools...)
}

// newTokenStandOf is one of some replicas. gitlab is what their sections of GitLab say
// besides its URL and the route; more are other sections.
func newTokenStandOf(t *testing.T, replicas []string, gitlab, more string, pools ...tokenPool) *tokenStand {
	t.Helper()
	s := &tokenStand{
		gitlabStand: newGitLabStand(t, gitlabtest.Options{}), tokens: map[string]string{}, ids: map[string]int64{},
		at: map[string][2]string{}, replicas: map[string]*replica{},
	}
	for _, name := range replicas {
		s.at[name] = [2]string{peertest.FreeAddress(t), peertest.FreeAddress(t)}
	}
	s.redis = storetest.StartServer(t).Addr
	groups, list := "", ""
	for _, p := range pools {
		id, token := s.gitlab.AddRunner(gitlabtest.RunnerSpec{Tags: []string{p.tag}})
		s.tokens[p.name], s.ids[p.name] = token, id
		s.secret(p.name, token)
		groups += fmt.Sprintf("{name: %s, max: 1, command: [sleep, \"1\"]}, ", p.name)
		list += fmt.Sprintf("  - {name: %s, mode: route, provider: local, gitlab: {runner_id: %d, token: {file: %s}}, policy: {max: 1}, %s}\n",
			p.name, id, filepath.Join(s.dir, p.name), p.settings)
	}
	for name, at := range s.at {
		s.replicas[name] = startReplica(t, fmt.Sprintf(`replica: %s
listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0", gitlab: %q, job_router: %q}
store: {redis: {addrs: [%q]}}
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 8s}
plugin_dir: %s
providers:
  local: {plugin: spillway-provider-local, env: [PATH], config: {boot_delay: 10m, groups: [%s]}}
gitlab:
  url: %s
  %s
  route: {server_url: 'grpc://%s', front: true, advertise: %q, long_poll: 1s}
%spools:
%s`, name, at[0], at[1], s.redis, filepath.Join(bin, "plugins"), strings.TrimSuffix(groups, ", "),
			s.url, strings.ReplaceAll(gitlab, "DIR", s.dir), at[1], at[1], more, list))
	}
	return s
}

// runner starts a machine of a pool that has a replica as its url; it is named as the pool.
func (s *tokenStand) runner(replica, pool string, args ...string) *exec.Cmd {
	s.t.Helper()
	args = append([]string{
		"--url", "http://" + s.at[replica][0], "--system-id", pool, "--labels", "spillway-pool=" + pool,
		"--work-dir", s.t.TempDir(), "--check-interval", "200ms", "--time-scale", "0.1",
	}, args...)
	cmd := exec.Command(filepath.Join(bin, "minirunnerd"), args...)
	cmd.Env = append(os.Environ(), "GITLAB_RUNNER_TOKEN="+s.tokens[pool])
	out := newOutput(s.t, pool)
	cmd.Stderr = out.file
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// job queues a job and returns its number.
func (s *tokenStand) job(tag, script string) int64 {
	return s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{tag}, Script: []string{script}})
}

// ranAt waits for a job's success, and says on which machine it ran and how long it had
// waited.
func (s *tokenStand) ranAt(id int64) (system string, waited time.Duration) {
	s.t.Helper()
	view, err := s.gitlab.Wait(s.t.Context(), id, gitlabtest.Success)
	require.NoError(s.t, err)
	for _, change := range view.History {
		if change.Status == gitlabtest.Running {
			waited = change.At.Sub(view.History[0].At)
		}
	}
	return ranOn(&view), waited
}

func (r *replica) metricsText() string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.metrics + "/metrics")
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return string(text)
}

func (s *tokenStand) awaitMetric(replica, pattern string) {
	s.t.Helper()
	r, want := s.replicas[replica], regexp.MustCompile(pattern)
	require.Eventually(s.t, func() bool { return want.MatchString(r.metricsText()) }, within, 50*time.Millisecond, "%v", r.err)
}

// finding is what a replica says of a pool.
func (r *replica) finding(pool string) string {
	r.t.Helper()
	var list struct {
		Pools []struct {
			Pool    struct{ Name string }
			Name    string `json:"name"`
			Finding string `json:"finding"`
		} `json:"pools"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.must("pools", "-o", "json")), &list))
	for _, p := range list.Pools {
		if p.Name == pool || p.Pool.Name == pool {
			return p.Finding
		}
	}
	require.Fail(r.t, "no such pool", pool)
	return ""
}

// awaitHeld waits until a pool is held back behind another one.
func (s *tokenStand) awaitHeld(replica, pool, behind string) {
	s.t.Helper()
	r := s.replicas[replica]
	require.Eventually(s.t, func() bool {
		return strings.Contains(r.finding(pool), "held_back: jobs go to pool "+behind+" first")
	}, within, 5*poll, "%v", r.err)
}

// awaitTurn waits until a pool is not held back.
func (s *tokenStand) awaitTurn(replica, pool string) {
	s.t.Helper()
	r := s.replicas[replica]
	require.Eventually(s.t, func() bool { return !strings.Contains(r.finding(pool), "held_back") }, within, 5*poll, "%v", r.err)
}

// ranWhile is the machine of a job that runs while a pool is held back. That the pool's
// turn has come meanwhile is waited for before the job may end: who waits after that for
// the pool to be held back again knows that the machine is free again.
func (s *tokenStand) ranWhile(replica, tag, pool, behind string) (system string) {
	s.t.Helper()
	release := filepath.Join(s.t.TempDir(), "release")
	s.awaitHeld(replica, pool, behind)
	id := s.job(tag, until(release))
	_, err := s.gitlab.Wait(s.t.Context(), id, gitlabtest.Running)
	require.NoError(s.t, err)
	s.awaitTurn(replica, pool)
	touch(s.t, release)
	system, _ = s.ranAt(id)
	return system
}

// A6, I11: two runner tokens of one capability, each with its machine at another replica.
// The better pool's machine has every job that it has a place for; what it has no place for
// goes to the other one at once, and so does all when it or its replica is away.
func TestA6_TheBetterTokenGoesFirstOverReplicas(t *testing.T) {
	t.Parallel()
	shows(t, "A4", "A6", "A7")
	s := newTokenStand(t, "", tokenPool{"main", "docker", "priority: 0"}, tokenPool{"spare", "docker", "priority: 1"})
	main := s.runner("a", "main", "--router")
	s.runner("b", "spare", "--router")
	for range 4 {
		require.Equal(t, "main", s.ranWhile("b", "docker", "spare", "main"), "though the other one was free")
	}
	s.awaitHeld("b", "spare", "main")
	s.awaitMetric("b", `spillway_gitlab_held_back_bool\{pool="spare"\} 1`)
	release := filepath.Join(t.TempDir(), "release")
	long := s.job("docker", until(release))
	_, err := s.gitlab.Wait(t.Context(), long, gitlabtest.Running)
	require.NoError(t, err)
	soon := filepath.Join(t.TempDir(), "soon")
	other := s.job("docker", until(soon))
	_, err = s.gitlab.Wait(t.Context(), other, gitlabtest.Running)
	require.NoError(t, err)
	s.awaitTurn("a", "main") // a pool without a free machine goes behind one with such, and now neither has one
	touch(t, soon)
	system, waited := s.ranAt(other)
	require.Equal(t, "spare", system, "the better one is full")
	require.Less(t, waited, jobrouter.FreePatience, "nobody waits for it")
	s.awaitHeld("a", "main", "spare") // whose machine is free again
	touch(t, release)
	system, _ = s.ranAt(long)
	require.Equal(t, "main", system)

	// A7: the order changes while both wait.
	s.awaitTurn("a", "main")
	s.replicas["a"].must("priority", "set", "main", "7")
	s.awaitHeld("a", "main", "spare")
	system, _ = s.ranAt(s.job("docker", "true"))
	require.Equal(t, "spare", system)
	s.replicas["a"].must("priority", "clear", "main")
	s.awaitHeld("b", "spare", "main")

	// Its machine and its replica are gone, without a word.
	require.NoError(t, main.Process.Kill())
	require.NoError(t, s.replicas["a"].Process.Kill())
	system, waited = s.ranAt(s.job("docker", "true"))
	require.Equal(t, "spare", system)
	require.Less(t, waited, within)
}

// A6: machines that ask GitLab themselves, through the front proxy, wait for their turn as
// well, and are waited for.
func TestA6_TheBetterTokenGoesFirstForRunnersThatAskThemselves(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	s := newTokenStand(t, "", tokenPool{"main", "docker", "priority: 0"}, tokenPool{"spare", "docker", "priority: 1"})
	main := s.runner("a", "main")
	s.runner("b", "spare")
	s.awaitMetric("b", `spillway_gitlab_held_questions_total\{pool="spare",reason="machine_free"\} [1-9]`)
	for range 2 {
		require.Equal(t, "main", s.ranWhile("b", "docker", "spare", "main"))
	}
	require.NoError(t, main.Process.Kill())
	system, _ := s.ranAt(s.job("docker", "true"))
	require.Equal(t, "spare", system)
}

// A6: a job waits for the better pool to grow, for spill_after; that pool is what grows.
func TestA6_JobsWaitForTheBetterTokensPoolToGrow(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	const spillAfter = 20 * time.Second
	s := newTokenStand(t, "", tokenPool{"near", "gpu", fmt.Sprintf("priority: 0, spill_after: %s", spillAfter)}, tokenPool{"far", "gpu", "priority: 1"})
	s.runner("b", "far", "--router")
	s.awaitHeld("b", "far", "near")
	first, second, third := s.job("gpu", "true"), s.job("gpu", "true"), s.job("gpu", "true")
	var waits []time.Duration
	for _, id := range []int64{first, second, third} {
		system, waited := s.ranAt(id)
		require.Equal(t, "far", system)
		waits = append(waits, waited)
	}
	require.Less(t, waits[0], spillAfter, "near can have one job, and more wait: %v", waits)
	require.Less(t, waits[1], spillAfter, "%v", waits)
	require.GreaterOrEqual(t, waits[2], spillAfter, "the one that near could have had waits for it: %v", waits)
	require.Contains(t, s.replicas["b"].must("explain", "near")+s.replicas["a"].must("explain", "near"), "set_desired(1")
}

// A13: a job goes to a machine that takes such jobs, not only to one with the token that it
// was asked for with. It is kept for a pool at zero, and a machine of another one comes.
func TestA13_AJobThatIsKeptForOnePoolGoesToAMachineOfAnother(t *testing.T) {
	t.Parallel()
	shows(t, "A6")
	s := newTokenStandOf(t, []string{"a"}, "", "",
		tokenPool{"main", "docker", "capability: {tags: [docker]}, priority: 0"}, tokenPool{"spare", "docker", "capability: {tags: [docker]}, priority: 1"})
	id := s.job("docker", "true")
	_, err := s.gitlab.WaitFor(t.Context(), id, "to be kept", func(v gitlabtest.JobView) bool { return v.Waiting })
	require.NoError(t, err)
	s.runner("a", "spare", "--router") // the only one
	s.ranAt(id)
	view, _ := s.gitlab.Job(id)
	require.Equal(t, s.ids["main"], view.RunnerID, "it was given out for the better pool")
	require.Zero(t, view.RetryOf+view.RetriedAs)
}
