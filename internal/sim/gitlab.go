package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	// askEvery is how often a runner with a free place asks GitLab for a job, by its own
	// default; a job is found at any time within.
	askEvery = 3 * time.Second
	// gitlabLoses is when GitLab fails a job whose machine it hears nothing of: the
	// default timeout of a job.
	gitlabLoses = time.Hour
	// bookFor is how long a job may be open in the book; longer than any of a story.
	bookFor = 24 * time.Hour
)

// gitlab is the GitLab of a story in which it hands the jobs out. It has its own queue,
// and gives the oldest job that a runner can take to whoever asks first: in mode observe
// that is anybody; in mode route it is whom we let ask, the highest priority first.
type gitlab struct {
	world *world
	jobs  *memstore.Store
	rng   *rand.Rand
	board board
	// What somebody did to runners in GitLab, by machine. Each instance has a runner of
	// its own there.
	deleted, paused map[spillway.MachineID]bool
	// named are those whose runner the board has named: whose a deleted one was is known
	// from before.
	named map[spillway.MachineID]bool
}

func newGitLab(w *world) *gitlab {
	g := &gitlab{
		world: w, rng: rand.New(rand.NewPCG(w.story.Seed, 4)),
		jobs: memstore.New(func() time.Time { return w.now }), deleted: make(map[spillway.MachineID]bool), paused: make(map[spillway.MachineID]bool),
		named: make(map[spillway.MachineID]bool),
	}
	g.jobs.Changed = w.rec.jobChanged
	return g
}

// queue is where the jobs wait: GitLab's, or the one that replicas share.
func (w *world) queue() *memstore.Store {
	if w.gitlab != nil {
		return w.gitlab.jobs
	}
	return w.store
}

// pools are those of the configuration. A story has one place where jobs come from.
func (w *world) pools() []spillway.Pool {
	pools := w.config.SpillwayPools()
	if w.gitlab != nil {
		for i := range pools {
			pools[i].Capability.Origin = ""
		}
	}
	return pools
}

// may reports whether GitLab would give a runner a job now.
func (g *gitlab) may(r *runner) bool {
	stopped := r.dead || r.quit || (r.draining && g.world.sight(r.pool).sidecar)
	return !stopped && !g.deleted[r.id] && !g.paused[r.id] && len(r.jobs) < r.capacity
}

// offer lets the runners that could take something ask for it, in their time.
func (g *gitlab) offer() {
	waiting := g.jobs.Pending()
	if len(waiting) == 0 {
		return
	}
	asked := 0
	for _, r := range g.askers() {
		if asked >= len(waiting) && g.world.story.Mode == scenario.Route {
			return
		}
		if r.asking || !g.may(r) || g.first(r, waiting) < 0 {
			continue
		}
		asked++
		r.asking = true
		wait := time.Duration(0)
		if g.world.story.Mode == scenario.Observe {
			wait = time.Duration(g.rng.Int64N(int64(askEvery)))
		}
		g.world.after(wait, func() { g.ask(r) })
	}
}

