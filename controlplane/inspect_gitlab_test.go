package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// A GitLab as the configuration has it: nothing is found, and nothing but questions came.
func TestInspectFindsNothingWrongWithWhatIsRight(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, token := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker", "big"}, Protected: true})
	g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"other"}})
	gitlab := fmt.Sprintf(`{url: "%s/", api_token: %s, webhook: {secret: %s}, route: {server_url: "grpc://127.0.0.1:1"}}`,
		url, secretFile(t, g.AddAPIToken(gitlabtest.Admin)), secretFile(t, "a-long-secret"))
	for _, pool := range []string{
		fmt.Sprintf("mode: observe, gitlab: {runner_id: %d}", id),
		fmt.Sprintf("mode: observe, capability: {tags: [big, docker], protected: true, resources: {milli_cpu: 2000}}, gitlab: {runner_id: %d}", id),
		fmt.Sprintf("mode: route, gitlab: {runner_id: %d, token: %s}", id, secretFile(t, token)),
		fmt.Sprintf("mode: route, capability: {tags: [docker, big], protected: true}, gitlab: {token: %s}", secretFile(t, token)),
	} {
		require.Empty(t, found(t, configure(t, gitlab, pool)), pool)
	}
	for _, call := range g.Calls() {
		require.True(t, call.Method == http.MethodGet || strings.HasSuffix(call.Path, "/runners/verify"), "%s %s", call.Method, call.Path)
	}
}

func TestInspectComparesPoolsWithTheirRunners(t *testing.T) {
	g, url := newGitLab(t)
	project := g.AddProject("team/app")
	id, token := g.AddRunner(gitlabtest.RunnerSpec{Type: spillway.ProjectType, Projects: []int64{project}, Tags: []string{"docker"}, RunUntagged: true})
	other, otherToken := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	g.PauseRunner(other, true)
	gitlab := fmt.Sprintf(`{url: %q, api_token: %s, route: {server_url: "grpc://127.0.0.1:1"}}`, url, secretFile(t, g.AddAPIToken(gitlabtest.Admin)))

	requireOnly(t, configure(t, gitlab, fmt.Sprintf(declared, id)), "warning: pool theirs, capability: ",
		fmt.Sprintf(`the pool says "docker", and runner %d in GitLab says "docker +untagged project[%d]" (capability_differs)`, id, project))
	requireOnly(t, configure(t, gitlab, fmt.Sprintf(declared, other)), "warning: pool theirs, gitlab.runner_id: ", fmt.Sprintf("runner %d is paused", other), "(runner_paused)")
	requireOnly(t, configure(t, gitlab, fmt.Sprintf(declared, 999)), "error: pool theirs, gitlab.runner_id: ", "GitLab knows no runner 999 (runner_not_found)")
	requireOnly(t, configure(t, gitlab, fmt.Sprintf("mode: route, gitlab: {runner_id: %d, token: %s}", id, secretFile(t, otherToken))),
		"warning: pool theirs, gitlab.token: ", fmt.Sprintf("the token is that of runner %d, and gitlab.runner_id is %d", other, id), "(runner_token_differs)")

	// The token alone tells which runner it is.
	requireOnly(t, configure(t, gitlab, "mode: observe, capability: {tags: [docker]}, gitlab: {token: "+secretFile(t, token)+"}"), "warning: pool theirs, capability: ")
	// Nobody needs a token for the API to have a runner's token looked at.
	bare := fmt.Sprintf(`{url: %q, route: {server_url: "grpc://127.0.0.1:1"}}`, url)
	route := "mode: route, capability: {tags: [any]}, gitlab: {token: %s}"
	require.Empty(t, found(t, configure(t, bare, fmt.Sprintf(route, secretFile(t, token)))))
	requireOnly(t, configure(t, bare, fmt.Sprintf(route, secretFile(t, "glrt-x"))), "error: pool theirs, gitlab.token: ", "(runner_token_refused)")
	// A token that is no API token is refused once, however many pools ask with it.
	none := fmt.Sprintf("{url: %q, api_token: %s, jobs: {scope: none}}", url, secretFile(t, "glpat-x"))
	requireOnly(t, configure(t, none, fmt.Sprintf(declared, id)), "error: gitlab.api_token: ", "it is wrong, expired or revoked", "(gitlab_unusable)")
}

