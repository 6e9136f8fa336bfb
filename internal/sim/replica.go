package sim

import (
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/roster"
	"github.com/spillway-ci/spillway/scaler/watch"
)

// The intervals of a control plane's own upkeep, as serve has them.
const (
	renewClaimsEvery = 20 * time.Second
	reapEvery        = 10 * time.Second
	overdueEvery     = 10 * time.Second
	// ackTimeout and removeRetry are those of serve's pools.
	ackTimeout  = time.Minute
	removeRetry = time.Minute
)

// replica is one control plane.
type replica struct {
	world  *world
	n      int
	name   string
	life   int  // grows with each start, so that what an earlier life planned is void
	dead   bool // killed
	paused bool

	session
	events *scaler.Events
	fleet  *scaler.Fleet
	leases *scaler.Leases
	pools  []*scaler.Pool
	last   *scaler.Picture
	poked  bool
	hung   map[string]time.Time // pool → when the call that hangs comes back
	lists  *watch.Lists
	// reviewer is nil if nobody has to be asked about jobs.
	reviewer *reviewer
	outCells []*outCell      // one for each peer
	inCells  *inCells        // nil: this is no cell
	watch    *watch.Machines // nil: streams tell all
}

func newReplica(w *world, n int) *replica {
	return &replica{world: w, n: n, name: fmt.Sprintf("replica-%d", n)}
}

// working reports whether it can be talked to.
func (r *replica) working() bool { return !r.dead && !r.paused }

// start begins a life that knows nothing.
func (r *replica) start() {
	w := r.world
	r.life++
	r.dead, r.paused, r.poked, r.last = false, false, false, nil
	r.hung = make(map[string]time.Time)
	r.init(r)
	r.events = w.rec.events()
	r.lists = watch.NewLists(func() time.Time { return w.now }, nil)
	r.fleet = scaler.NewFleet(collected{w}, r.machines(), w.story.Tick, w.config.Timeouts.Silent, r.events)
	r.pools, r.reviewer = nil, nil
	if w.gitlab == nil {
		r.reviewer = newReviewer(r)
	}
	r.startCells()
	r.setPools(w.config)
	r.every(scaler.LeaseRenew, func() { r.leases.Renew(w.ctx, w.now) })
	r.every(renewClaimsEvery, r.renewClaims)
	r.every(reapEvery, r.reap)
	r.every(overdueEvery, r.failOverdue)
	r.every(w.story.Tick, r.tick)
}

// every does something now and then every d, while this life lasts.
func (r *replica) every(d time.Duration, do func()) {
	life := r.life
	var again func()
	again = func() {
		if r.life != life || r.dead {
			return
		}
		if !r.paused {
			do()
		}
		r.world.after(d, again)
	}
	r.world.after(0, again)
}

// kill ends the life. Streams break; whoever had one looks for another replica.
func (r *replica) kill() {
	r.dead = true
	r.life++
	r.dropStreams()
	if r.reviewer != nil {
		r.reviewer.dropStreams()
	}
	r.dropLinks()
}

// setPools takes a configuration over: what is new begins, what is gone is left
// alone, the rest goes on under its new rules.
func (r *replica) setPools(c *config.Config) {
	w := r.world
	old := make(map[string]*scaler.Pool, len(r.pools))
	for _, p := range r.pools {
		old[p.Name()] = p
	}
	r.pools = nil
	if r.watch != nil {
		r.watch.SetPools(w.watched())
	}
	var names []string
	for _, p := range w.pools() {
		rules, _ := c.RulesOf(p.Name)
		cfg := scaler.PoolConfig{
			Pool: p, Policy: rules, Rules: w.rosterRules(p.Name), Refresh: w.story.Tick,
			Now: func() time.Time { return w.now },
		}
		pool := old[p.Name]
		if pool != nil {
			pool.Reconfigure(cfg)
		} else {
			pool = scaler.NewPool(cfg, r.lists.Of(p.Name, &group{replica: r, site: w.site(p.Name)}), machines{w.store, w}, w.store, tenure{r}, r.events)
		}
		r.pools = append(r.pools, pool)
		names = append(names, p.Name)
	}
	r.leases = scaler.NewLeases(w.store, r.name, names, r.events)
	r.leases.Renew(w.ctx, w.now)
	r.poolsChanged()
	r.engine.SetPeers(len(w.replicas) > 1)
	if v := r.reviewer; v != nil && !v.configuredAt.Equal(w.reloadedAt) {
		v.setPolicy(w.policy)
	}
}

