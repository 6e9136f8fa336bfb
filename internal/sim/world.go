package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/store"
)

const (
	// retryEvery is how often whoever failed tries again: who pushes a job while the
	// store is away, who writes what became of one, a machine without a replica.
	retryEvery = time.Second
	// recheckAfter is when whoever pushed a job asks for it after the store was
	// wiped, and pushes it again if nobody knows it. Two heartbeats have told by
	// then which jobs run.
	recheckAfter = 31 * time.Second
	// contextEvery is how often the caller's context is looked at [steps].
	contextEvery = 1024
)

// world is everything there is in a story. One goroutine owns it.
type world struct {
	ctx     context.Context // the caller's
	story   *scenario.Scenario
	now     time.Time
	end     time.Time
	agenda  *agenda
	config  *config.Config
	cloudOf NewCloud
	clouds  []*site // by pool, in the order of the configuration
	store   *memstore.Store
	gitlab  *gitlab                               // nil: we hand the jobs out
	scrapes map[string]map[string]evidence.Scrape // by pool and instance
	jobs    map[spillway.JobID]*scenario.Job
	runners map[spillway.MachineID]*runner
	running map[spillway.JobID]*runner // who runs what

	replicas []*replica
	faults   faults

	whole *world                   // of several cells, the one whose story it is
	all   []*world                 // of whole: every cell, this one first
	away  map[spillway.JobID]away  // jobs here that are another cell's
	stays map[spillway.JobID]*stay // of our jobs, the attempts that began last, wherever
	ways  linkFaults

	policy      admission.Policy // of the configuration in force
	reloadedAt  time.Time        // zero: it is the first
	controllers []*controller
	upcoming    int // submissions and events of the story that are still to come

	rec   *recorder
	rules *rules
	err   error // why the story can't go on; nil = it can
}

// site is the cloud behind one pool.
type site struct {
	pool  string
	cloud Cloud
}

func newWorld(ctx context.Context, s *scenario.Scenario, o Options) (*world, error) {
	w, err := newWorldIn(ctx, s, o, nil)
	if err != nil {
		return nil, err
	}
	return w, w.addCells(ctx, o)
}

// newWorldIn makes the world of a cell among those of whole; nil: it is the whole itself.
func newWorldIn(ctx context.Context, s *scenario.Scenario, o Options, whole *world) (*world, error) {
	w := &world{
		whole: whole, agenda: new(agenda), away: make(map[spillway.JobID]away), stays: make(map[spillway.JobID]*stay),
		ctx: ctx, story: s, now: epoch, end: epoch.Add(s.Duration), config: s.Config, cloudOf: o.Cloud,
		jobs:    make(map[spillway.JobID]*scenario.Job, len(s.Jobs)),
		runners: make(map[spillway.MachineID]*runner),
		running: make(map[spillway.JobID]*runner),
	}
	if whole == nil {
		w.whole = w
	} else {
		w.agenda = whole.agenda
	}
	w.store = memstore.New(func() time.Time { return w.now })
	w.policy = s.Config.AdmissionPolicy()
	w.rec = newRecorder(w)
	w.rules = newRules(w)
	w.faults.init()
	w.scrapes = make(map[string]map[string]evidence.Scrape)
	if s.Mode == scenario.Orchestrate {
		w.store.Changed = w.rec.jobChanged
	} else {
		w.gitlab = newGitLab(w)
	}
	w.store.Ordered = func() { w.after(0, w.drainsOrdered) }
	if w.cloudOf == nil {
		w.cloudOf = FakeCloud
	}
	if err := w.addSites(); err != nil {
		return nil, err
	}
	for range s.Replicas {
		w.replicas = append(w.replicas, newReplica(w, len(w.replicas)))
	}
	return w, nil
}

// addSites gives each pool of the configuration its cloud, if it has none yet.
func (w *world) addSites() error {
	for i := range w.config.Pools {
		name := w.config.Pools[i].Name
		if w.site(name) != nil {
			continue
		}
		if err := w.addSite(name); err != nil {
			return fmt.Errorf("the cloud of pool %s: %w", name, err)
		}
	}
	return nil
}

func (w *world) addSite(name string) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	s := &site{pool: name}
	cloud, err := w.cloudOf(Setup{
		Pool: name, Config: w.story.Clouds[name], Seed: w.story.Seed ^ h.Sum64(), Now: func() time.Time { return w.now },
		Busy:    func(id string) bool { return w.busy(name, id) },
		Observe: func(ch Change) { w.cloudChanged(s, ch) },
	})
	if err != nil {
		return err
	}
	s.cloud = cloud
	w.clouds = append(w.clouds, s)
	w.rec.addPool(s)
	for _, in := range cloud.Existing() {
		w.rec.instanceLaunched(name, in.ID, w.now)
		if in.Registers {
			w.after(0, func() { w.boot(name, in.ID) })
		}
	}
	return nil
}

func (w *world) site(pool string) *site {
	for _, s := range w.clouds {
		if s.pool == pool {
			return s
		}
	}
	return nil
}

// after plans something.
func (w *world) after(d time.Duration, do func()) { w.agenda.plan(w.now.Add(d), do) }

