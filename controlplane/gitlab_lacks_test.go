package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/server"
)

func TestOnlyPoolsOfAFailingTokenLackJobs(t *testing.T) {
	tokens := route.NewTokens(map[string][]spillway.Pool{
		"glrt-bad": {{Name: "a"}, {Name: "b"}}, "glrt-good": {{Name: "c"}}, "glrt-theirs": {{Name: "d"}},
	})
	status := []jobrouter.TokenStatus{
		{Token: route.HashToken("glrt-bad"), Ours: true, Failing: failingQuestions},
		{Token: route.HashToken("glrt-good"), Ours: true, Failing: failingQuestions - 1},
		{Token: route.HashToken("glrt-theirs"), Failing: 100}, // another replica asks with it by now
		{Token: route.HashToken("glrt-removed"), Ours: true, Failing: failingQuestions},
	}
	lacks := lacksOf(status, tokens)
	require.Len(t, lacks, 2)
	require.Equal(t, "GitLab has refused the pool's runner token or not answered, in the last 3 job requests", lacks["a"])
	require.Equal(t, lacks["a"], lacks["b"])
}

// Without an API token a runner token that GitLab refuses holds its own pool, and leaves
// that of another token alone.
func TestBadInput_ARefusedRunnerTokenHoldsItsPoolOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("a token that is refused is tried again after some seconds")
	}
	g, url := newGitLab(t)
	g.AddProject("team/app")
	_, good := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	cfg, err := config.Parse("test", fmt.Appendf(nil, `
listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0", gitlab: "127.0.0.1:0", job_router: "127.0.0.1:0"}
tick: 200ms
timeouts: {heartbeat_every: 1s, silent: 3s}
plugin_dir: %s
gitlab: {url: %q, jobs: {every: 1s}, route: {server_url: "grpc://127.0.0.1:1", front: true}}
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {good: {initial: 1}, bad: {initial: 1}}}}
pools:
  - {name: good, mode: route, provider: cloud, capability: {tags: [docker]}, gitlab: {token: %s}}
  - {name: bad, mode: route, provider: cloud, capability: {tags: [docker]}, gitlab: {token: %s}}
`, plugins, url, secretFile(t, good), secretFile(t, "glrt-nobodys-token")))
	require.NoError(t, err)
	r := run(t, cfg)
	require.Eventually(t, func() bool {
		feeds := r.feeds()
		i := slices.IndexFunc(feeds, func(f server.FeedStatus) bool { return f.Name == "gitlab" })
		return i >= 0 && feeds[i].Partial &&
			strings.HasPrefix(feeds[i].Error, "pool bad: GitLab has refused the pool's runner token or not answered, in the last ")
	}, within, 50*time.Millisecond)
	r.await("bad", "held", func(s server.PoolStatus) bool { return s.Hold == policy.ReasonHoldPartial })
	r.await("good", "not held", func(s server.PoolStatus) bool { return s.Hold == "" })
}
