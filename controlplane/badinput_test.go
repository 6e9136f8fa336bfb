package controlplane

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/server"
)

// found are the findings of everything besides plugins, as people see them.
func found(t *testing.T, cfg *config.Config) (texts []string) {
	t.Helper()
	for _, f := range (&surroundings{cfg: cfg}).look(t.Context()) {
		require.NotEmpty(t, f.Setting)
		require.NotEmpty(t, f.Fix)
		texts = append(texts, f.String())
	}
	return texts
}

// requireOnly: one finding, with one sentence.
func requireOnly(t *testing.T, cfg *config.Config, begins string, has ...string) {
	t.Helper()
	texts := found(t, cfg)
	require.Len(t, texts, 1)
	require.True(t, strings.HasPrefix(texts[0], begins), "%s", texts[0])
	for _, part := range has {
		require.Contains(t, texts[0], part)
	}
	require.NotContains(t, texts[0], "\n")
}

const declared = "mode: observe, capability: {tags: [docker]}, gitlab: {runner_id: %d}"

func TestBadInput_WrongToken(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", url, secretFile(t, "glpat-nobodys-token")), fmt.Sprintf(declared, id))
	requireOnly(t, cfg, "error: gitlab.api_token: ", "GitLab does not accept the token: it is wrong, expired or revoked", "(gitlab_unusable)")
	r := run(t, cfg)
	r.requireHeld(policy.ReasonHoldPartial)
	r.requireOthersWork()
	require.NotContains(t, r.log.String(), "nobodys-token")
}

func TestBadInput_WrongRunnerToken(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	api := g.AddAPIToken(gitlabtest.Admin)
	cfg := configure(t, fmt.Sprintf(`{url: %q, api_token: %s, route: {server_url: "grpc://127.0.0.1:1"}}`, url, secretFile(t, api)),
		"mode: route, capability: {tags: [docker]}, gitlab: {token: "+secretFile(t, "glrt-nobodys-token")+"}")
	requireOnly(t, cfg, "error: pool theirs, gitlab.token: ", "no runner has it", "(runner_token_refused)")
	r := run(t, cfg)
	r.await("theirs", "named and kept", func(s server.PoolStatus) bool {
		return strings.HasPrefix(s.Finding, "runner_token_refused: ") && s.Desired == 1
	})
	r.requireOthersWork()
	require.NotContains(t, r.log.String(), "nobodys-token")
}

// A token that was refused is tried again, so that nobody has to restart anything.
func TestBadInput_WrongRunnerTokenIsReplaced(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	_, good := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("glrt-nobodys-token"), 0o600))
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s, jobs: {every: 1s}}", url, secretFile(t, g.AddAPIToken(gitlabtest.Admin))),
		fmt.Sprintf("mode: observe, capability: {tags: [docker]}, gitlab: {token: {file: %q}}", path))
	requireOnly(t, cfg, "error: pool theirs, gitlab.token: ", "(runner_token_refused)")
	r := run(t, cfg)
	r.await("theirs", "named", func(s server.PoolStatus) bool { return strings.HasPrefix(s.Finding, "runner_token_refused: ") })
	known := r.gitlab.known
	require.False(t, known.follow(t.Context()))
	listing := known.source()
	require.NoError(t, os.WriteFile(path, []byte(good), 0o600))
	// It looks by itself too: what it finds then is news to nobody else, and listed anew.
	require.Eventually(t, func() bool {
		return known.follow(t.Context()) || known.runner("theirs") > 0 && known.source() != listing
	}, within, 20*time.Millisecond, "it is known once there is a board")
	require.Positive(t, known.runner("theirs"))
	require.Empty(t, found(t, cfg))
}

