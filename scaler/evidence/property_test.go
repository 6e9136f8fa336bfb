package evidence

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// drawFacts draws a pool of a few instances of which everything may be known or not,
// young, old or from the future.
func drawFacts(t *rapid.T) *Facts {
	tidy := rapid.Bool().Draw(t, "tidy") // nearly all is known, and nothing runs
	ages := []int{-5, 0, 1, 2, 10, 44, 45, 46, 60, 600, 601, 3600, 7200}
	if tidy {
		ages = []int{0, 1, 2, 10, 44, 45, 46}
	}
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return t0.Add(-time.Duration(rapid.SampledFrom(ages).Draw(t, "seconds ago")) * time.Second)
	})
	maybe := func(name string) bool {
		return rapid.IntRange(0, 3).Draw(t, name) > 0 || tidy && rapid.Bool().Draw(t, "after all")
	}
	at := func(name string) time.Time {
		if !maybe(name + " known") {
			return time.Time{}
		}
		return moment.Draw(t, name)
	}
	some := []int{0, 0, 0, 1, 2}
	if tidy {
		some = []int{0, 0, 0, 0, 0, 0, 0, 1}
	}
	jobs := func(name string) int { return rapid.SampledFrom(some).Draw(t, name) }
	f := &Facts{
		Pool: "p", Mode: rapid.SampledFrom([]Mode{Observe, RouteFront, RouteOne}).Draw(t, "mode"), Capacity: rapid.IntRange(1, 2).Draw(t, "capacity"),
		Drain:        rapid.SampledFrom([]Drain{DrainNone, DrainHook, DrainSidecar}).Draw(t, "drain"),
		HookVerified: maybe("hook"), Fresh: 45 * time.Second, ListedAt: at("list"), BookSince: at("book"),
		Drains: map[string]router.DrainOrder{}, Runners: map[string]Runner{},
	}
	if maybe("scraped") {
		f.Scrapes = map[string]Scrape{}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "instances") {
		id, system := fmt.Sprintf("i-%d", i), fmt.Sprintf("s-%d", i)
		if maybe(id) {
			f.Instances = append(f.Instances, Instance{ID: id, LaunchedAt: at(id + " launched"), Running: maybe(id + " runs")})
		}
		if f.Scrapes != nil && maybe(id+" scraped") {
			s := Scrape{At: at(id + " scrape"), FirstAt: at(id + " first"), Jobs: jobs(id + " scraped jobs")}
			if maybe(id + " system") {
				s.Systems = []string{system}
			}
			f.Scrapes[id] = s
		}
		if !maybe(id + " no sidecar") {
			f.Streams = append(f.Streams, router.Machine{
				ID: spillway.MachineID("m-" + id), InstanceID: id, Pool: "p", Connected: true, Busy: jobs(id + " sidecar jobs"),
				HeardAt: at(id + " heard"), HeartbeatAt: at(id + " heartbeat"), RegisteredAt: at(id + " registered"),
			})
		}
		if f.Mode != Observe && maybe(id+" asks") {
			m := router.Machine{ID: spillway.MachineID(system), InstanceID: id, Connected: true, HeardAt: at(id + " asked"), RegisteredAt: at(id + " first asked")}
			f.Routed = append(f.Routed, Routed{Machine: m, Open: jobs(id + " open"), LastUsedAt: at(id + " used"), ReadAt: at(id + " read")})
		}
		for _, name := range []string{id, system, "m-" + id} {
			if !maybe(name + " not ordered") {
				f.Drains[name] = router.DrainOrder{Machine: spillway.MachineID(name), On: true, At: moment.Draw(t, name+" ordered")}
			}
		}
	}
	for r := range rapid.IntRange(0, 2).Draw(t, "runners") {
		name := fmt.Sprint(r)
		x := Runner{At: at(name), Whole: maybe(name + " whole"), Deleted: !maybe(name + " exists"), Paused: !maybe(name + " active"), BySystem: map[string]int{}}
		x.Running = jobs(name + " unnamed")
		for i := range 3 {
			if n := jobs(fmt.Sprint(name, " on ", i)); n > 0 {
				x.BySystem[fmt.Sprintf("s-%d", i)] = n
				x.Running += n
			}
		}
		f.Runners[name] = x
	}
	return f
}

// check draws many facts for each of rapid's checks: what is idle needs much to be true
// at once.
func check(t *testing.T, property func(*rapid.T, *Facts)) {
	rapid.Check(t, func(t *rapid.T) {
		for range 30 {
			property(t, drawFacts(t))
		}
	})
}

func young(at time.Time) bool { return !at.IsZero() && t0.Sub(at) <= 45*time.Second }

// gitlabSays is what GitLab's lists say of a system, written down once more: known is
// false unless every one of them is whole and young.
func gitlabSays(f *Facts, system string) (on, all, unnamed int, known bool) {
	known = len(f.Runners) > 0
	for _, r := range f.Runners {
		if r.Deleted {
			known = known && young(r.At)
			continue
		}
		known = known && r.Whole && young(r.At)
		on += r.BySystem[system]
		all += r.Running
		named := 0
		for _, n := range r.BySystem {
			named += n
		}
		unnamed += r.Running - named
	}
	return on, all, unnamed, known
}

