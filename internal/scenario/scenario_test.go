package scenario_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

func TestTheExampleOfTheFormat(t *testing.T) {
	s, err := scenario.Load("testdata/example.yaml")
	require.NoError(t, err)
	require.Equal(t, scenario.Orchestrate, s.Mode)
	require.Equal(t, time.Hour, s.Duration)
	require.Equal(t, 5*time.Second, s.Tick)
	require.Len(t, s.Config.Pools, 1)
	require.Equal(t, fake.Config{
		Boot: fake.Boot{P50: time.Minute, P95: 2 * time.Minute}, Max: 100,
		NeverRegister: fake.NeverRegister{Every: 5},
		Errors:        []fake.ErrorWindow{{To: 5 * time.Minute, Kind: pluginsdk.KindCapacity, Ratio: 1, Delivery: fake.ByCall}},
		Partial:       0.9, LateFill: 2 * time.Minute, Victim: fake.BusyFirst, Protected: true, PricePerHour: 0.1,
	}, s.Clouds["linux"])
	require.Len(t, s.Jobs, 26)
	require.Equal(t, spillway.JobID("burst-25"), s.Jobs[25].Job.ID)
	require.Equal(t, int64(7), s.Jobs[0].Job.Requirement.Project)
	require.Equal(t, 5*time.Minute, s.Jobs[0].Duration)
	require.Len(t, s.Events, 10)
	require.Equal(t, scenario.Duplicate{Jobs: []spillway.JobID{"j1"}, Times: 3}, s.Events[1].Action)
	require.Equal(t, scenario.Plugin{Pool: "linux", Fault: scenario.PluginCrash, For: scenario.DefaultCrashFor}, s.Events[6].Action)
	require.Equal(t, 5, s.Events[9].Action.(scenario.Reload).Config.Pools[0].Policy.Max)
	require.Equal(t, 10, s.Config.Pools[0].Policy.Max)
	require.Len(t, s.Expect, 5)
	require.Equal(t, []string{"pool", "linux", "desired"}, s.Expect[2].Path)
	require.Equal(t, 3500*time.Second, s.Expect[2].At)
	require.InDelta(t, 900, s.Expect[4].Value, 0)
}

func TestEveryMistakeAtOnceWithItsLine(t *testing.T) {
	_, err := scenario.Load("testdata/broken.yaml")
	require.ErrorIs(t, err, config.ErrInvalid)
	for _, want := range []string{
		":1: seed: ", ":2: mode: ", ":5: speed: unknown setting", ":9: config.pools[0].capability.typo: ",
		":14: ", ":15: jobs[2].id: there is a job j1 already", ":16: jobs[3].tags: must be a list",
		":16: jobs[3].duration: ", ":16: jobs[3]: a job needs id",
		`:18: events[0]: there is no job "nobody"`, ":19: events[1]: 11m0s is after the end",
		":20: events[2]: job late is submitted at 11m0s", ":21: events[3].replica.n: there is no replica 2",
		`:22: events[4].signal.source: "moon"`, ":23: events[5].plugin.fault: ", ":23: events[5].plugin: needs pool",
		":24: events[6]: an event needs at", `:26: expect[0]: "busy_kills = 0"`, ":28: expect[2]: many is neither",
		":29: expect[3]: jobs.failed: at() goes with", ":30: expect[4]: weather: unknown",
	} {
		require.ErrorContains(t, err, "testdata/broken.yaml"+want)
	}
}

const pool = `
config:
  pools:
    - name: linux
      capability: {tags: [docker]}
`

func parse(t *testing.T, text string) (*scenario.Scenario, error) {
	t.Helper()
	return scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
}

func TestDefaults(t *testing.T) {
	s, err := parse(t, pool)
	require.NoError(t, err)
	require.Equal(t, uint64(scenario.DefaultSeed), s.Seed)
	require.Equal(t, scenario.DefaultDuration, s.Duration)
	require.Equal(t, 1, s.Replicas)
	require.Equal(t, config.DefaultTick, s.Tick)
	want := fake.Defaults()
	want.Max = config.DefaultMax
	require.Equal(t, want, s.Clouds["linux"])
}

