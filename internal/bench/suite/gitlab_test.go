package suite

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// TestGitLabStand runs the whole: it builds and starts a control plane of which one pool
// is scaled by hooks, while the runners of the other wait for a job, and an artifact goes
// through it.
func TestGitLabStand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := reactShape(2)
	f.group.Min, f.group.Desired, f.policy["min"] = 1, 1, 1
	s, err := newGitLabStand(ctx, t.TempDir(), gitlabShape{
		pools: f.pools, group: f.group, cloud: f.cloud, policy: f.policy,
		section: map[string]any{
			"api_token": fromVariable(apiTokenVariable),
			"webhook":   map[string]any{"secret": fromVariable(hookSecretVariable)},
		},
		route: map[string]any{"front": true},
		pool: func(i int) map[string]any {
			if i == 1 {
				return routePool(i)
			}
			return map[string]any{"mode": "observe", "capability": map[string]any{"tags": []string{poolTag(i)}}}
		},
		before: artifactStore,
	})
	if errors.Is(err, errSkipped) {
		t.Skip("SKIPPED:", err)
	}
	needRedis(t, err)
	defer func() { require.NoError(t, s.stop()) }()
	p, err := s.start(ctx, "one")
	require.NoError(t, err)
	s.gitlab.AddWebhook("http://"+p.log.at.GitLab+controlplane.WebhookPath, hookSecret)
	require.NoError(t, s.firstList(ctx))

	id := s.cloud.Existing(groupName(1))[0].ID
	runners, err := startRunnersProcess(ctx, "http://"+p.log.at.GitLab, s.token, []string{id})
	require.NoError(t, err)
	defer runners.Stop()

	for i := range 2 { // the first is for the instance that is there
		h := hooked{id: s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{poolTag(0)}})}
		if i == 1 {
			require.NoError(t, s.cloud.waitForSets(ctx, 1))
		}
		require.Eventually(t, func() bool { return len(s.gitlab.HookCalls()) == i+1 }, time.Minute, 10*time.Millisecond)
		require.Equal(t, h.id, s.gitlab.HookCalls()[i].JobID)
	}
	require.Zero(t, s.hooksFailed())
	below, beyond := s.cloud.against(1, 2)
	require.Equal(t, []int{0, 0}, []int{below, beyond})

	require.NoError(t, p.untilWaiting(ctx, 1))
	did, err := runners.did(ctx)
	require.NoError(t, err)
	require.Positive(t, did.getJobs)
	require.Equal(t, runnersDid{getJobs: did.getJobs}, did)

	trips := &artifactTrips{size: 4 << 20, plane: p}
	rates, err := trips.through("http://" + p.log.at.GitLab)(ctx)
	require.NoError(t, err)
	require.Len(t, rates, 2)

	p.kill()
	s.gone(p)
	again, err := s.start(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, p.log.at.GitLab, again.log.at.GitLab)
}

func TestIntrudersAreNoticed(t *testing.T) {
	t0 := time.Now()
	polls := func(script string) (all []poll) {
		for i, c := range script {
			all = append(all, poll{t0.Add(time.Duration(i) * time.Second), map[rune]string{'l': "left", 'r': "right"}[c]})
		}
		return all
	}
	lost := func(who string, free int) loss { return loss{who, t0.Add(time.Duration(free) * time.Second)} }
	for name, c := range map[string]struct {
		polls   string
		losses  []loss
		want    int
		changes int
	}{
		"nobody":                     {"", nil, 0, 0},
		"one":                        {"lll", nil, 0, 0},
		"two at once":                {"lrl", nil, 1, 2},
		"the other without a loss":   {"llrr", nil, 2, 1},
		"the other after the lease":  {"llrr", []loss{lost("left", 2)}, 0, 1},
		"the other within the lease": {"llrr", []loss{lost("left", 3)}, 1, 1},
		"the lost one comes back":    {"llrrl", []loss{lost("left", 2)}, 1, 2},
		"each is lost once":          {"llrrl", []loss{lost("left", 2), lost("right", 4)}, 0, 2},
		"somebody else is lost":      {"llrr", []loss{lost("right", 2)}, 2, 1},
	} {
		require.Equal(t, c.want, intruders(polls(c.polls), c.losses), name)
		require.Equal(t, c.changes, changes(polls(c.polls)), name)
	}
}