// Each right that is missing has its name.
func TestBadInput_TokenWithoutRights(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	other := g.AddGroup("other")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	foreign, _ := g.AddRunner(gitlabtest.RunnerSpec{Type: "group", Groups: []int64{other}, Tags: []string{"docker"}})
	none, team := g.AddAPIToken(gitlabtest.NoRights), g.AddAPIToken(gitlabtest.GroupToken, "team")

	whole := func(token string) string { return fmt.Sprintf("{url: %q, api_token: %s}", url, secretFile(t, token)) }
	groups := fmt.Sprintf("{url: %q, api_token: %s, jobs: {scope: groups, groups: [team]}}", url, secretFile(t, team))
	texts := found(t, configure(t, whole(none), fmt.Sprintf(declared, id)))
	require.Len(t, texts, 2)
	require.Contains(t, texts[0], "error: gitlab.api_token: ")
	require.Contains(t, texts[0], "the token lacks a right: it needs the scope read_api (gitlab_unusable)")
	requireOnly(t, configure(t, whole(team), fmt.Sprintf(declared, id)), "error: gitlab.api_token: ", "administrator", "(gitlab_unusable)")
	requireOnly(t, configure(t, groups, fmt.Sprintf(declared, foreign)), "error: pool theirs, gitlab.runner_id: ", "Maintainer", "(runner_unreadable)")

	r := run(t, configure(t, whole(none), fmt.Sprintf(declared, id)))
	r.requireHeld(policy.ReasonHoldPartial)
	r.requireOthersWork()

	// A runner that may not be read holds its own pool.
	r = run(t, configure(t, groups, fmt.Sprintf("mode: observe, gitlab: {runner_id: %d}", foreign)))
	s := r.requireHeld(policy.ReasonCannotDrain)
	require.Regexp(t, "^runner_unreadable: .*Maintainer", s.Finding)
	require.Equal(t, 1, strings.Count(s.Finding, "runner_unreadable"))
	require.NotNil(t, r.gitlab.known.source(), "jobs are listed for the others")
	r.requireOthersWork()
}

// unheard is how long the instance of theirs may not be heard where the number of
// instances is compared: while it is taken for lost, another is launched.
const unheard = 15 * time.Second

func TestBadInput_GitLabDownAtStart(t *testing.T) {
	g := gitlabtest.New(gitlabtest.Options{})
	t.Cleanup(g.Close)
	project := g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	api := g.AddAPIToken(gitlabtest.Admin)
	address := peertest.FreeAddress(t)

	cfg := configure(t, fmt.Sprintf(`{url: "http://%s", api_token: %s, jobs: {every: 1s}}`, address, secretFile(t, api)), fmt.Sprintf(declared, id))
	requireOnly(t, cfg, "error: gitlab.url: ", "GitLab is not available", "connection refused", "(gitlab_unusable)")
	cfg.Timeouts.Silent = unheard
	r := run(t, cfg)
	r.requireHeld(policy.ReasonHoldPartial)
	r.requireOthersWork()

	for range 2 { // the instance that is there may take one
		g.Enqueue(gitlabtest.JobSpec{Project: project, Tags: []string{"docker"}})
	}
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	up := &http.Server{Handler: g, ReadHeaderTimeout: within}
	t.Cleanup(func() { _ = up.Close() })
	go func() { _ = up.Serve(l) }()
	r.await("theirs", "scaled out once GitLab is there", func(s server.PoolStatus) bool { return s.Desired == 2 })
}

// The same where GitLab is to say what the runners take.
func TestBadInput_GitLabDownBeforeItSaidWhatRunnersTake(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	mend := g.Fail(gitlabtest.Fault{Status: http.StatusBadGateway})
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", url, secretFile(t, g.AddAPIToken(gitlabtest.Admin))), fmt.Sprintf("mode: observe, gitlab: {runner_id: %d}", id))
	requireOnly(t, cfg, "error: gitlab.url: ", "status 502", "(gitlab_unusable)")
	r := run(t, cfg)
	s := r.requireHeld(policy.ReasonCannotDrain)
	require.Equal(t, "cannot_drain: GitLab has not said yet what the pool's runners take", s.Finding)
	r.requireOthersWork()
	mend()
	require.NoError(t, r.gitlab.known.learn(t.Context()), "it is asked again after a while")
	r.await("theirs", "told", func(s server.PoolStatus) bool { return s.Pool.Capability.String() == "docker of "+url })
	require.Empty(t, r.gitlab.known.unknown("theirs"))
}

