package runnertoml_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/config/runnertoml"
)

const aws = `
concurrent = 100
[[runners]]
  name = "Linux Docker (eu)"
  id = 42
  url = "https://gitlab.example.com/"
  token = "glrt-hunter2hunter2hunter2"
  executor = "docker-autoscaler"
  limit = 30
  [runners.docker]
    image = "busybox"
  [runners.autoscaler]
    plugin = "aws:latest"
    capacity_per_instance = 4
    max_use_count = 100
    max_instances = 10
    update_interval = "1m0s"
    [runners.autoscaler.plugin_config]
      name = "linux-asg"
      profile = "default"
    [runners.autoscaler.connector_config]
      username = "ec2-user"
      password = "hunter2"
    [[runners.autoscaler.policy]]
      idle_count = 5
      idle_time = "20m0s"
      scale_factor = 0.5
      scale_factor_limit = 8
    [[runners.autoscaler.policy]]
      periods = ["* 8-18 * * mon-fri"]
      timezone = "Europe/Berlin"
      idle_count = 20
      idle_time = "1h0m0s"
`

func TestImport(t *testing.T) {
	got, err := runnertoml.Import([]byte(aws))
	require.NoError(t, err)
	require.NotContains(t, string(got.YAML), "hunter2")

	c, err := config.Parse("imported.yaml", append(got.YAML, []byte("plugin_dir: /usr/lib/spillway/plugins\n")...))
	require.NoError(t, err, "%s", got.YAML)
	require.Len(t, c.Pools, 1)
	p := c.Pools[0]
	require.Equal(t, "linux-docker-eu", p.Name)
	require.Equal(t, config.ModeObserve, p.Mode)
	require.Equal(t, int64(42), p.GitLab.RunnerID)
	require.True(t, p.CapabilityFromGitLab(), "GitLab knows the tags")
	require.Equal(t, 4, p.CapacityPerInstance)
	require.Equal(t, "linux-asg", p.Group)
	require.Equal(t, "https://gitlab.example.com", c.GitLab.URL)
	require.Equal(t, 7, p.Policy.Max, "30 jobs at once are 7 instances of 4")
	require.Equal(t, 2, p.Policy.IdleCount, "5 jobs are 2 instances of 4")
	require.Equal(t, 20*time.Minute, p.Policy.IdleTime)
	require.InDelta(t, 0.5, p.Policy.IdleFactor, 0)
	require.Equal(t, 100, p.Policy.MaxUses)
	require.Contains(t, string(c.Providers[p.Provider].Config), "linux-asg")

	var settings []string
	for _, n := range got.Notes {
		require.NotContains(t, n.Text, "hunter2")
		settings = append(settings, n.Setting)
	}
	require.Equal(t, []string{
		"max_use_count", "plugin_config", "plugin_config.profile", "policy.periods", "policy.idle_count", "policy.scale_factor_limit", "runners.limit",
		"connector_config", "update_interval", "runners.executor", "concurrent",
	}, settings, "whatever is not taken over is told")
}

func TestImportOfOtherPlugins(t *testing.T) {
	got, err := runnertoml.Import([]byte(`
[[runners]]
  name = "g"
  url = "https://gitlab.example.com"
  [runners.autoscaler]
    plugin = "googlecloud"
    max_instances = 3
    [runners.autoscaler.plugin_config]
      name = "mig"
      project = "my-project"
      zone = "europe-west1-b"
[[runners]]
  name = "g"
  id = 7
  url = "https://other.example.com"
  [runners.autoscaler]
    plugin = "fleeting-plugin-azure"
    [runners.autoscaler.plugin_config]
      name = "vmss"
      client_secret = "hunter2"
    [[runners.autoscaler.policy]]
      periods = ["* * * * *"]
      idle_time = 600000000000
      preemptive_mode = false
`))
	require.NoError(t, err)
	require.Equal(t, 2, got.Pools)
	require.NotContains(t, string(got.YAML), "hunter2")
	c, err := config.Parse("f", append(got.YAML, []byte("plugin_dir: /p\n")...))
	require.NoError(t, err, "%s", got.YAML)
	require.Equal(t, []string{"g", "g-2"}, []string{c.Pools[0].Name, c.Pools[1].Name})
	require.JSONEq(t, `{"project": "my-project", "zone": "europe-west1-b", "groups": ["mig"]}`, string(c.Providers["g"].Config))
	require.Equal(t, "spillway-provider-fleeting", c.Providers["g-2"].Plugin)
	require.Equal(t, 10*time.Minute, c.Pools[1].Policy.IdleTime)
	require.Equal(t, 10, c.Pools[1].Policy.Max, "a pool is never without a limit")

	texts := map[string]string{}
	for _, n := range got.Notes {
		texts[n.Setting] = n.Text
	}
	require.Contains(t, texts["runners.id"], "gitlab.runner_id")
	require.Contains(t, texts["runners.url"], "another GitLab")
	require.Contains(t, texts["plugin"], "fleeting")
	require.Contains(t, texts["max_instances"], "policy.max")
	require.Contains(t, texts["policy.preemptive_mode"], "no equivalent")
}

func TestImportOfBadFiles(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"not TOML", "[[runners]]\nname = \nsecret = 'hunter2'", "line 2"},
		{"wrong type", "[[runners]]\nname = 'hunter2'\nid = 'x'", "line 3"},
		{"a duration", "[[runners]]\n[runners.autoscaler]\nplugin='aws'\n[[runners.autoscaler.policy]]\nidle_time = 'long'", "not a duration"},
		{"nothing to import", "[[runners]]\nname = 'a'\nexecutor = 'docker'", "no runner with an [runners.autoscaler] section"},
		{"Docker Machine", "[[runners]]\nname = 'a'\n[runners.machine]\nIdleCount = 1", "runner a: runners.machine: Docker Machine has no plugin here"},
		{"empty", "", "no runner"},
		{"too large", strings.Repeat("#", runnertoml.MaxFileBytes+1), "more than"},
		{"too many", strings.Repeat("[[runners]]\n", runnertoml.MaxRunners+1), "at most 500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := runnertoml.Import([]byte(c.text))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := runnertoml.Import(nil)
	require.ErrorIs(t, err, runnertoml.ErrNothing)
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(aws))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := runnertoml.Import(data)
		if err != nil {
			return
		}
		require.Positive(t, got.Pools)
		require.NotEmpty(t, got.YAML)
	})
}