// Pools that share a runner ask for it once.
func TestInspectAsksForEachThingOnce(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, token := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	from := secretFile(t, token)
	cfg := configure(t, fmt.Sprintf(`{url: %q, api_token: %s, route: {server_url: "grpc://127.0.0.1:1"}}`, url, secretFile(t, g.AddAPIToken(gitlabtest.Admin))),
		fmt.Sprintf("mode: route, gitlab: {runner_id: %d, token: %s}", id, from))
	for range 3 {
		cfg.Pools = append(cfg.Pools, cfg.Pools[1])
	}
	require.Empty(t, found(t, cfg))
	asked := map[string]int{}
	for _, call := range g.Calls() {
		asked[call.Path]++
	}
	require.Equal(t, map[string]int{
		"/api/v4/runners/all": 1, "/api/v4/runners/verify": 1,
		fmt.Sprintf("/api/v4/runners/%d", id): 1, fmt.Sprintf("/api/v4/runners/%d/managers", id): 1,
	}, asked)
}

func TestInspectReadsEverySecret(t *testing.T) {
	missing := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "missing"))
	server := answering(t, "text/plain", "") // nobody is asked without a token
	cfg := configure(t, fmt.Sprintf(`{url: %q, api_token: %s, jobs: {scope: none}, webhook: {secret: %s}, route: {server_url: "grpc://127.0.0.1:1"}}`, server.URL, missing, missing),
		fmt.Sprintf("mode: route, capability: {tags: [a]}, gitlab: {runner_id: 1, token: %s}, runner_token: %s, count: {prometheus: {url: %q, query: up, token: %s}}", missing, missing, server.URL, missing))
	cfg.Store.Redis = &config.Redis{Addrs: []string{"127.0.0.1:1"}, PasswordFile: "/nowhere/password"}
	nowhere := config.TLS{CAFile: "/nowhere/ca"}
	cfg.Cells = &config.Cells{Peers: []config.CellPeer{{Token: config.SecretSource{File: "/nowhere/token"}, TLS: &config.StoreTLS{TLS: nowhere}}}}
	texts := found(t, cfg)
	for i, setting := range []string{"store.redis.password", "gitlab.api_token", "gitlab.webhook.secret", "cells.peers[0].token", "pool theirs, runner_token", "pool theirs, gitlab.token", "pool theirs, count.prometheus.token"} {
		require.Contains(t, texts[i], "error: "+setting+": no secret: ")
		require.Contains(t, texts[i], "(secret_unreadable): ")
	}
	require.Len(t, texts, 7, "%v", texts)
	certificates := (&surroundings{cfg: cfg}).local(true)
	require.Len(t, certificates, 1, "%v", certificates)
	require.Contains(t, certificates[0].String(), "error: cells.peers[0].tls: ")
	require.Contains(t, certificates[0].String(), "(certificate_missing): ")
}

// The plugin has its part in it, and what is about no provider says so.
func TestInspectOnline(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", url, secretFile(t, g.AddAPIToken(gitlabtest.NoRights))),
		"mode: observe, capability: {tags: [docker]}, observe: {drain: hook}")
	all, err := Inspect(t.Context(), cfg, true)
	require.NoError(t, err)
	require.Len(t, all, 2, "%v", all)
	require.Contains(t, all[0].String(), "error: gitlab.api_token: ")
	require.Contains(t, all[1].String(), "warning: pool theirs, group theirs: the plugin does not tell")
	require.Contains(t, all[1].String(), "(hook_not_verifiable)")
	text, err := json.Marshal(all[0])
	require.NoError(t, err)
	var fields map[string]string
	require.NoError(t, json.Unmarshal(text, &fields))
	require.Subset(t, fields, map[string]string{"setting": "gitlab.api_token", "code": "gitlab_unusable", "severity": "error"})
	require.NotContains(t, fields, "provider")
	require.NotContains(t, fields, "pool")

	all, err = Inspect(t.Context(), cfg, false)
	require.NoError(t, err)
	require.Empty(t, all, "nobody was asked")
}