// begin plans the story and starts the replicas.
func (w *world) begin() {
	for i := range w.story.Jobs {
		job := &w.story.Jobs[i]
		w.jobs[job.Job.ID] = job
		w.upcoming++
		w.agenda.plan(epoch.Add(job.At), func() {
			w.upcoming--
			w.submit(job)
		})
	}
	for i := range w.story.Events {
		ev := &w.story.Events[i]
		w.upcoming++
		w.agenda.plan(epoch.Add(ev.At), func() {
			w.upcoming--
			w.happen(ev)
		})
	}
	for _, r := range w.replicas {
		r.start()
	}
	w.addControllers()
	if w.gitlab != nil {
		w.after(0, w.gitlab.list)
	}
}

// play lets one moment follow the other.
func (w *world) play() error {
	for step := 0; ; step++ {
		if step%contextEvery == 0 {
			if err := w.ctx.Err(); err != nil {
				return err
			}
		}
		at, ok := w.nextMoment()
		over := !ok || at.After(w.end)
		if over {
			at = w.end
		}
		for _, c := range w.all {
			if c.err != nil {
				return c.err
			}
			c.now = at
		}
		if over {
			break
		}
		w.moment()
		if !slices.ContainsFunc(w.all, func(c *world) bool { return !c.nothingMore() }) {
			break
		}
	}
	for _, c := range w.all {
		c.rules.atEnd()
	}
	return nil
}

// nextMoment is when something happens next: on the agenda or in a cloud.
func (w *world) nextMoment() (at time.Time, ok bool) {
	at, ok = w.agenda.next()
	for _, c := range w.all {
		for _, s := range c.clouds {
			if t, some := s.cloud.NextChange(w.now); some && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// moment is all that happens at one time.
func (w *world) moment() {
	for _, c := range w.all {
		for _, s := range c.clouds {
			s.cloud.Advance(w.now)
		}
	}
	for {
		e, ok := w.agenda.take(w.now)
		if !ok {
			break
		}
		e.do()
	}
	for _, c := range w.all {
		c.rec.sample()
		c.rules.step()
	}
}

// nothingMore reports whether the rest of the story is only waiting: no job is
// open, nothing is planned, and no pool has or wants an instance.
func (w *world) nothingMore() bool {
	if w.upcoming > 0 || w.rec.open > 0 || w.faults.active(w.now) {
		return false
	}
	for _, s := range w.clouds {
		pool, ok := w.config.Pool(s.pool)
		wanted := ok && (pool.Policy.Min > 0 || pool.Policy.IdleCount > 0)
		if wanted || s.cloud.Live() > 0 || s.cloud.Desired() > 0 {
			return false
		}
	}
	return true
}

// submit is somebody pushing a job, again and again until it is taken.
func (w *world) submit(job *scenario.Job) {
	w.rec.jobSubmitted(job)
	w.push(job)
}

func (w *world) push(job *scenario.Job) {
	if w.rec.ended(job.Job.ID) {
		return
	}
	pushed := job.Job
	pushed.SubmittedAt = w.now
	if w.gitlab == nil && w.anyReplica() == nil {
		w.after(retryEvery, func() { w.push(job) })
		return
	}
	outcome, err := w.queue().Push(pushed)
	switch {
	case err != nil:
		w.after(retryEvery, func() { w.push(job) })
	case outcome == store.Accepted:
		w.queueChanged()
	}
}

// recheck is everybody asking for the jobs that they have pushed, once the store
// has answered for long enough.
func (w *world) recheck() {
	if w.now.Before(w.faults.wiped.Add(recheckAfter)) {
		return // it was wiped again: whoever asks now would push what runs, and asks later
	}
	if w.now.Before(w.faults.store.Add(recheckAfter)) {
		w.faults.lasts(w.now.Add(recheckAfter))
		w.after(recheckAfter, w.recheck)
		return
	}
	for i := range w.story.Jobs {
		job := &w.story.Jobs[i]
		if w.rec.known(job.Job.ID) && !w.rec.ended(job.Job.ID) {
			w.push(job)
		}
	}
}

// queueChanged tells the replicas that there is something new in the queue.
func (w *world) queueChanged() {
	if w.gitlab != nil {
		w.gitlab.changed()
		w.gitlab.offer()
		return
	}
	for _, r := range w.replicas {
		if r.working() {
			r.countQueue()
			r.poke()
		}
	}
}

// counts is what the queue holds, with what waits for admission apart.
func (w *world) counts() ([]router.ClassCount, error) {
	counts, err := w.store.Counts()
	if w.gitlab == nil {
		for i := range counts {
			counts[i] = w.policy.Sort(counts[i])
		}
	}
	return counts, err
}

// drainsOrdered tells the replicas that there are new orders to machines.
func (w *world) drainsOrdered() {
	for _, r := range w.replicas {
		if r.working() {
			r.carryOutDrains()
		}
	}
}

// anyReplica is one that works, nil if none does.
func (w *world) anyReplica() *replica {
	for _, r := range w.replicas {
		if r.working() {
			return r
		}
	}
	return nil
}
