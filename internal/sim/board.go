package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/scaler/watch"
)

// hookDelay is what a webhook takes.
const hookDelay = 200 * time.Millisecond

// board is what the replica that asks GitLab has last shown to all.
type board struct {
	at      time.Time // zero: nothing is shown
	view    demand.View
	runners map[int64]collect.RunnerState
	told    bool // a webhook is under way
}

// sight is how the instances of a pool are seen.
type sight struct {
	mode    evidence.Mode
	drain   evidence.Drain
	sidecar bool
	scraped bool
	asked   bool // GitLab is, about its runners
	every   time.Duration
}

// sight of a pool is as its configuration says. A pool that a story observes and that
// says nothing of how has a sidecar on each instance.
func (w *world) sight(pool string) sight {
	p, _ := w.config.Pool(pool)
	s := sight{mode: evidence.Observe, drain: evidence.DrainSidecar, asked: true, every: config.DefaultMetricsEvery}
	if g := w.config.GitLab; g != nil && p.GitLab != nil {
		s.asked = g.Jobs.Scope != "none" && p.GitLab.RunnerID > 0
	}
	if o := p.Observe; o != nil {
		s.drain = evidence.Drain(o.Drain)
		if o.Metrics != nil {
			s.scraped, s.every = true, o.Metrics.Every
		}
	}
	if w.story.Mode == scenario.Route {
		s.mode = evidence.RouteFront
		if g := w.config.GitLab; g != nil && g.Route != nil && !g.Route.Front {
			s.mode = evidence.RouteOne
		}
		if p.Observe == nil {
			s.drain = evidence.DrainRouter
		}
	}
	s.sidecar = s.drain == evidence.DrainSidecar
	return s
}

// watched are the pools as their machines are watched. Each instance has a runner in
// GitLab, with the number of its launch.
func (w *world) watched() []watch.Pool {
	pools := make([]watch.Pool, 0, len(w.config.Pools))
	for i := range w.config.Pools {
		p := &w.config.Pools[i]
		s := w.sight(p.Name)
		wp := watch.Pool{Name: p.Name, Mode: s.mode, Capacity: max(1, p.CapacityPerInstance), Drain: s.drain, Scraped: s.scraped, Hooked: w.hooked()}
		if s.asked {
			wp.Runners = w.runnersOf(p.Name)
		}
		pools = append(pools, wp)
	}
	return pools
}

// runnersOf are GitLab's ids of the runners of the instances that exist; one that has
// none yet is asked about, too: a pool at zero is still one that GitLab knows.
func (w *world) runnersOf(pool string) []int64 {
	story, base := w.rec.pools[pool], w.runnerBase(pool)
	ids := []int64{base}
	for n, id := range story.ever {
		if _, exists := story.born[id]; exists {
			ids = append(ids, base+int64(n)+1)
		}
	}
	return ids
}

// runnerBase is the number before the ids of a pool's runners: that of its template,
// which nobody runs.
func (w *world) runnerBase(pool string) int64 {
	at := slices.IndexFunc(w.clouds, func(s *site) bool { return s.pool == pool })
	return int64(at+1) * 1_000_000
}

// hooked reports whether GitLab tells of each change by a webhook.
func (w *world) hooked() bool { return w.config.GitLab != nil && w.config.GitLab.Webhook != nil }

// every is how often GitLab's API is asked.
func (g *gitlab) every() time.Duration {
	if c := g.world.config.GitLab; c != nil && c.Jobs.Every > 0 {
		return c.Jobs.Every
	}
	return config.DefaultJobsEvery
}

// list asks the API now and then.
func (g *gitlab) list() {
	g.refresh()
	g.world.after(g.every(), g.list)
}

// changed is GitLab's webhook, if there is one.
func (g *gitlab) changed() {
	if !g.world.hooked() || g.board.told {
		return
	}
	g.board.told = true
	g.world.after(hookDelay, func() {
		g.board.told = false
		g.refresh()
	})
}

// refresh shows GitLab's jobs and runners as they are, with what is wrong with that.
func (g *gitlab) refresh() {
	w := g.world
	if w.anyReplica() == nil || w.store.Fault != 0 {
		return
	}
	counts, err := g.jobs.Counts()
	if err != nil {
		return
	}
	b := board{at: w.now, view: collect.View(counts, w.now), runners: g.states(), told: g.board.told}
	switch w.faults.signal.at(w.now) {
	case scenario.SignalError, scenario.SignalTimeout, scenario.SignalStale:
		return // what was shown stays, and gets old
	case scenario.SignalEmpty:
		b.view.Classes = nil
		for id, s := range b.runners {
			s.Running, s.BySystem = 0, nil
			b.runners[id] = s
		}
	case scenario.SignalPartial:
		b.view = halved(b.view)
		for id, s := range b.runners {
			s.Whole = false
			b.runners[id] = s
		}
	}
	g.board = b
	for _, s := range b.runners {
		for _, system := range s.Systems {
			g.named[spillway.MachineID(system)] = true
		}
	}
	for _, r := range w.replicas {
		if r.working() {
			r.watch.SetPools(w.watched())
			r.poke()
		}
	}
}

