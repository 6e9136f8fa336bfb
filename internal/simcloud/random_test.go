package simcloud_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

var (
	seeds     = flag.Int("seeds", 5, "how many random stories are played on each cloud")
	firstSeed = flag.Uint64("first-seed", 1, "the seed of the first random story")
)

// TestRandomStoriesOnASG lets the machine look for faults under which an invariant
// does not hold, a job is forgotten or an instance is left over.
func TestRandomStoriesOnASG(t *testing.T) {
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			g := newTeller(seed)
			text := g.story(asgTroubles)
			a := simcloud.NewASG(simcloud.ASGOptions{Group: func(c *asgstub.GroupConfig) { moreASGTrouble(g, c) }})
			for range g.between(0, 3) {
				pool, d := fmt.Sprintf("p%d", g.between(0, g.pools-1)), time.Duration(g.between(0, 3600))*time.Second
				switch g.between(0, 2) {
				case 0:
					a.At(d, func() { a.Stub.AZRebalance(pool) })
				case 1:
					a.At(d, func() { a.Stub.StartInstanceRefresh(pool) })
				default:
					a.At(d, func() {
						if all := a.Stub.Existing(pool); len(all) > 0 {
							a.Stub.SelfTerminate(all[0].ID)
						}
					})
				}
			}
			playRandom(t, text, a.Cloud)
		})
	}
}

// TestRandomStoriesOnMIG is the same on managed instance groups.
func TestRandomStoriesOnMIG(t *testing.T) {
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			g := newTeller(seed)
			text := g.story(migTroubles)
			m := simcloud.NewMIG(simcloud.MIGOptions{Regional: seed%2 == 0, Group: func(c *migstub.GroupConfig) {
				c.Faults.Stop = time.Duration(g.pick(0, 30, 90)) * time.Second
				c.Paginated = g.pick(0, 1) == 1
				c.Template.Spot = g.pick(0, 1) == 1
			}})
			playRandom(t, text, m.Cloud)
		})
	}
}

func playRandom(t *testing.T, text string, cloud sim.NewCloud) {
	t.Helper()
	r := play(t, text, cloud)
	if n := r.Jobs.Completed + r.Jobs.Failed + r.Jobs.Canceled; n != r.Jobs.Submitted || r.Jobs.Submitted == 0 {
		t.Errorf("%d of %d jobs have ended: %+v", n, r.Jobs.Submitted, r.Jobs)
	}
	for name, p := range r.Pools {
		if last := p.Desired[len(p.Desired)-1].N; last != 0 {
			t.Errorf("pool %s still has %d instances at the end", name, last)
		}
	}
	if t.Failed() {
		t.Log("\n" + text)
		show(t, r)
	}
}

// asgTroubles are what a story can say of an Auto Scaling group.
func asgTroubles(g *teller) []string {
	return []string{
		"partial: 0.5", "late_fill: 2m", "visible_after: 20s", "protected: false", "victim: busy_first", "never_register: {every: 4}",
		"launch_hook: 11m", "termination_hook: " + g.word("5m", "1h"),
		"halts: [{from: 10m, to: 15m, " + g.word("launch: suspended", "removal: suspended", "launch: both, removal: both") + "}]",
		"errors: [{from: 5m, to: 20m, kind: " + g.word("throttled", "transient", "auth") + ", ratio: " + g.word("0.5", "1.0") + "}]",
		"errors: [{from: 5m, to: 20m, kind: " + g.word("capacity", "quota", "transient", "throttled") + ", ratio: " + g.word("0.5", "1.0") + ", delivery: activity}]",
	}
}

// moreASGTrouble is what no story can say. Health checks that are late and races with
// replacements are not among it: the simulation takes a replacement that nobody can
// know of yet, or that is gone in a moment, for one that serves.
func moreASGTrouble(g *teller, c *asgstub.GroupConfig) {
	c.Faults.Terminating = time.Duration(g.pick(0, 0, 40, 120)) * time.Second
	c.CapacityRebalance = g.between(0, 1) == 0
	c.SpotShare = float64(g.pick(0, 0, 1))
	if g.between(0, 3) == 0 {
		c.Faults.AZRebalance = true
		c.SuspendedProcesses = slices.DeleteFunc(c.SuspendedProcesses, func(p string) bool { return p == "AZRebalance" })
	}
	c.Faults.PageSize = g.pick(0, 0, 1)
}

