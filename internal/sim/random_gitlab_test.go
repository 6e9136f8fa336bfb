package sim_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

var gitlabSeeds = flag.Int("gitlab-seeds", 60, "how many random stories are played in which GitLab hands the jobs out")

// TestRandomGitLabStories lets the machine look for a story of mode observe or route in
// which an instance is ended with a job on it, by whatever way its idleness was proven.
func TestRandomGitLabStories(t *testing.T) {
	fired, kinds := 0, make(map[string]int)
	stories := *gitlabSeeds
	if underRace || testing.Short() {
		stories = min(stories, 15) // make chaos plays them all
	}
	for i := range stories {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			text, kind := randomGitLabStory(seed)
			s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
			require.NoError(t, err, text)
			r, err := sim.Run(t.Context(), s)
			require.NoError(t, err)
			kinds[kind.name]++
			fired += len(s.Events)
			if r.BusyKills > 0 {
				t.Errorf("%d busy instances were ended by us", r.BusyKills)
			}
			for _, v := range r.Violations[:min(len(r.Violations), 5)] {
				t.Errorf("invariant %s broken at %s: %s", v.Invariant, v.T, v.What)
			}
			if n := r.Jobs.Completed + r.Jobs.Failed + r.Jobs.Canceled; n != r.Jobs.Submitted || r.Jobs.Submitted == 0 {
				t.Errorf("%d of %d jobs have ended: %+v", n, r.Jobs.Submitted, r.Jobs)
			}
			for name, p := range r.Pools {
				if last := p.Desired[len(p.Desired)-1].N; last != 0 && kind.drains {
					t.Errorf("pool %s still has %d instances at the end", name, last)
				}
			}
			for _, c := range r.Calls {
				if !kind.drains && c.Op == "remove" && strings.Count(c.Args, ":") > strings.Count(c.Args, ": never_registered") {
					t.Errorf("%s can't drain: remove(%s)", c.Pool, c.Args)
				}
			}
			if t.Failed() {
				t.Log("\n" + text)
				if os.Getenv("STORY_SHOW") != "" {
					narrate(t, r)
				}
				return
			}
			if i%20 == 0 {
				again, err := sim.Run(t.Context(), s)
				require.NoError(t, err)
				var a, b bytes.Buffer
				require.NoError(t, sim.WriteJSON(&a, r))
				require.NoError(t, sim.WriteJSON(&b, again))
				require.Equal(t, a.String(), b.String())
			}
		})
	}
	require.Positive(t, fired)
	for _, k := range gitlabKinds {
		require.Positive(t, kinds[k.name], "no story of %s was played", k.name)
	}
}

// gitlabKind is a way in which runners are seen and stopped.
type gitlabKind struct {
	name, mode string
	drains     bool
	gitlab     string // of the configuration
	pool       string // of each pool
	cloud      string
}

var gitlabKinds = []gitlabKind{
	{name: "sidecars", mode: "observe", drains: true},
	{
		name: "metrics and a hook", mode: "observe", drains: true, cloud: "termination_hook: 1h",
		gitlab: "gitlab: {url: 'https://gitlab.example.com', api_token: {env: TOKEN}}",
		pool:   "mode: observe, gitlab: {runner_id: 7}, observe: {drain: hook, metrics: {}}",
	},
	{
		name: "nothing that drains", mode: "observe", cloud: "boot: 61s",
		gitlab: "gitlab: {url: 'https://gitlab.example.com', api_token: {env: TOKEN}, webhook: {secret: {env: SECRET}}}",
		pool:   "mode: observe, gitlab: {runner_id: 7}, observe: {drain: none, metrics: {every: 30s}}",
	},
	{name: "front proxy", mode: "route", drains: true},
	{
		name: "one path", mode: "route", drains: true,
		gitlab: "gitlab: {url: 'https://gitlab.example.com', api_token: {env: TOKEN}, route: {server_url: 'grpc://spillway.example.com:7704', front: false}}",
		pool:   "mode: route, gitlab: {runner_id: 7, token: {env: RUNNER}}, observe: {metrics: {}}",
	},
}

// randomGitLabStory is like [randomStory]: an hour in which much goes wrong, and seven in
// which nothing does.
func randomGitLabStory(seed uint64) (string, gitlabKind) {
	g := storyTeller{rng: rand.New(rand.NewPCG(seed, 2))}
	kind := gitlabKinds[g.pick(0, 0, 1, 1, 2, 3, 3, 4, 4)] // those that never scale in play for long, and are fewer
	duration := "8h"
	if !kind.drains { // it goes on to the end
		duration = "4h"
	}
	g.linef("seed: %d\nduration: %s\nmode: %s\nreplicas: %d\nconfig:\n  %s\n  pools:", seed, duration, kind.mode, g.between(1, 3), kind.gitlab)
	g.pools = g.between(1, 3)
	for i := range g.pools {
		capacity := g.pick(1, 1, 4)
		g.linef("    - {name: p%d, capability: {tags: [common, p%d]}, priority: %d, capacity_per_instance: %d, policy: {max: %d, idle_time: %s}%s}",
			i, i, g.between(0, 1), capacity, g.between(3, 10), g.word("0s", "30s", "10m"), prefixed(", ", kind.pool))
	}
	g.linef("cloud:")
	for i := range g.pools {
		g.linef("  p%d: {%s}", i, strings.Join(g.gitlabCloud(kind), ", "))
	}
	g.linef("jobs:")
	for i := range g.between(2, 8) {
		tag := g.word("common", fmt.Sprintf("p%d", g.between(0, g.pools-1)))
		g.linef("  - {at: %ds, id: j%d, count: %d, tags: [%s], duration: %ds}", g.between(0, 3000), i, g.between(1, 12), tag, g.pick(5, 60, 300, 900))
	}
	g.linef("events:")
	for range g.between(3, 8) {
		g.linef("  - {at: %d.%03ds, %s}", g.between(0, 3600), g.between(0, 999), g.gitlabEvent(kind))
	}
	return g.text.String(), kind
}

// gitlabCloud is a cloud whose own hooks don't end an instance before its jobs can have.
func (g *storyTeller) gitlabCloud(kind gitlabKind) []string {
	if kind.cloud == "" {
		return g.cloud()
	}
	list := []string{kind.cloud}
	for _, fault := range []string{"partial: 0.5", "late_fill: 2m", "visible_after: 20s", "never_register: {every: 4}", "victim: busy_first"} {
		if g.between(0, 3) == 0 {
			list = append(list, fault)
		}
	}
	return list
}

func (g *storyTeller) gitlabEvent(kind gitlabKind) string {
	pool := fmt.Sprintf("pool: p%d", g.between(0, g.pools-1))
	switch g.between(0, 6) {
	case 0:
		faults := []string{"resumed", "deleted"}
		if kind.mode == "observe" && kind.pool != "" {
			faults = faults[:1] // which instance a runner is on is known with its first job only
		}
		return fmt.Sprintf("runner: {%s, nth: %d, fault: %s}", pool, g.between(0, 5), g.word(faults...))
	case 1:
		return fmt.Sprintf("signal: {source: jobs, fault: %s, for: %dm}", g.word("error", "timeout", "empty", "stale", "partial"), g.between(1, 10))
	case 2:
		return fmt.Sprintf("config: {pools: {p%d: {policy: {max: %d}}}}", g.between(0, g.pools-1), g.between(4, 12)) // all jobs shall end within the story
	default:
		for {
			if ev := g.event(); !strings.HasPrefix(ev, "config") {
				return ev
			}
		}
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
