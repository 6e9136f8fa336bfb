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

var (
	seeds     = flag.Int("seeds", 60, "how many random stories are played")
	firstSeed = flag.Uint64("first-seed", 1, "the seed of the first random story")
)

// TestRandomStories lets the machine look for stories in which an invariant does
// not hold or a job is forgotten. A story that fails is printed; kept as a file
// among the scenarios it is played for ever.
func TestRandomStories(t *testing.T) {
	var fired, played, asked, refused int
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			text := randomStory(seed)
			s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
			require.NoError(t, err, text)
			r, err := sim.Run(t.Context(), s)
			require.NoError(t, err)
			played++
			fired += len(s.Events)
			refused += r.Jobs.Rejected
			for _, c := range r.Controllers {
				asked += c.Asked
			}
			for _, v := range r.Violations[:min(len(r.Violations), 5)] {
				t.Errorf("invariant %s broken at %s: %s", v.Invariant, v.T, v.What)
			}
			if n := r.Jobs.Completed + r.Jobs.Failed + r.Jobs.Canceled + r.Jobs.Rejected; n != r.Jobs.Submitted || r.Jobs.Submitted == 0 {
				t.Errorf("%d of %d jobs have ended: %+v", n, r.Jobs.Submitted, r.Jobs)
			}
			for name, p := range r.Pools {
				if last := p.Desired[len(p.Desired)-1].N; last != 0 {
					t.Errorf("pool %s still has %d instances at the end", name, last)
				}
			}
			if t.Failed() {
				t.Log("\n" + text)
				if os.Getenv("STORY_SHOW") != "" {
					narrate(t, r)
				}
				return
			}
			if i%10 == 0 { // the stories are played twice elsewhere: a sample is enough
				again, err := sim.Run(t.Context(), s)
				require.NoError(t, err)
				var a, b bytes.Buffer
				require.NoError(t, sim.WriteJSON(&a, r))
				require.NoError(t, sim.WriteJSON(&b, again))
				require.Equal(t, a.String(), b.String())
			}
		})
	}
	require.Positive(t, fired, "a run in which nothing went wrong shows nothing")
	require.Equal(t, *seeds, played)
	if *seeds >= 20 {
		require.Positive(t, asked, "no controller was asked of any job")
		require.Positive(t, refused)
	}
}

// randomStory is an hour in which much goes wrong, and nine in which nothing does.
func randomStory(seed uint64) string {
	g := storyTeller{rng: rand.New(rand.NewPCG(seed, 1))}
	routing := storyTeller{rng: rand.New(rand.NewPCG(seed, 2))}
	gate := storyTeller{rng: rand.New(rand.NewPCG(seed, 3))}
	g.linef("seed: %d\nduration: 10h\nreplicas: %d\nconfig:\n  pools:", seed, g.between(1, 3))
	g.pools = g.between(1, 3)
	for i := range g.pools {
		tags, capacity := fmt.Sprintf("[common, p%d]", i), g.pick(1, 1, 4)
		g.linef("    - name: p%d\n      capability: {tags: %s}\n      priority: %d\n      capacity_per_instance: %d\n      spill_after: %s\n      policy: {max: %d, idle_time: %s, idle_count: 0, max_uses: %d}",
			i, tags, g.between(0, 1), capacity, routing.word("0s", "0s", "30s", "5m"), g.between(2, 10), g.word("0s", "30s", "10m"), g.pick(0, 0, 0, 3*capacity))
	}
	guarded := gate.between(0, 1) == 0
	if guarded {
		gate.controllers(&g)
	}
	g.linef("cloud:")
	for i := range g.pools {
		g.linef("  p%d: {%s}", i, strings.Join(g.cloud(), ", "))
	}
	g.linef("jobs:")
	for i := range g.between(2, 8) {
		tag := g.word("common", fmt.Sprintf("p%d", g.between(0, g.pools-1)))
		g.linef("  - {at: %ds, id: j%d, count: %d, tags: [%s], project: %d, duration: %ds}",
			g.between(0, 3000), i, g.between(1, 12), tag, routing.between(0, 2), g.pick(5, 60, 300, 900))
	}
	g.linef("events:")
	for range g.between(3, 8) {
		g.linef("  - {at: %d.%03ds, %s}", g.between(0, 3600), g.between(0, 999), g.event())
	}
	for guarded && gate.between(0, 2) > 0 {
		g.linef("  - {at: %d.%03ds, controller: {%s}}", gate.between(0, 3600), gate.between(0, 999), gate.controllerFault())
	}
	return g.text.String()
}

