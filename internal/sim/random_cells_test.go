package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

var cellSeeds = flag.Int("cell-seeds", 8, "how many random stories of several cells are played")

// TestRandomStoriesOfCells lets the machine look for stories of several cells in which an
// invariant does not hold or a job is forgotten.
func TestRandomStoriesOfCells(t *testing.T) {
	var over, ended, back int
	for i := range *cellSeeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			text := randomCells(seed)
			s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
			require.NoError(t, err, text)
			r, err := sim.Run(t.Context(), s)
			require.NoError(t, err)
			for _, v := range r.Violations[:min(len(r.Violations), 5)] {
				t.Errorf("invariant %s broken at %s: %s", v.Invariant, v.T, v.What)
			}
			all := map[string]*sim.Result{"c0": r}
			for name, c := range r.Cells {
				all[name] = c
			}
			for name, c := range all {
				if n := c.Jobs.Completed + c.Jobs.Failed + c.Jobs.Canceled + c.Jobs.Rejected; n != c.Jobs.Submitted {
					t.Errorf("cell %s: %d of %d jobs have ended: %+v", name, n, c.Jobs.Submitted, c.Jobs)
				}
				for _, h := range c.Handed {
					over, ended, back = over+h.Over, ended+h.Ended, back+h.Back
				}
			}
			if t.Failed() {
				t.Log("\n" + text)
				if os.Getenv("STORY_SHOW") != "" {
					narrate(t, r)
				}
			}
		})
	}
	require.Positive(t, over, "nothing was handed over")
	require.Positive(t, ended)
	require.Positive(t, back, "nothing ever came back: nothing went wrong between cells")
}

// randomCells is an hour in which much goes wrong in two or three cells, and between them,
// and five in which nothing does.
func randomCells(seed uint64) string {
	g := storyTeller{rng: rand.New(rand.NewPCG(seed, 4))}
	cells := g.between(2, 3)
	g.linef("seed: %d\nduration: 6h", seed)
	g.tellCell(0, cells, "")
	g.linef("cells:")
	for i := 1; i < cells; i++ {
		g.linef("  c%d:", i)
		g.tellCell(i, cells, "    ")
	}
	return g.text.String()
}

// tellCell is one cell's story, which hands over to some of the others.
func (g *storyTeller) tellCell(i, cells int, indent string) {
	line := func(format string, args ...any) { g.linef(indent+format, args...) }
	var peers []int
	for k := range cells {
		if k != i && (i == 0 || g.between(0, 2) == 0) {
			peers = append(peers, k)
		}
	}
	line("replicas: %d", g.between(1, 3))
	line("config:")
	line("  cells:")
	line("    {name: c%d, spill_after: %s, start_within: %s, lease: %s, end_within: %s, offer_growth: %v, peers: [", i,
		g.word("10s", "1m", "5m"), g.word("1m", "5m"), g.word("15s", "1m"), g.word("90s", "2m"), g.between(0, 2) == 0)
	for _, k := range peers {
		line("      {name: c%d, cost_factor: %d, distance: %d, max_jobs: %d},", k, g.between(1, 3), g.between(0, 3), g.pick(2, 10, 100))
	}
	line("    ]}")
	if g.between(0, 3) == 0 {
		line("  admission: {controllers: [{name: gate, deadline: 1m}]}")
	}
	guarded := g.text.String()
	line("  pools:")
	g.pools = g.between(1, 2)
	for p := range g.pools {
		lo := g.between(0, 2)
		line("    - {name: c%dp%d, capability: {tags: [common, t%d]}, priority: %d, capacity_per_instance: %d, cost_per_job: %d, policy: {min: %d, max: %d, idle_time: 1m}}",
			i, p, p, p, g.pick(1, 1, 3), g.between(0, 3), lo, max(1, lo+g.between(0, 3)))
	}
	if hasGate(guarded) {
		line("controllers: {gate: {takes: %s, refuses: {projects: [9]}}}", g.word("100ms", "5s"))
	}
	line("cloud:")
	for p := range g.pools {
		line("  c%dp%d: {boot: %s}", i, p, g.word("20s", "60s", "{p50: 40s, p95: 2m}"))
	}
	line("jobs:")
	for k := range g.between(1, 4) {
		line("  - {at: %ds, id: j%d, count: %d, tags: [%s], project: %d, duration: %ds}",
			g.between(0, 3000), k, g.between(1, 10), g.word("common", "t0"), g.pick(1, 2, 9), g.pick(5, 60, 300, 900))
	}
	line("events:")
	for range g.between(1, 5) {
		line("  - {at: %d.%03ds, %s}", g.between(0, 3600), g.between(0, 999), g.cellEvent(i, peers))
	}
	if g.between(0, 2) == 0 {
		line("  - {at: %ds, cancel: [j0]}", g.between(3001, 3600))
	}
}

// hasGate reports whether the cell told last has a controller.
func hasGate(told string) bool {
	const gate = "admission: {controllers: [{name: gate, deadline: 1m}]}\n"
	return len(told) > len(gate) && told[len(told)-len(gate):] == gate
}

func (g *storyTeller) cellEvent(i int, peers []int) string {
	pool := fmt.Sprintf("pool: c%dp%d", i, g.between(0, g.pools-1))
	kind := g.between(0, 9)
	if len(peers) == 0 && kind < 3 {
		kind += 3
	}
	switch kind {
	case 0, 1, 2:
		return fmt.Sprintf("link: {to: c%d, fault: %s, for: %ds}", peers[g.rng.IntN(len(peers))], g.word("cut", "stalled"), g.pick(5, 30, 100, 400))
	case 3, 4:
		return fmt.Sprintf("replica: {n: 0, fault: %s, restart_after: %ds}", g.word("kill", "pause"), g.pick(1, 10, 50, 300))
	case 5:
		return fmt.Sprintf("store: {fault: %s, for: %ds}", g.word("down", "readonly"), g.pick(5, 30, 100, 300))
	case 6:
		return "offers: {fault: " + g.word("stale", "lie, free: 20", "lie, free: 0") + ", for: 5m}"
	case 7:
		return fmt.Sprintf("kill_instance: {%s, nth: %d}", pool, g.between(0, 5))
	case 8:
		return fmt.Sprintf("interrupt: {%s, nth: %d, notice: 2m, kind: %s, via: %s}", pool, g.between(0, 5), g.word("spot", "maintenance"), g.word("provider", "machine"))
	default:
		return "store: {fault: wiped}"
	}
}