func TestWhatRealCloudsDo(t *testing.T) {
	s, err := parse(t, pool+`
cloud:
  linux:
    launch_hook: 10m
    termination_hook: 1h
    halts: [{from: 1m, launch: suspended}, {to: 1m, removal: theirs}]
    kept: [i-0001]
    errors: [{to: 20s, kind: throttled, retry_after: 7s}]
events:
  - {at: 1s, interrupt: {pool: linux, nth: 1}}
  - {at: 2s, interrupt: {pool: linux, nth: 1, notice: 2m, kind: rebalance, via: machine}}
  - {at: 3s, unhealthy: {pool: linux, nth: 2}}
  - {at: 4s, keep: {pool: linux, nth: 3}}
`)
	require.NoError(t, err)
	cloud := s.Clouds["linux"]
	require.Equal(t, 10*time.Minute, cloud.LaunchHook)
	require.Equal(t, time.Hour, cloud.TerminationHook)
	require.Equal(t, []fake.Halt{{From: time.Minute, To: scenario.MaxDuration, Launch: "suspended"}, {To: time.Minute, Removal: "theirs"}}, cloud.Halts)
	require.Equal(t, []string{"i-0001"}, cloud.Kept)
	require.Equal(t, 7*time.Second, cloud.Errors[0].RetryAfter)
	var actions []scenario.Action
	for _, ev := range s.Events {
		actions = append(actions, ev.Action)
	}
	require.Equal(t, []scenario.Action{
		scenario.Interrupt{Pool: "linux", Nth: 1, Kind: pluginsdk.SpotInterruption, Via: scenario.ViaProvider},
		scenario.Interrupt{Pool: "linux", Nth: 1, Notice: 2 * time.Minute, Kind: pluginsdk.Rebalance, Via: scenario.ViaMachine},
		scenario.Unhealthy{Pool: "linux", Nth: 2, Via: scenario.ViaProvider},
		scenario.Keep{Pool: "linux", Nth: 3},
	}, actions)
}

func TestOneMistakeEach(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":                {"", "the file is empty"},
		"two documents":        {pool + "---\na: 1\n", "more after the first YAML document"},
		"no config":            {"seed: 1\n", "needs config or config_file"},
		"two configs":          {pool + "config_file: x.yaml\n", "and not both"},
		"no such file":         {"config_file: none.yaml\n", "none.yaml"},
		"zero duration":        {pool + "duration: 0s\n", "duration: must be above 0s"},
		"zero tick":            {pool + "tick: 0s\n", "tick: must be above 0s"},
		"no replicas":          {pool + "replicas: 0\n", "replicas: 0: use 1 to 16"},
		"too many replicas":    {pool + "replicas: 17\n", "use 1 to 16"},
		"twice":                {pool + "seed: 1\nseed: 2\n", "second time"},
		"cloud bounds":         {pool + "cloud: {linux: {min: 3, max: 2}}\n", "cloud.linux: max 2"},
		"boot without p50":     {pool + "cloud: {linux: {boot: {p95: 1m}}}\n", "needs p50"},
		"error without kind":   {pool + "cloud: {linux: {errors: [{to: 1m}]}}\n", "needs a kind"},
		"halt without why":     {pool + "cloud: {linux: {halts: [{to: 1m}]}}\n", "halts[0]: say why"},
		"halt without an end":  {pool + "cloud: {linux: {halts: [{from: 2m, to: 1m, launch: x}]}}\n", "not a span of time"},
		"interruption unknown": {pool + "events: [{at: 0s, interrupt: {pool: linux, nth: 0, kind: maybe}}]\n", "kind"},
		"whose word":           {pool + "events: [{at: 0s, unhealthy: {pool: linux, nth: 0, via: rumour}}]\n", "via"},
		"keep whom":            {pool + "events: [{at: 0s, keep: {pool: linux}}]\n", "needs nth"},
		"burst of none":        {pool + "jobs: [{at: 0s, id: a, count: 0, duration: 1s}]\n", "use 1 to"},
		"bad job":              {pool + "jobs: [{at: 0s, id: a b, duration: 1s}]\n", "printable ASCII"},
		"two kinds":            {pool + "jobs: [{at: 0s, id: a, duration: 1s}]\nevents: [{at: 0s, cancel: [a], store: {fault: wiped}}]\n", "exactly one of"},
		"times without facts":  {pool + "events: [{at: 0s, store: {fault: wiped}, times: 2}]\n", "goes with duplicate"},
		"wiped for":            {pool + "events: [{at: 0s, store: {fault: wiped, for: 1m}}]\n", "wiped at once"},
		"pause without end":    {pool + "events: [{at: 0s, replica: {n: 0, fault: pause}}]\n", "needs restart_after"},
		"no such pool":         {pool + "events: [{at: 0s, set_desired: {pool: mac, to: 1}}]\n", `no pool "mac"`},
		"bad reload":           {pool + "events: [{at: 0s, config: {pools: {linux: {policy: {max: -1}}}}}]\n", "max"},
		"expect unknown pool":  {pool + "expect: [pool.mac.launches == 0]\n", "no pool mac"},
		"expect at of a count": {pool + "expect: ['pool.linux.launches.at(3s) == 0']\n", "at() goes with"},
		"trace":                {pool + "trace: none.jsonl\n", "trace: scenario: open"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.text)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, config.ErrInvalid)
		})
	}
}

func TestReloadsMergeInTheOrderOfTime(t *testing.T) {
	s, err := parse(t, pool+`
events:
  - {at: 20s, config: {pools: {linux: {policy: {max: 7}}, mac: {capability: {tags: [mac]}}}}}
  - {at: 10s, config: {pools: {linux: {policy: {min: 2}}}}}
  - {at: 30s, set_desired: {pool: mac, to: 1}}
expect: [pool.mac.launches == 1]
`)
	require.NoError(t, err)
	first := s.Events[0].Action.(scenario.Reload).Config
	second := s.Events[1].Action.(scenario.Reload).Config
	require.Equal(t, []int{2, 10}, []int{first.Pools[0].Policy.Min, first.Pools[0].Policy.Max})
	require.Equal(t, []int{2, 7}, []int{second.Pools[0].Policy.Min, second.Pools[0].Policy.Max})
	require.Contains(t, s.Clouds, "mac")
}

