package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// minimal is the smallest file that serves.
const minimal = `providers:
  mine: {plugin: ./plugin}
pools:
  - name: linux
    capability: {tags: [docker]}
    provider: mine
`

func problems(t *testing.T, err error) []string {
	t.Helper()
	var e *config.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, config.ErrInvalid)
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	return lines
}

func TestDefaults(t *testing.T) {
	c, err := config.Parse("spillway.yaml", []byte(minimal))
	require.NoError(t, err)

	require.Equal(t, config.Listen{Runners: "127.0.0.1:7700", API: "127.0.0.1:7701", Metrics: "127.0.0.1:7702", InsecureLoopback: true}, c.Listen)
	require.Nil(t, c.Store.Redis, "without redis the store is embedded")
	require.Equal(t, 5*time.Second, c.Tick)
	require.Equal(t, 5*time.Millisecond, c.Debounce)
	require.Equal(t, config.Log{Level: "info", Format: "text"}, c.Log)
	require.Equal(t, config.Timeouts{
		Pending: 24 * time.Hour, Unmatched: time.Hour, Assign: 30 * time.Second,
		Silent: spillway.SilentAfter, HeartbeatEvery: spillway.DefaultHeartbeatEvery,
	}, c.Timeouts)
	require.NotEmpty(t, c.ReplicaName())
	require.Equal(t, []spillway.Pool{{
		Name: "linux", Capability: spillway.Capability{Tags: []string{"docker"}, Type: spillway.InstanceType},
		CapacityPerInstance: 1, Provider: "mine", Group: "linux",
	}}, c.SpillwayPools())
	rules, life := c.RulesOf("linux")
	require.Equal(t, policy.Policy{
		Need: policy.Queue, Max: 10, CapacityPerInstance: 1, IdleTime: 10 * time.Minute,
		MaxRemovalsPerTick: 10, InPercentBudget: 0, Step: 1, StepWait: 15 * time.Minute,
	}, rules)
	require.Equal(t, config.Lifecycle{
		IdleTime: 10 * time.Minute, RegisterTimeout: 10 * time.Minute, SilentTimeout: 30 * time.Minute,
		SecondLook: 2 * time.Second, SilentAfter: 45 * time.Second,
	}, life)
}

func TestEveryPolicySettingArrives(t *testing.T) {
	c, err := config.Parse("f", []byte(`
providers: {mine: {plugin: ./plugin}}
timeouts: {silent: 60s}
pools:
  - name: a
    capability: {tags: [x], run_untagged: true, protected: true, type: project, projects: [4, 5], resources: {milli_cpu: 1500, memory_mib: 2048, features: [kvm]}}
    priority: 3
    capacity_per_instance: 4
    cost_per_job: 0.5
    provider: mine
    group: asg-a
    policy:
      need: step
      min: 1
      max: 9
      idle_count: 2
      idle_factor: 0.25
      idle_time: 1m
      max_uses: 7
      tolerance: 0.1
      scale_out: {stabilization: 1s, cooldown: 2s, step_limit: 3}
      scale_in: {stabilization: 4s, cooldown: 5s, step_limit: 6, max_removals_per_tick: 8, percent_budget: 50}
      step: 2
      step_wait: 3m
      register_timeout: 4m
      silent_timeout: 5m
      paused: true
`))
	require.NoError(t, err)
	rules, life := c.RulesOf("a")
	require.Equal(t, policy.Policy{
		Need: policy.Step, Min: 1, Max: 9, CapacityPerInstance: 4, IdleCount: 2, IdleFactor: 0.25, IdleTime: time.Minute,
		Tolerance:          0.1,
		Out:                policy.Rules{Stabilization: time.Second, Cooldown: 2 * time.Second, StepLimit: 3},
		In:                 policy.Rules{Stabilization: 4 * time.Second, Cooldown: 5 * time.Second, StepLimit: 6},
		MaxRemovalsPerTick: 8, InPercentBudget: 50, Step: 2, StepWait: 3 * time.Minute, Paused: true,
	}, rules)
	require.Equal(t, config.Lifecycle{
		IdleTime: time.Minute, MaxUses: 7, RegisterTimeout: 4 * time.Minute, SilentTimeout: 5 * time.Minute,
		SilentAfter: time.Minute, SecondLook: 2 * time.Second,
	}, life)
	require.Equal(t, spillway.Pool{
		Name: "a", Priority: 3, CapacityPerInstance: 4, MaxUses: 7, CostPerJob: 0.5, Provider: "mine", Group: "asg-a",
		Capability: spillway.Capability{
			Tags: []string{"x"}, RunUntagged: true, Protected: true, Type: spillway.ProjectType, Projects: []int64{4, 5},
			Resources: spillway.Resources{MilliCPU: 1500, MemoryMiB: 2048, Features: []string{"kvm"}},
		},
	}, c.SpillwayPools()[0])
}

