package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/controlplane"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// fakeFleet is three pools on the fake provider: one whose group is as it should
// be, one with bounds that don't fit, one whose group isn't there.
func fakeFleet(settings, store string) string {
	return fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0"}
%s
plugin_dir: %s
providers:
  cloud: {plugin: spillway-provider-fake, config: %s}
pools:
  - {name: fits, capability: {tags: [a]}, provider: cloud, policy: {max: 3}}
  - {name: tight, capability: {tags: [b]}, provider: cloud, policy: {max: 9}}
  - {name: absent, capability: {tags: [c]}, provider: cloud, policy: {max: 3}}
`, store, filepath.Join(bin, "plugins"), settings)
}

const fakeGroups = `{groups: {fits: {max: 3, initial: 2}, tight: {min: 1, max: 5}}}`

func findings(t *testing.T, args ...string) (code int, v verdict) {
	t.Helper()
	code, out, stderr := try(t, append([]string{"validate", "-o", "json"}, args...)...)
	require.NotEmpty(t, out, stderr)
	return code, decodeVerdict(t, out)
}

func decodeVerdict(t *testing.T, out string) (v verdict) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

func codes(found []controlplane.Finding) (codes []string) {
	for _, f := range found {
		codes = append(codes, f.Pool+":"+f.Code)
	}
	return codes
}

func TestValidateHoldsAPluginsConfigurationToItsSchema(t *testing.T) {
	code, v := findings(t, write(t, fakeFleet(fakeGroups, "")))
	require.Equal(t, exitOK, code)
	require.Empty(t, v.Findings, "the cloud was not asked")

	code, v = findings(t, write(t, fakeFleet(`{groups: {fits: {maximum: 3}}}`, "")))
	require.Equal(t, exitUsage, code)
	require.False(t, v.Valid)
	require.Equal(t, []string{":plugin_unusable"}, codes(v.Findings))
	require.Contains(t, v.Findings[0].Message, "unknown maximum")
}

func TestValidateOnline(t *testing.T) {
	path := write(t, fakeFleet(fakeGroups, ""))
	code, v := findings(t, "--online", path)
	require.Equal(t, exitUsage, code, "a group that isn't there is an error")
	require.Equal(t, []string{"absent:group_not_found", "tight:max_below_ours", "tight:min_above_ours"}, codes(v.Findings))

	code, _, stderr := try(t, "validate", "--online", path)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "error: pool absent, group absent: the group does not exist (group_not_found): create it")
	require.Contains(t, stderr, "warning: pool tight, group tight: the group's maximum 5 is below policy.max 9")
}

// GitLab is asked too, and what is about a setting names it.
func TestValidateOnlineAsksGitLab(t *testing.T) {
	g := gitlabtest.New(gitlabtest.Options{})
	s := httptest.NewServer(g)
	t.Cleanup(func() {
		s.Close()
		g.Close()
	})
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"a"}})
	t.Setenv("SPILLWAY_TEST_TOKEN", g.AddAPIToken(gitlabtest.Admin))
	config := fmt.Sprintf(`plugin_dir: %s
gitlab: {url: %q, api_token: {env: SPILLWAY_TEST_TOKEN}}
providers:
  cloud: {plugin: spillway-provider-fake, config: {groups: {fits: {max: 3}}}}
pools:
  - {name: fits, mode: observe, gitlab: {runner_id: %d}, provider: cloud, policy: {max: 3}}
`, filepath.Join(bin, "plugins"), s.URL, id)
	path := write(t, config)
	code, v := findings(t, "--online", path)
	require.Equal(t, exitOK, code, "%v", v)
	require.Empty(t, v.Findings)
	g.PauseRunner(id, true)
	code, v = findings(t, "--online", path)
	require.Equal(t, exitOK, code)
	require.Equal(t, []string{"fits:runner_paused"}, codes(v.Findings))
	require.Equal(t, "gitlab.runner_id", v.Findings[0].Setting)
	code, _, stderr := try(t, "validate", "--online", "--strict", path)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, fmt.Sprintf("warning: pool fits, gitlab.runner_id: runner %d is paused", id))

	g.DeleteRunner(id)
	t.Setenv("SPILLWAY_TEST_TOKEN", "glpat-nobodys")
	code, out, stderr := try(t, "validate", "--online", path)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "error: gitlab.api_token: ")
	require.NotContains(t, out+stderr, "glpat-nobodys")
	code, v = findings(t, path)
	require.Equal(t, exitOK, code, "GitLab was not asked")
	require.Empty(t, v.Findings)
}

func TestValidateStrictTakesWarningsForErrors(t *testing.T) {
	path := write(t, fakeFleet(`{groups: {fits: {max: 3}, tight: {max: 5}, absent: {max: 3}}}`, ""))
	code, v := findings(t, "--online", path)
	require.Equal(t, exitOK, code, "%v", v.Findings)
	require.Equal(t, []string{"tight:max_below_ours"}, codes(v.Findings))
	code, v = findings(t, "--online", "--strict", path)
	require.Equal(t, exitUsage, code)
	require.False(t, v.Valid)
}

func TestValidateWithoutThePluginSaysSo(t *testing.T) {
	path := write(t, `plugin_dir: /nowhere
providers: {cloud: {plugin: spillway-provider-x}}
pools: [{name: a, capability: {tags: [a]}, provider: cloud, policy: {max: 3}}]
`)
	code, v := findings(t, path)
	require.Equal(t, exitOK, code)
	require.Equal(t, []string{":plugin_not_found"}, codes(v.Findings))
	code, _ = findings(t, "--online", path)
	require.Equal(t, exitUsage, code)
}

func TestReleaseTakesProtectionOff(t *testing.T) {
	path := write(t, fakeFleet(`{groups: {fits: {max: 3, initial: 2}, tight: {max: 5, initial: 1, protected: false}, absent: {max: 3}}}`, ""))
	code, out, stderr := try(t, "release", "--config", path)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "pool fits, group fits: 2 instances would be unprotected (give --yes to do it)\n")
	code, out, _ = try(t, "release", "--config", path, "--pool", "fits", "--yes", "-o", "json")
	require.Equal(t, exitOK, code)
	require.JSONEq(t, `{"pool":"fits","group":"fits","protected":["i-0001","i-0002"]}`, out)
	code, _, stderr = try(t, "release", "--config", path, "--pool", "nonsense")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, `there is no pool "nonsense"`)
}

func TestReleaseRefusesWhatIsStillScaled(t *testing.T) {
	redis := storetest.StartServer(t)
	config := fakeFleet(`{groups: {fits: {max: 3, initial: 2}, tight: {max: 5}, absent: {max: 3}}}`, fmt.Sprintf("store: {redis: {addrs: [%q]}}", redis.Addr))
	r := startReplica(t, config)
	require.Eventually(t, func() bool { return strings.Contains(r.must("pools", "-o", "json"), `"desired": 2`) }, within, 2*poll, "%v", r.err) // it scales
	code, out, stderr := try(t, "release", "--config", write(t, config), "--yes")
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, stderr, "a replica still scales pool fits: stop every replica")
}