func halved(view demand.View) demand.View {
	view.Partial = true
	for i := range view.Classes {
		view.Classes[i].Pending = (view.Classes[i].Pending + 1) / 2
	}
	return view
}

// states are GitLab's words on the runners of all instances.
func (g *gitlab) states() map[int64]collect.RunnerState {
	out := make(map[int64]collect.RunnerState)
	for _, s := range g.world.clouds {
		base := g.world.runnerBase(s.pool)
		out[base] = collect.RunnerState{At: g.world.now, Whole: true, Systems: []string{}}
		for n, id := range g.world.rec.pools[s.pool].ever {
			m := machineID(s.pool, id)
			state := collect.RunnerState{At: g.world.now, Whole: true, Deleted: g.deleted[m], Paused: g.paused[m], Systems: []string{}}
			if r := g.world.runners[m]; r != nil && !g.deleted[m] {
				state.Systems = []string{string(m)}
				if len(r.jobs) > 0 {
					state.Running, state.BySystem = len(r.jobs), map[string]int{string(m): len(r.jobs)}
				}
			}
			out[base+int64(n)+1] = state
		}
	}
	return out
}

// strikesOffAfter is how long after its first contact a machine that no list names is taken
// for one whose runner is gone: what asks for jobs through us has a name that lists have.
const strikesOffAfter = 10 * time.Minute

// gone reports whether a machine's runner was deleted, and that can be known. GitLab must be
// asked, and of a deleted runner it doesn't say whose it was: that it was this machine's an
// earlier list must have shown, or that for long none has named it.
func (g *gitlab) gone(r *runner) bool {
	w, s := g.world, g.world.sight(r.pool)
	struckOff := s.mode != evidence.Observe && w.now.Sub(r.bornAt) > strikesOffAfter
	return g.deleted[r.id] && s.asked && (g.named[r.id] || struckOff)
}

var errNoBoard = errors.New("nobody has listed GitLab's jobs yet")

// demand is the board as a source of demand.
func (g *gitlab) demand() (demand.View, error) {
	if _, _, err := g.world.store.Board(g.world.ctx, ""); err != nil {
		return demand.View{}, err
	}
	if g.board.at.IsZero() {
		return demand.View{}, errNoBoard
	}
	switch g.world.faults.signal.at(g.world.now) {
	case scenario.SignalError:
		return demand.View{}, fmt.Errorf("the source of the jobs answers with an error")
	case scenario.SignalTimeout:
		return demand.View{}, fmt.Errorf("the source of the jobs: %w", context.DeadlineExceeded)
	case scenario.SignalEmpty, scenario.SignalStale, scenario.SignalPartial: // as refresh has shown it
	}
	view := g.board.view
	view.Classes = slices.Clone(view.Classes)
	if g.world.story.Mode == scenario.Route {
		view.Classes = g.stillWaiting(view.Classes)
	}
	return view, nil
}

// stillWaiting leaves out what we have handed on since it was listed.
func (g *gitlab) stillWaiting(listed []demand.Class) []demand.Class {
	waiting := make(map[spillway.JobClass]int)
	for _, rec := range g.jobs.Pending() {
		if !rec.Job.SubmittedAt.After(g.board.at) {
			waiting[rec.Job.Requirement.Class()]++
		}
	}
	for i := range listed {
		listed[i].Pending = min(listed[i].Pending, waiting[listed[i].ID])
	}
	return slices.DeleteFunc(listed, func(c demand.Class) bool { return c.Pending == 0 })
}

// Runners implements watch.GitLab.
func (g *gitlab) Runners(context.Context) (map[int64]collect.RunnerState, error) {
	if _, _, err := g.world.store.Board(g.world.ctx, ""); err != nil {
		return nil, err
	}
	return g.board.runners, nil
}

// waitingLong is GitLab's pending jobs that everybody must have seen by now.
func (g *gitlab) waitingLong() []demand.Class {
	w := g.world
	counts := make(map[spillway.JobClass]*demand.Class)
	var order []spillway.JobClass
	for _, rec := range g.jobs.Pending() {
		if w.now.Sub(rec.Job.SubmittedAt) < g.every()+config.DefaultMetricsEvery+askEvery {
			continue
		}
		id := rec.Job.Requirement.Class()
		if counts[id] == nil {
			counts[id] = &demand.Class{ID: id, Requirement: rec.Job.Requirement.Normalize(), Oldest: rec.Job.SubmittedAt}
			order = append(order, id)
		}
		counts[id].Pending++
	}
	out := make([]demand.Class, 0, len(order))
	for _, id := range order {
		out = append(out, *counts[id])
	}
	return out
}