func TestBadInput_CertificateUnknown(t *testing.T) {
	g := gitlabtest.New(gitlabtest.Options{})
	t.Cleanup(g.Close)
	s := httptest.NewUnstartedServer(g)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes are refused on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	token := secretFile(t, g.AddAPIToken(gitlabtest.Admin))
	pool := fmt.Sprintf(declared, id)

	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", s.URL, token), pool)
	requireOnly(t, cfg, "error: gitlab.url: ", "set gitlab.ca_file", "(gitlab_unusable)")
	r := run(t, cfg)
	r.requireHeld(policy.ReasonHoldPartial)
	r.requireOthersWork()

	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	require.Empty(t, found(t, configure(t, fmt.Sprintf("{url: %q, ca_file: %q, api_token: %s}", s.URL, ca, token), pool)))
	requireOnly(t, configure(t, fmt.Sprintf("{url: %q, ca_file: /nowhere, api_token: %s}", s.URL, token), pool), "error: gitlab: ", "gitlab.ca_file", "(gitlab_unusable)")
}

func TestBadInput_GitLabIsAWebPage(t *testing.T) {
	s := answering(t, "text/html; charset=utf-8", "<html>log in</html>")
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", s.URL, secretFile(t, "glpat-x")), fmt.Sprintf(declared, 1))
	requireOnly(t, cfg, "error: gitlab.url: ", "it is a web page", "(gitlab_unusable)")
}

func TestBadInput_WebhookWithoutSecret(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	token := secretFile(t, g.AddAPIToken(gitlabtest.Admin))
	with := func(secret string) string {
		return fmt.Sprintf("{url: %q, api_token: %s, webhook: {secret: %s}}", url, token, secret)
	}
	pool := fmt.Sprintf(declared, id)

	_, err := config.Parse("test", fmt.Appendf(nil, "gitlab: {url: %q, webhook: {}}\npools: []\n", url))
	require.ErrorContains(t, err, "gitlab.webhook.secret: anybody could tell us of jobs; set {env: NAME} or {file: PATH}")
	requireOnly(t, configure(t, with(secretFile(t, "1234567")), pool), "error: gitlab.webhook.secret: ", "at least 8", "(webhook_secret_short)")
	path := filepath.Join(t.TempDir(), "later")
	cfg := configure(t, with(fmt.Sprintf("{file: %q}", path)), pool)
	requireOnly(t, cfg, "error: gitlab.webhook.secret: ", path, "(secret_unreadable)")

	// Nobody is let in, GitLab is asked to repeat, and everything else works.
	r := run(t, cfg)
	require.Contains(t, r.log.String(), "webhooks are refused until their secret is there")
	post := func(secret string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr(GitLab)+WebhookPath, strings.NewReader("{}"))
		require.NoError(t, err)
		req.Header.Set("X-Gitlab-Token", secret)
		req.Header.Set("X-Gitlab-Event", "Push Hook")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, post(""))
	r.requireOthersWork()
	require.NoError(t, os.WriteFile(path, []byte("a-secret-that-came-later\n"), 0o600))
	require.Equal(t, http.StatusUnauthorized, post("another"))
	require.Equal(t, http.StatusOK, post("a-secret-that-came-later"))
	require.Empty(t, found(t, cfg))
}

// observed is a pool whose one runner's metrics are read at an address.
func observed(id int64, address string) string {
	return fmt.Sprintf("mode: observe, capability: {tags: [docker]}, gitlab: {runner_id: %d}, observe: {drain: hook, metrics: {targets: {i-0001: %q}}}", id, address)
}