// migTroubles are what a story can say of a managed instance group.
func migTroubles(g *teller) []string {
	return []string{
		"partial: 0.5", "late_fill: 2m", "visible_after: 20s", "victim: busy_first", "never_register: {every: 4}",
		"errors: [{from: 5m, to: 20m, kind: " + g.word("throttled", "transient", "auth") + ", ratio: " + g.word("0.5", "1.0") + g.word("", ", retry_after: 7s", ", retry_after: 2m") + "}]",
		"errors: [{from: 5m, to: 20m, kind: " + g.word("capacity", "quota") + ", ratio: " + g.word("0.5", "1.0") + ", delivery: activity}]",
	}
}

// teller makes stories up: an hour in which much goes wrong, and nine in which
// nothing does.
type teller struct {
	rng   *rand.Rand
	pools int
	text  strings.Builder
}

func newTeller(seed uint64) *teller {
	return &teller{rng: rand.New(rand.NewPCG(seed, 36))}
}

func (g *teller) linef(format string, args ...any) { fmt.Fprintf(&g.text, format+"\n", args...) }
func (g *teller) between(lo, hi int) int           { return lo + g.rng.IntN(hi-lo+1) }
func (g *teller) pick(of ...int) int               { return of[g.rng.IntN(len(of))] }
func (g *teller) word(of ...string) string         { return of[g.rng.IntN(len(of))] }

func (g *teller) story(troubles func(*teller) []string) string {
	g.pools = g.between(1, 2)
	g.linef("seed: %d\nduration: 10h\ntick: 10s\nreplicas: %d\nconfig:\n  pools:", g.between(1, 1000), g.between(1, 2))
	for i := range g.pools {
		capacity := g.pick(1, 1, 3)
		g.linef("    - {name: p%d, capability: {tags: [common, t%d]}, priority: %d, capacity_per_instance: %d, policy: {max: %d, idle_time: %s, max_uses: %d}}",
			i, i, g.between(0, 1), capacity, g.between(2, 8), g.word("1m", "5m"), g.pick(0, 0, 3*capacity))
	}
	g.linef("cloud:")
	for i := range g.pools {
		list := []string{"boot: " + g.word("60s", "{p50: 40s, p95: 2m}", "5s")}
		seen := map[string]bool{}
		for _, trouble := range troubles(g) {
			key, _, _ := strings.Cut(trouble, ":")
			if g.between(0, 3) == 0 && !seen[key] {
				seen[key] = true
				list = append(list, trouble)
			}
		}
		g.linef("  p%d: {%s}", i, strings.Join(list, ", "))
	}
	g.linef("jobs:")
	for i := range g.between(2, 6) {
		g.linef("  - {at: %ds, id: j%d, count: %d, tags: [%s], duration: %ds}",
			g.between(0, 3000), i, g.between(1, 10), g.word("common", fmt.Sprintf("t%d", g.between(0, g.pools-1))), g.pick(5, 60, 300, 900))
	}
	g.linef("events:")
	for range g.between(2, 6) {
		g.linef("  - {at: %d.%03ds, %s}", g.between(0, 3600), g.between(0, 999), g.event())
	}
	return g.text.String()
}

func (g *teller) event() string {
	pool := fmt.Sprintf("pool: p%d", g.between(0, g.pools-1))
	switch g.between(0, 7) {
	case 0:
		return fmt.Sprintf("set_desired: {%s, to: %d}", pool, g.between(0, 2))
	case 1:
		return fmt.Sprintf("kill_instance: {%s, nth: %d}", pool, g.between(0, 5))
	case 2:
		return fmt.Sprintf("interrupt: {%s, nth: %d, notice: 2m, kind: %s, via: %s}", pool, g.between(0, 5),
			g.word("spot", "maintenance", "rebalance"), g.word("provider", "machine"))
	case 3:
		return fmt.Sprintf("plugin: {%s, fault: %s, for: %ds}", pool, g.word("crash", "hang"), g.between(5, 300))
	case 4:
		return fmt.Sprintf("store: {fault: %s, for: %ds}", g.word("down", "readonly"), g.between(5, 200))
	case 5:
		return fmt.Sprintf("replica: {n: 0, fault: %s, restart_after: %ds}", g.word("kill", "pause"), g.between(1, 120))
	case 6:
		return fmt.Sprintf("unhealthy: {%s, nth: %d, via: %s}", pool, g.between(0, 5), g.word("provider", "machine"))
	default:
		return "store: {fault: wiped}"
	}
}