// deleted reports whether a system's runner is known to be deleted.
func deleted(f *Facts, system string) bool {
	for _, r := range f.Runners {
		_, has := r.BySystem[system]
		if r.Deleted && young(r.At) && (len(f.Runners) == 1 || has) {
			return true
		}
	}
	return false
}

// gitlabAgrees is the table's "GitLab says none", for a machine of a system; empty = its
// system isn't known.
func gitlabAgrees(f *Facts, system string) bool {
	if deleted(f, system) {
		return true
	}
	on, all, unnamed, known := gitlabSays(f, system)
	if !known || (system != "" && unnamed == 0) {
		return known && on == 0
	}
	heard := 0
	local := map[string]bool{}
	for _, m := range f.Streams {
		if young(m.HeartbeatAt) {
			heard, local[m.InstanceID] = heard+m.Busy, true
		} else {
			local[m.InstanceID] = false
		}
	}
	for id, s := range f.Scrapes {
		if _, sidecar := local[id]; !sidecar && young(s.At) {
			heard, local[id] = heard+s.Jobs, true
		}
	}
	for _, r := range f.Routed {
		if !local[r.Machine.InstanceID] {
			heard += r.Open
		}
	}
	for _, in := range f.Instances {
		if in.Running && !local[in.ID] {
			return false
		}
	}
	return !f.ListedAt.IsZero() && all <= heard
}

// TestIdleIsNeverSaidWithoutEveryProof is the table of the design, read from its end: who
// is presented idle has every proof that the pool's mode asks for, and all are young.
func TestIdleIsNeverSaidWithoutEveryProof(t *testing.T) {
	check(t, func(t *rapid.T, f *Facts) {
		for _, m := range Judge(f, t0).Machines {
			require.False(t, m.HeartbeatAt.After(t0) && m.ID[0] != 'm', "no proof is from the future")
			if !idle(&m) {
				continue
			}
			scrape := f.Scrapes[m.InstanceID]
			system := ""
			if len(scrape.Systems) > 0 {
				system = scrape.Systems[0]
			}
			switch f.Mode {
			case Orchestrate:
			case Observe:
				if m.ID[0] == 'm' {
					continue // its own heartbeat: idle has looked at it
				}
				require.True(t, young(scrape.At) && scrape.Jobs == 0, "metrics")
				require.True(t, gitlabAgrees(f, system), "GitLab")
			case RouteFront:
				r := routedOf(t, f, &m)
				require.True(t, young(r.ReadAt) && r.Open == 0, "the book")
				require.False(t, f.BookSince.IsZero(), "since when")
			case RouteOne:
				r := routedOf(t, f, &m)
				require.True(t, sidecarIdle(f, m.InstanceID) || (young(scrape.At) && scrape.Jobs == 0), "its own side")
				require.True(t, gitlabAgrees(f, string(m.ID)), "GitLab")
				require.True(t, r.Open == 0 || t0.Sub(r.LastUsedAt) > f.Fresh, "what was handed to it has had time to show")
			}
		}
	})
}

func routedOf(t *rapid.T, f *Facts, m *router.Machine) Routed {
	for _, r := range f.Routed {
		if r.Machine.ID == m.ID {
			return r
		}
	}
	require.Fail(t, "a machine that doesn't ask is idle", "%+v", m)
	return Routed{}
}

func sidecarIdle(f *Facts, instance string) bool {
	for _, m := range f.Streams {
		if m.InstanceID == instance {
			return m.Busy == 0 && young(m.HeartbeatAt)
		}
	}
	return false
}

// TestADrainIsNeverAcknowledgedByWhoCannot: only a router, a verified hook or a sidecar
// makes a runner take no more jobs.
func TestADrainIsNeverAcknowledgedByWhoCannot(t *testing.T) {
	check(t, func(t *rapid.T, f *Facts) {
		for _, m := range Judge(f, t0).Machines {
			if m.DrainAckedAt.IsZero() {
				continue
			}
			o := f.Drains[string(m.ID)]
			require.True(t, o.On && m.Draining && m.DrainAckedAt.Equal(o.At))
			byHook := f.Mode == Observe && f.Drain == DrainHook && f.HookVerified
			require.True(t, byHook || f.Mode != Observe)
		}
	})
}

// TestEachMachineIsThereOnce, whatever the facts are.
func TestEachMachineIsThereOnce(t *testing.T) {
	check(t, func(t *rapid.T, f *Facts) {
		v := Judge(f, t0)
		seen := map[spillway.MachineID]bool{}
		on := map[string]int{}
		for i, m := range v.Machines {
			require.False(t, seen[m.ID])
			seen[m.ID] = true
			on[m.InstanceID]++
			require.LessOrEqual(t, on[m.InstanceID], 1)
			require.True(t, i == 0 || v.Machines[i-1].ID < m.ID, "sorted")
			require.Equal(t, "p", m.Pool)
		}
		require.Equal(t, v, Judge(f, t0), "equal facts, equal verdicts")
	})
}