func TestBadInput_MetricsEndpointServesHTML(t *testing.T) {
	g, url := newGitLab(t)
	project := g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	gitlab := fmt.Sprintf("{url: %q, api_token: %s, jobs: {every: 1s}}", url, secretFile(t, g.AddAPIToken(gitlabtest.Admin)))

	cfg := configure(t, gitlab, observed(id, hostOf(answering(t, "text/html", "<html>log in</html>"))))
	requireOnly(t, cfg, "error: pool theirs, observe.metrics: ", "1 of 1 instances: i-0001: ", `answers with "text/html" instead of metrics`, "(metrics_unusable)")
	cfg.Timeouts.Silent = unheard
	r := run(t, cfg)
	r.requireHeld(policy.ReasonCannotDrain)
	r.requireOthersWork()
	for range 2 { // the instance that is there may take one
		g.Enqueue(gitlabtest.JobSpec{Project: project, Tags: []string{"docker"}})
	}
	r.await("theirs", "scaled out all the same", func(s server.PoolStatus) bool { return s.Desired == 2 })

	requireOnly(t, configure(t, gitlab, observed(id, peertest.DeadAddress(t))), "warning: pool theirs, observe.metrics: ", "doesn't answer", "(metrics_unreachable)")
	other := answering(t, "text/plain; version=0.0.4; charset=utf-8", "go_goroutines 12\n")
	requireOnly(t, configure(t, gitlab, observed(id, hostOf(other))), "error: pool theirs, observe.metrics: ", "none of a GitLab runner", "(metrics_unusable)")
	good := answering(t, "text/plain; version=0.0.4; charset=utf-8", "gitlab_runner_concurrent 4\n")
	require.Empty(t, found(t, configure(t, gitlab, observed(id, hostOf(good)))))
}

// prometheus is a server whose answer to every query is this; NOW in it is the time of the
// answer, since a value gets too old.
func prometheus(t *testing.T, kind, result string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		now := strconv.FormatInt(time.Now().Unix(), 10)
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, strings.ReplaceAll(result, "NOW", now))
	}))
	t.Cleanup(s.Close)
	return s
}

// counted is a pool that only a count tells of.
func counted(s *httptest.Server) string {
	return fmt.Sprintf("mode: observe, capability: {tags: [docker]}, count: {every: 10s, prometheus: {url: %q, query: sum(jobs)}}", s.URL)
}

func TestBadInput_PromQLVectorWhereANumberIsNeeded(t *testing.T) {
	vector := prometheus(t, "vector", `[{"metric":{"a":"1"},"value":[NOW,"2"]},{"metric":{"a":"2"},"value":[NOW,"3"]}]`)
	cfg := configure(t, "{url: http://127.0.0.1:1}", counted(vector))
	requireOnly(t, cfg, "error: pool theirs, count.prometheus: ", "answers with 2 series instead of one number: put sum() around it", "(count_unusable)")
	r := run(t, cfg)
	r.requireHeld(policy.ReasonHoldStale)
	r.requireOthersWork()

	one := prometheus(t, "vector", `[{"metric":{},"value":[NOW,"3"]}]`)
	cfg = configure(t, "{url: http://127.0.0.1:1}", counted(one))
	require.Empty(t, found(t, cfg))
	cfg.Timeouts.Silent = unheard
	run(t, cfg).await("theirs", "scaled by its count", func(s server.PoolStatus) bool { return s.Desired == 3 })
}

func TestBadInput_NaN(t *testing.T) {
	cfg := configure(t, "{url: http://127.0.0.1:1}", counted(prometheus(t, "scalar", `[NOW,"NaN"]`)))
	requireOnly(t, cfg, "error: pool theirs, count.prometheus: ", "answers with NaN, which is no number of jobs", "(count_unusable)")
	r := run(t, cfg)
	r.requireHeld(policy.ReasonHoldStale)
	r.requireOthersWork()
}