func TestOnlyReplicasPoll(t *testing.T) {
	at := time.Now()
	require.Equal(t, []poll{{at, "left"}}, pollsOf([]gitlabtest.Call{
		{At: at, Header: http.Header{"User-Agent": {"gitlab-runner 19.4.0"}}},
		{At: at, Header: http.Header{replicaHeader: {"left"}}},
	}))
}

func TestListsAreToldApart(t *testing.T) {
	var w listWatch
	handler := w.before(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) }))
	ask := func(method, path, body string) string {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(method, path, bytes.NewReader([]byte(body))))
		return answer.Body.String()
	}
	const first, next = `{"variables":{"after":null}}`, `{"variables":{"after":"x"}}`
	_, ok := w.since(time.Time{})
	require.False(t, ok)
	require.Equal(t, first, ask(http.MethodPost, "/api/graphql", first), "what follows gets the whole request")
	ask(http.MethodPost, "/api/graphql", next)
	ask(http.MethodGet, "/api/v4/projects/1/jobs/2", "")
	between := time.Now()
	ask(http.MethodPost, "/api/graphql", first)

	seen, ok := w.since(time.Time{})
	require.True(t, ok)
	require.Equal(t, 2, seen.requests)
	seen, ok = w.since(between)
	require.True(t, ok)
	require.Equal(t, 1, seen.requests)
	_, ok = w.since(time.Now())
	require.False(t, ok)
}

func TestMissingPagesAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		near []int
		far  int
		want measure.Verdict
	}{
		"each page once":  {[]int{3, 3}, 3, measure.Met},
		"a page too many": {[]int{3, 4}, 3, measure.Wrong},
		"a page too few":  {[]int{3, 3}, 2, measure.Wrong},
	} {
		l := &listing{jobs: 201, stand: &gitlabStand{shape: gitlabShape{pools: 1}}}
		b := &bench{table: &measure.Table{}}
		var near []listTook
		for _, n := range c.near {
			near = append(near, listTook{requests: n})
		}
		l.rows(b, near, listTook{requests: c.far})
		verdict := measure.Met
		if b.table.Broken() {
			verdict = measure.Wrong
		}
		require.Equal(t, c.want, verdict, name)
	}
}

func TestBudgetTime(t *testing.T) {
	require.Zero(t, budgetTime(75, 300), "a quarter goes at once")
	require.Equal(t, time.Minute, budgetTime(300, 300))
}

func TestHooksThatFailAreCounted(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer refusing.Close()
	g, err := startGitLab(nil)
	require.NoError(t, err)
	defer g.stop()
	s := &gitlabStand{gitlab: g}
	g.AddWebhook(refusing.URL, hookSecret)
	began := time.Now()
	job := hooked{id: g.Enqueue(gitlabtest.JobSpec{Project: g.AddProject(gitlabProject)}), queued: began}
	require.Eventually(t, func() bool { return s.hooksFailed() == 1 }, time.Minute, time.Millisecond)
	require.Len(t, s.answeredAfter([]hooked{job, {id: job.id + 1}}), 1)
}

func TestArtifactsAreWhole(t *testing.T) {
	store := httptest.NewServer(artifactStore(http.NotFoundHandler()))
	defer store.Close()
	plain, err := startPlainProxy(t.Context(), store.URL)
	require.NoError(t, err)
	defer plain.Stop()
	const size = 3<<20 + 7
	for _, url := range []string{store.URL, plain.url} {
		require.NoError(t, uploadArtifact(t.Context(), url, size))
		require.NoError(t, downloadArtifact(t.Context(), url, size))
	}
	short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("less")) }))
	defer short.Close()
	require.ErrorContains(t, downloadArtifact(t.Context(), short.URL, size), "4 of")
	require.ErrorContains(t, uploadArtifact(t.Context(), short.URL, size), "status 200")
}