// controllers are those of admission. One may be asked about all jobs, one about those of
// a project, one is only shown them, and one never comes.
func (g *storyTeller) controllers(to *storyTeller) {
	to.linef("  admission:\n    controllers:")
	to.linef("      - {name: all, deadline: %s, batch: %d}", g.word("10s", "1m", "10m"), g.pick(1, 4, 32))
	to.linef("      - {name: one, scope: project, projects: [1], deadline: %s}", g.word("30s", "5m"))
	to.linef("      - {name: watcher, dry_run: true, deadline: 10s}")
	if g.between(0, 3) == 0 {
		to.linef("      - {name: nobody, scope: project, projects: [2], deadline: 30s}")
	}
	to.linef("controllers:")
	to.linef("  all: {instances: %d, takes: %s, refuses: {jobs: [j%d]}}", g.between(1, 2), g.word("0s", "100ms", "3s"), g.between(0, 1))
	to.linef("  one: {takes: %s, from: %ds}", g.word("0s", "1s", "20s"), g.pick(0, 0, 600))
	to.linef("  watcher: {takes: 1s, refuses: {tags: [common]}}")
}

func (g *storyTeller) controllerFault() string {
	name, fault := g.word("all", "all", "one", "watcher"), g.word("gone", "silent", "slow, takes: 45s", "lies")
	return fmt.Sprintf("name: %s, fault: %s, for: %ds", name, fault, g.between(1, 300))
}

type storyTeller struct {
	rng   *rand.Rand
	text  strings.Builder
	pools int
}

func (g *storyTeller) linef(format string, args ...any) { fmt.Fprintf(&g.text, format+"\n", args...) }
func (g *storyTeller) between(lo, hi int) int           { return lo + g.rng.IntN(hi-lo+1) }
func (g *storyTeller) pick(of ...int) int               { return of[g.rng.IntN(len(of))] }
func (g *storyTeller) word(of ...string) string         { return of[g.rng.IntN(len(of))] }

func (g *storyTeller) cloud() []string {
	list := []string{g.word("boot: 60s", "boot: {p50: 40s, p95: 2m}", "boot: 0s")}
	for _, fault := range []string{
		"partial: 0.5", "late_fill: 2m", "visible_after: 20s", "protected: false", "auto_replace: true", "victim: busy_first",
		"never_register: {every: 4}", "price: 0.1", "launch_hook: 11m", "termination_hook: " + g.word("5m", "1h"),
		"halts: [{from: 10m, to: 15m, " + g.word("launch: suspended", "removal: suspended", "launch: theirs, removal: theirs") + "}]",
		"errors: [{from: 5m, to: 20m, kind: " + g.word("capacity", "throttled", "transient", "quota") + ", ratio: " + g.word("0.5", "1.0") + ", delivery: " + g.word("call", "activity") + g.word("", ", retry_after: 7s", ", retry_after: 2m") + "}]",
	} {
		if g.between(0, 3) == 0 {
			list = append(list, fault)
		}
	}
	return list
}

func (g *storyTeller) event() string {
	pool := fmt.Sprintf("pool: p%d", g.between(0, g.pools-1))
	switch g.between(0, 10) {
	case 0:
		return fmt.Sprintf("set_desired: {%s, to: %d}", pool, g.between(0, 2))
	case 1:
		return fmt.Sprintf("kill_instance: {%s, nth: %d}", pool, g.between(0, 5))
	case 2:
		return fmt.Sprintf("interrupt: {%s, nth: %d, notice: 2m, kind: %s, via: %s}", pool, g.between(0, 5),
			g.word("spot", "maintenance", "rebalance"), g.word("provider", "machine"))
	case 3:
		return fmt.Sprintf("signal: {source: jobs, fault: %s, for: %dm}", g.word("error", "timeout", "empty", "stale", "partial"), g.between(1, 10))
	case 4:
		return fmt.Sprintf("plugin: {%s, fault: %s, for: %ds}", pool, g.word("crash", "hang"), g.between(5, 300))
	case 5:
		return fmt.Sprintf("store: {fault: %s, for: %ds}", g.word("down", "readonly"), g.between(5, 200))
	case 6:
		return "store: {fault: wiped}"
	case 7:
		return fmt.Sprintf("replica: {n: 0, fault: %s, restart_after: %ds}", g.word("kill", "pause"), g.between(1, 120))
	case 8:
		return fmt.Sprintf("config: {pools: {p%d: {policy: {max: %d}}}}", g.between(0, g.pools-1), g.between(1, 12))
	case 9:
		return fmt.Sprintf("unhealthy: {%s, nth: %d, via: %s}", pool, g.between(0, 5), g.word("provider", "machine"))
	default:
		return "cancel: []"
	}
}