func TestRulesOfOnePool(t *testing.T) {
	c, err := config.Parse("f", []byte(config.Example))
	require.NoError(t, err)
	for _, p := range c.Pools {
		rules, life := c.RulesOf(p.Name)
		require.Equal(t, []any{p.Policy.Max, p.Policy.IdleTime}, []any{rules.Max, life.IdleTime})
		same, known := c.Pool(p.Name)
		require.True(t, known)
		require.Equal(t, p, same)
	}
	rules, life := c.RulesOf("no-such-pool")
	require.Zero(t, rules)
	require.Zero(t, life)
	_, known := c.Pool("no-such-pool")
	require.False(t, known)
}

func TestLoadReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	require.NoError(t, os.WriteFile(path, []byte(minimal), 0o600))
	c, err := config.Load(path)
	require.NoError(t, err)
	require.Len(t, c.Pools, 1)

	require.NoError(t, os.WriteFile(path, []byte("tick: now\n"), 0o600))
	_, err = config.Load(path)
	require.Contains(t, problems(t, err)[0], path+":1: tick: \"now\" is not a duration")

	_, err = config.Load(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, config.ErrInvalid)
}

func TestTooLargeFile(t *testing.T) {
	edge := minimal + "#" + strings.Repeat("x", config.MaxFileBytes-len(minimal)-2) + "\n"
	require.Len(t, edge, config.MaxFileBytes)
	_, err := config.Parse("f", []byte(edge))
	require.NoError(t, err)
	_, err = config.Parse("f", []byte(edge+"#"))
	require.ErrorContains(t, err, "at most 8388608 are allowed")
}

func TestRoundTrip(t *testing.T) {
	for name, text := range map[string]string{"minimal": minimal, "example": config.Example} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Parse("f", []byte(text))
			require.NoError(t, err)
			whole, err := c.YAML()
			require.NoError(t, err)
			again, err := config.Parse("f", whole)
			require.NoError(t, err, string(whole))
			same, err := again.YAML()
			require.NoError(t, err)
			require.Equal(t, string(whole), string(same))
			for i, p := range c.SpillwayPools() {
				rules, life := c.RulesOf(p.Name)
				sameRules, sameLife := again.RulesOf(p.Name)
				require.Equal(t, rules, sameRules)
				require.Equal(t, life, sameLife)
				require.Equal(t, p.Capability.Fingerprint(), again.SpillwayPools()[i].Capability.Fingerprint())
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c, err := config.Parse("f", []byte(`providers:
  mine: {plugin: ./plugin}
  spare: {plugin: ./plugin, sha256: "`+strings.Repeat("ab", 32)+`"}
pools:
  - name: a
    capability: {tags: [" docker ", linux]}
    provider: mine
    policy: {min: 1}
  - name: b
    capability: {tags: [Docker]}
    provider: mine
    runner_token: {env: B}
    policy: {max: 2, idle_count: 3}
`))
	require.NoError(t, err)
	var got []string
	for _, w := range c.Warnings() {
		got = append(got, w.String())
	}
	require.Equal(t, []string{
		`f:2: providers.mine: the plugin is not pinned: whatever file is there will be started; set sha256 to what sha256sum prints`,
		`f:3: providers.spare: no pool uses this provider; its plugin would be started for nothing`,
		`f:5: pools[0]: keeps at least 1 instances, but no runner can register in it: set runner_token to {env: NAME} or {file: PATH}`,
		`f:6: pools[0].capability.tags[0]: the blanks around "docker" were removed`,
		`f:10: pools[1].capability.tags[0]: "Docker" differs only in case from "docker" in another place; tags are case-sensitive: a job with the one does not match the other`,
		`f:13: pools[1].policy.idle_count: 3 is more than max (2), which limits it`,
	}, got)
	require.Equal(t, []string{"docker", "linux"}, c.Pools[0].Capability.Tags)
}

func TestScenarioNeedsNoProvider(t *testing.T) {
	text := []byte("pools:\n  - name: linux\n    capability: {tags: [docker]}\n")
	_, err := config.Parse("f", text)
	require.Equal(t, []string{"f:2: pools[0].provider: a pool needs a provider; there is none to choose from"}, problems(t, err))

	c, err := config.ParseWith("f", text, config.Options{ProviderOptional: true})
	require.NoError(t, err)
	require.Empty(t, c.Warnings())
}

func TestPluginConfigIsCanonicalJSON(t *testing.T) {
	c, err := config.Parse("f", []byte(`
providers:
  mine:
    plugin: ./plugin
    config: {zone: b, count: 3, ratio: 0.5, on: true, none: null, day: 2024-01-02, list: [1, {a: x}], "9": y}
pools: [{name: p, capability: {run_untagged: true}, provider: mine}]
`))
	require.NoError(t, err)
	require.Equal(t,
		`{"9":"y","count":3,"day":"2024-01-02","list":[1,{"a":"x"}],"none":null,"on":true,"ratio":0.5,"zone":"b"}`,
		string(c.Providers["mine"].Config))
}

func TestErrorsAreBounded(t *testing.T) {
	text := minimal
	for range config.MaxProblems + 5 {
		text += "    nonsense: 1\n"
	}
	_, err := config.Parse("f", []byte(text))
	var e *config.Error
	require.True(t, errors.As(err, &e))
	require.Len(t, e.Problems, config.MaxProblems)
	require.Equal(t, 5, e.Omitted)
	require.Contains(t, err.Error(), "and 5 more")
}