// poolsChanged gives the router the pools of the configuration and those of other cells.
func (r *replica) poolsChanged() {
	r.engine.SetPools(append(r.world.pools(), r.cellPools()...))
	r.world.store.Ages = r.engine.Ages()
}

// dropLinks is the end of the process, seen by other cells.
func (r *replica) dropLinks() {
	for _, o := range r.outCells {
		o.unlink()
	}
	if r.inCells == nil {
		return
	}
	for _, name := range sortedKeys(r.inCells.origins) {
		if l := r.inCells.origins[name].link; l != nil {
			l.end()
		}
	}
}

// machines are the store's, or what is known of them from everywhere.
func (r *replica) machines() scaler.Machines {
	w := r.world
	if w.gitlab == nil {
		return w.store
	}
	r.watch = watch.New(watch.Options{
		Registry: machines{w.store, w}, Boards: w.store, Tenure: tenure{r}, Lists: r.lists, GitLab: w.gitlab, Metrics: w,
		HookVerified: func(pool string) bool { return w.story.Clouds[pool].TerminationHook > 0 },
		Fresh:        w.config.Timeouts.Silent, Now: func() time.Time { return w.now },
	}, w.watched())
	return r.watch
}

// rosterRules are those of a pool under the present configuration.
func (w *world) rosterRules(pool string) roster.Rules {
	p, l := w.config.RulesOf(pool)
	return roster.Rules{
		Capacity: p.CapacityPerInstance, Max: p.Max, MaxUses: l.MaxUses, IdleTime: l.IdleTime,
		RegisterTimeout: l.RegisterTimeout, SilentAfter: l.SilentAfter, SilentTimeout: l.SilentTimeout, MaxAge: l.MaxAge, DrainTimeout: l.DrainTimeout,
		SecondLook: l.SecondLook, AckTimeout: ackTimeout, RemoveRetry: removeRetry,
	}
}

// tenure is the leases of a replica, which are other ones after a reload.
type tenure struct{ replica *replica }

func (t tenure) Hold(pool string, now time.Time) (epoch uint64, until time.Time, ok bool) {
	return t.replica.leases.Hold(pool, now)
}

// tick is the look at the fleet and every pool's turn.
func (r *replica) tick() {
	r.countQueue()
	r.carryOutDrains()
	r.look(func(string) bool { return true })
	r.world.rules.ticked(r)
}

// poke asks for a look soon: the pools that it concerns get their turn between
// ticks.
func (r *replica) poke() {
	if r.poked {
		return
	}
	r.poked = true
	life := r.life
	r.world.after(r.world.config.Debounce, func() {
		if r.life != life {
			return
		}
		r.poked = false
		if r.paused {
			return
		}
		before := r.last
		r.look(func(pool string) bool { return r.last.Concerns(before, pool) })
	})
}

// look observes the fleet and gives the pools that want it their turn.
func (r *replica) look(wants func(pool string) bool) {
	w := r.world
	r.last = r.fleet.Observe(w.ctx, w.now, r.pools)
	w.rec.looked(r.last)
	r.engine.SetRoom(r.last.Rooms())
	for _, p := range r.pools {
		if w.now.Before(r.hung[p.Name()]) || !wants(p.Name()) {
			continue
		}
		w.rules.turn(p.Name())
		if r.tickPool(p).Again {
			r.tickPool(p)
		}
	}
}

func (r *replica) tickPool(p *scaler.Pool) scaler.Result {
	w, life := r.world, r.life
	res := p.Tick(w.ctx, w.now, r.last)
	if res.Offers || res.Respill {
		r.poke()
	}
	if !res.Wake.IsZero() {
		w.agenda.plan(res.Wake, func() {
			if r.life == life && !r.paused && r.last != nil {
				r.look(func(pool string) bool { return pool == p.Name() })
			}
		})
	}
	return res
}