// askers are the runners in the order in which they would be let ask: of a pool the one
// used last first, so that the others can idle out.
func (g *gitlab) askers() []*runner {
	list := make([]*runner, 0, len(g.world.runners))
	for _, r := range g.world.runners {
		list = append(list, r)
	}
	priority := make(map[string]int)
	for _, p := range g.world.config.Pools {
		priority[p.Name] = p.Priority
	}
	slices.SortFunc(list, func(a, b *runner) int {
		if d := priority[a.pool] - priority[b.pool]; d != 0 {
			return d
		}
		if c := b.usedAt.Compare(a.usedAt); c != 0 {
			return c
		}
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return list
}

// first is the oldest waiting job that a runner can take, −1 for none.
func (g *gitlab) first(r *runner, waiting []spillway.JobRecord) int {
	pools := g.world.pools()
	at := slices.IndexFunc(pools, func(p spillway.Pool) bool { return p.Name == r.pool })
	if at < 0 {
		return -1
	}
	c := pools[at].Capability.Normalize()
	return slices.IndexFunc(waiting, func(j spillway.JobRecord) bool { return router.Match(&c, &j.Job.Requirement).OK() })
}

// ask is a runner's question for a job.
func (g *gitlab) ask(r *runner) {
	r.asking = false
	waiting := g.jobs.Pending()
	at := g.first(r, waiting)
	if at < 0 || !g.may(r) {
		return
	}
	if !g.book(r, waiting[at].Job.ID) {
		g.world.after(askEvery, g.offer) // it asks again
		return
	}
	got, err := g.jobs.Claim(string(r.id), []router.ClaimWant{{Class: waiting[at].Job.Requirement.Class(), Pool: r.pool, N: 1}})
	if err != nil || len(got) != 1 {
		return
	}
	if got[0].Ref.ID != waiting[at].Job.ID { // a more urgent one of the same kind
		g.strike(waiting[at].Job.ID)
		g.book(r, got[0].Ref.ID)
	}
	r.run(got[0].Job, got[0].Ref)
	_ = g.jobs.Apply(store.Transition{Ref: got[0].Ref, To: spillway.Running, Pool: r.pool, Machine: r.id})
	g.changed()
	g.offer()
}

// book writes down a job that we hand on, and that its machine has it, which a runner
// says before it begins. What can't be written down is not handed on.
func (g *gitlab) book(r *runner, id spillway.JobID) bool {
	w := g.world
	if w.story.Mode != scenario.Route {
		return true
	}
	if w.anyReplica() == nil {
		return false
	}
	begun, err := w.store.BeginRouted(store.RoutedJob{
		ID: id, Pool: r.pool, Machine: r.id, Begun: w.now, Until: w.now.Add(bookFor), ConfirmWithin: route.ConfirmWithin,
	})
	if !begun || err != nil {
		return false
	}
	said, err := w.store.ConfirmRouted(id)
	return said == store.Confirmed && err == nil
}

// strike ends a job in the book, again and again until that is on record.
func (g *gitlab) strike(id spillway.JobID) {
	if _, err := g.world.store.EndRouted(id); err != nil {
		g.world.after(retryEvery, func() { g.strike(id) })
		return
	}
	for _, r := range g.world.replicas {
		if r.working() && g.world.story.Mode == scenario.Route {
			r.poke()
		}
	}
}

// finished is a runner's result.
func (g *gitlab) finished(r *runner, o outcome) {
	r.usedAt = g.world.now
	_ = g.jobs.Apply(store.Transition{Ref: o.ref, To: o.result.State, Pool: r.pool, Machine: r.id, Result: o.result})
	g.strike(o.ref.ID)
	g.changed()
	g.offer()
}

// lost is a machine that ended with a job on it. GitLab finds that out in its time.
func (g *gitlab) lost(id spillway.JobID) {
	g.world.after(gitlabLoses, func() {
		if !g.world.rec.ended(id) && g.world.running[id] == nil {
			_, _ = g.jobs.Fail(id, spillway.JobResult{State: spillway.Failed, Reason: spillway.RunnerSystemFailure})
			g.strike(id)
		}
	})
}

// cancel is somebody canceling a job in GitLab.
func (g *gitlab) cancel(id spillway.JobID) {
	was, err := g.jobs.Cancel(id)
	if err != nil {
		return // it has ended
	}
	if r := g.world.runners[was.Machine]; r != nil {
		r.stop(id)
		r.usedAt = g.world.now
	}
	g.strike(id)
	g.changed()
	g.offer()
}

// setRunner is somebody deleting, pausing or resuming a runner in GitLab.
func (g *gitlab) setRunner(a scenario.Runner) {
	id, ok := g.world.rec.pools[a.Pool].nth(a.Nth)
	if !ok {
		return
	}
	m := machineID(a.Pool, id)
	switch a.Fault {
	case scenario.RunnerDeleted:
		g.deleted[m] = true
	case scenario.RunnerPaused:
		g.paused[m] = true
	case scenario.RunnerResumed:
		delete(g.paused, m)
		g.offer()
	}
}

// stopped is the script of a terminating hook: the runner finishes what it has.
func (r *runner) stopped() { r.quit = true }

// phase is where in an interval something first happens.
func (g *gitlab) phase(every time.Duration) time.Duration {
	return time.Duration(g.rng.Int64N(int64(every)))
}