func TestTrace(t *testing.T) {
	data, err := os.ReadFile("testdata/trace.jsonl")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t.jsonl"), data, 0o600))
	s, err := scenario.Parse(filepath.Join(dir, "s.yaml"), []byte(pool+"trace: t.jsonl\n"))
	require.NoError(t, err)
	require.Len(t, s.Jobs, 3)
	require.Equal(t, 1500*time.Millisecond, s.Jobs[2].At)
	require.Equal(t, 5*time.Minute, s.Jobs[2].Duration)

	bad := strings.Replace(string(data), `"id": "b"`, `"name": "b"`, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t.jsonl"), []byte(bad), 0o600))
	_, err = scenario.Parse(filepath.Join(dir, "s.yaml"), []byte(pool+"trace: t.jsonl\n"))
	require.ErrorContains(t, err, "t.jsonl:3: name: unknown setting")
}

func TestALimitOnProblems(t *testing.T) {
	var b strings.Builder
	b.WriteString(pool)
	for i := range 200 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	_, err := parse(t, b.String())
	var e *config.Error
	require.True(t, errors.As(err, &e))
	require.Len(t, e.Problems, config.MaxProblems)
	require.Equal(t, 100, e.Omitted)
}

type facts map[string]float64

func (f facts) Fact(path []string, at time.Duration) float64 {
	key := strings.Join(path, ".")
	if at >= 0 {
		key += "@" + at.String()
	}
	return f[key]
}

func TestExpectations(t *testing.T) {
	f := facts{"busy_kills": 2, "jobs.wait.p95": 901, "pool.linux.desired@10s": 4}
	for line, want := range map[string]string{
		"busy_kills == 2":                 "ok",
		"busy_kills != 2":                 "FALSE: busy_kills != 2 (seen: 2)",
		"busy_kills <= 2":                 "ok",
		"busy_kills < 2":                  "FALSE: busy_kills < 2 (seen: 2)",
		"busy_kills >= 3":                 "FALSE: busy_kills >= 3 (seen: 2)",
		"busy_kills > 1.5":                "ok",
		"jobs.wait.p95 <= 15m":            "FALSE: jobs.wait.p95 <= 15m (seen: 15m1s)",
		"pool.linux.desired.at(10s) == 4": "ok",
		"pool.linux.desired.at(10) == 4":  "ok",
		"unmatched.never_seen == 0":       "ok",
	} {
		s, err := parse(t, pool+"expect: ['"+line+"']\n")
		require.NoError(t, err, line)
		o := s.Expect[0].Check(f)
		require.Equal(t, want == "ok", o.OK, line)
		if want != "ok" {
			require.Equal(t, want, o.String())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range []string{"testdata/example.yaml", "testdata/broken.yaml"} {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scenario.Parse("fuzz.yaml", data)
		if (s == nil) == (err == nil) {
			t.Fatal("a scenario or an error, never both or neither")
		}
	})
}

func TestTheModeIsTheStorysOrItsPools(t *testing.T) {
	const observed = "\nconfig: {gitlab: {url: 'https://gitlab.example.com'}, pools: [{name: p, mode: observe, capability: {tags: [x]}}]}\n"
	const plain = "\nconfig: {pools: [{name: p, capability: {tags: [x]}}]}\n"
	for text, want := range map[string]scenario.Mode{
		plain: scenario.Orchestrate, "mode: route" + plain: scenario.Route, "mode: observe" + plain: scenario.Observe,
		observed: scenario.Observe, "mode: observe" + observed: scenario.Observe,
	} {
		s, err := scenario.Parse("story.yaml", []byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, s.Mode, text)
	}
	for text, want := range map[string]string{
		"mode: orchestrate" + observed: "mode: orchestrate, and the pools say otherwise",
		"config: {gitlab: {url: 'https://gitlab.example.com'}, pools: [{name: p, mode: observe, capability: {tags: [x]}}, {name: q, capability: {tags: [x]}}]}": "pools of several modes",
	} {
		_, err := scenario.Parse("story.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestARunnerIsSetInGitLab(t *testing.T) {
	const event = "events: [{at: 1s, runner: {pool: p, nth: 2, fault: paused}}]\n"
	const pool = "\nconfig: {pools: [{name: p, capability: {tags: [x]}}]}\n"
	s, err := scenario.Parse("story.yaml", []byte("mode: observe"+pool+event))
	require.NoError(t, err)
	require.Equal(t, scenario.Runner{Pool: "p", Nth: 2, Fault: scenario.RunnerPaused}, s.Events[0].Action)
	_, err = scenario.Parse("story.yaml", []byte(pool+event))
	require.ErrorContains(t, err, "there is no GitLab in mode orchestrate")
	_, err = scenario.Parse("story.yaml", []byte("mode: observe"+pool+"events: [{at: 1s, runner: {pool: p, nth: 2, fault: lost}}]\n"))
	require.ErrorContains(t, err, "fault")
}
