package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/policy"
)

const (
	// maxViolations is how many violations are kept with their story [entries]; all
	// are counted.
	maxViolations = 100
	// settleTime is how long after a fault nobody is blamed for a launch that is late:
	// the reasons for holding end one after the other.
	settleTime = 2 * time.Minute
	// convergeTime is how long after the last fault everything must be well again.
	convergeTime = 15 * time.Minute
	// launchWithinTicks is how soon a launch that is due must be asked for.
	launchWithinTicks = 2
	// stateGrace is on top of a job's time limit in a state: what finds it out looks
	// now and then.
	stateGrace = 2 * time.Minute
)

// Violation is an invariant that did not hold: a bug, always.
type Violation struct {
	T         Seconds `json:"t"`
	Invariant string  `json:"invariant"`
	What      string  `json:"what"`
}

// rules checks the design's invariants on the simulated world.
type rules struct {
	world      *world
	counts     map[string]int
	violations []Violation
	watched    map[string]*poolWatch
	checkedAt  time.Time // when the jobs' time limits were last looked at
	approvals  approvals
}

func newRules(w *world) *rules {
	return &rules{world: w, counts: make(map[string]int), watched: make(map[string]*poolWatch), approvals: newApprovals()}
}

func (c *rules) pool(name string) *poolWatch {
	p := c.watched[name]
	if p == nil {
		p = &poolWatch{unasked: make(map[string]bool), taken: make(map[string]time.Time)}
		c.watched[name] = p
	}
	return p
}

func (c *rules) broken(invariant, format string, args ...any) {
	if w := c.world; w.whole != w {
		w.whole.rules.broken(invariant, "cell "+w.cell()+": "+format, args...)
		return
	}
	c.counts[invariant]++
	if len(c.violations) < maxViolations {
		c.violations = append(c.violations, Violation{
			T: c.world.rec.seconds(c.world.now), Invariant: invariant, What: fmt.Sprintf(format, args...),
		})
	}
}

// instanceEnded checks I1: no action of ours ends an instance that is busy.
func (c *rules) instanceEnded(pool string, ch Change) {
	w := c.world
	switch ch.Cause {
	case BySomebody, Interruption:
		c.pool(pool).foreignAt, c.pool(pool).lostAt = w.now, w.now
	case ByTimeout:
		c.pool(pool).lostAt = w.now
	case ByName, ByScaleIn, ByHealth:
	}
	if !w.busy(pool, ch.ID) {
		return
	}
	switch ch.Cause {
	case ByName, ByScaleIn:
		w.rec.busyKills++
		c.broken("I1", "%s/%s was ended (%s) with jobs on it", pool, ch.ID, ch.Cause)
	default:
		w.rec.forced++
	}
}

// instanceLaunched notes what the group launches of itself, for one that it has lost at
// the same moment.
func (c *rules) instanceLaunched(pool, id string) {
	if p := c.pool(pool); p.lostAt.Equal(c.world.now) {
		p.unasked[id] = true
	}
}

// instanceHeld notes whom somebody else has begun to end.
func (c *rules) instanceHeld(pool string, ch Change) {
	if ch.Cause != ByName && ch.Cause != ByScaleIn && ch.Cause != ByHealth {
		c.pool(pool).taken[ch.ID] = ch.At
	}
}

// write checks I8: only the holder of the pool's lease writes.
func (c *rules) write(g *group) {
	w := c.world
	if holder := w.store.Holder("pool/" + g.site.pool); holder != "" && holder != g.replica.name {
		c.broken("I8", "%s wrote to %s, which %s holds", g.replica.name, g.site.pool, holder)
	}
}

// beforeSetDesired checks a call that may raise the group's number. What it
// returns is called with the answer.
func (c *rules) beforeSetDesired(g *group, target int) func(error) {
	w := c.world
	before := w.truth(g.site)
	return func(err error) {
		after := w.truth(g.site)
		launched := after.exists + after.asked - before.exists - before.asked
		if err != nil || launched <= 0 {
			return
		}
		if n := after.exists - after.hidden + after.asked; n > after.bound() {
			c.broken("I2", "%s: set_desired(%d) makes %d instances, at most %d are allowed", g.site.pool, target, n, after.bound())
		}
		c.justified(g.site, &before, launched)
		meant := g.replica.last.Attribution.Pools[g.site.pool].Launch
		c.pool(g.site.pool).spare, c.pool(g.site.pool).sparedAt = max(0, launched*before.placesOfNew()-meant), w.now
		c.pool(g.site.pool).raisedAt = w.now
	}
}

// justified checks I3: each launch has a job of its own, or a rule that asks for
// more than the jobs do. It is called after the launch; before is what was there.
func (c *rules) justified(s *site, before *truth, launched int) {
	w := c.world
	if w.gitlab != nil || w.faults.signal.at(w.now) != "" {
		return // what the scaler sees of the jobs is not what there is
	}
	p := before.pool.Policy
	share := w.attributeBefore(s, before, launched)
	capacity := before.placesOfNew()
	allowed := (share + capacity - 1) / capacity
	allowed += max(p.IdleCount, int(p.IdleFactor*float64(before.inUse))+1)
	if p.IdleCount == 0 && p.IdleFactor == 0 {
		allowed--
	}
	allowed += max(0, max(p.Min, before.groupMin)-before.useful)
	if p.Need == string(policy.Step) {
		allowed += p.Step
	}
	allowed += w.doomed(s)   // their machines will be: what replaces them is not waited for
	allowed += w.rec.orphans // their machines are gone: they need a place as soon as that is noticed
	if launched > allowed {
		c.broken("I3", "%s: %d launched for %d jobs without a place (at most %d are explained)", s.pool, launched, share, allowed)
	}
}

// attributeBefore is how many jobs only a launch of n instances in s could serve,
// given what was there before it.
func (w *world) attributeBefore(s *site, before *truth, n int) int {
	capacity := before.placesOfNew()
	attribution := w.attribute(func(o *site, t *truth) int {
		if w.faults.plugin(o.pool, w.now) != "" || !w.seen(o.pool, w.rules.pool(o.pool).foreignAt) {
			t.coming = 0 // somebody else changed it, or it can't be asked: nobody can have seen that yet
		}
		if o != s {
			t.coming = max(0, t.coming-t.unseen-w.rules.pool(o.pool).spareAt(w.now))
			return 0
		}
		t.free, t.coming = before.free, before.coming-before.unseen // nobody can have seen those yet
		return n * capacity
	})
	return attribution.Pools[s.pool].Launch
}

// beforeRemove checks I5: what is not known never scales in.
func (c *rules) beforeRemove(g *group, ids []string) {
	w := c.world
	signal := w.faults.signal.at(w.now)
	unknown := signal == scenario.SignalError || signal == scenario.SignalTimeout || signal == scenario.SignalPartial
	if w.gitlab != nil && signal == scenario.SignalPartial {
		unknown = w.gitlab.board.view.Partial // the last list may still be a whole one
	}
	for _, id := range ids {
		if r := w.runners[machineID(g.site.pool, id)]; unknown && r != nil && !r.dead {
			c.broken("I5", "%s/%s was removed while the view of the jobs was %s", g.site.pool, id, signal)
		}
	}
}

// beforeCompleteHook checks I1: an instance that is being ended keeps its jobs until
// they are done, or until the time that it was given for that is over.
func (c *rules) beforeCompleteHook(g *group, ids []string) {
	w := c.world
	for _, id := range ids {
		d, held := w.rec.pools[g.site.pool].heldFor(id, w.now)
		if !held || !w.busy(g.site.pool, id) {
			continue
		}
		if limit := w.rosterRules(g.site.pool).DrainTimeout; limit == 0 || d < limit {
			c.broken("I1", "%s/%s was let go with jobs on it, %s after it was held", g.site.pool, id, d)
		}
	}
}

// beforeReportUnhealthy checks I1: the group ends what it is told of.
func (c *rules) beforeReportUnhealthy(g *group, ids []string) {
	for _, id := range ids {
		if c.world.busy(g.site.pool, id) {
			c.broken("I1", "%s/%s was reported unhealthy with jobs on it", g.site.pool, id)
		}
	}
}

// called notes that the pool asked for something.
func (c *rules) called(call scaler.CallInfo) {
	if call.Op == "set_desired" {
		c.pool(call.Pool).starving = 0
	}
}

// trouble notes that a pool could not do its work: nobody blames it for waiting.
func (c *rules) trouble(pool string, _ pluginsdk.Kind) {
	if pool != "" {
		c.pool(pool).starving = 0
	}
}

// turn notes that a pool could act.
func (c *rules) turn(pool string) { c.pool(pool).turned = true }

// ticked checks I4 after a replica's tick: a launch that is due is asked for
// within two ticks, unless the decision says what blocks it.
func (c *rules) ticked(r *replica) {
	w := c.world
	if !w.faults.settled(w.now, settleTime) || len(w.waiting()) == 0 {
		for _, p := range c.watched {
			p.starving, p.full = 0, false
		}
		return
	}
	blocked := r.blocked()
	waiting := r.throttled() // not for long: their jobs stay theirs
	room := make(map[string]int)
	due := w.attribute(func(s *site, t *truth) int {
		room[s.pool] = t.room()
		if blocked[s.pool] && !waiting[s.pool] {
			return 0
		}
		return room[s.pool] * t.placesOfNew()
	})
	for _, s := range w.clouds {
		p := c.pool(s.pool)
		held := r.holds(s.pool)
		switch {
		case !held:
		case due.Pools[s.pool].Launch == 0 || !p.turned || waiting[s.pool] || p.full:
			p.starving = 0
		default:
			if p.starving++; p.starving > c.launchWithin() {
				c.broken("I4", "%s: %d jobs have waited for a launch for %d ticks", s.pool, due.Pools[s.pool].Launch, p.starving)
				p.starving = 0
			}
		}
		if held {
			p.turned, p.full = false, room[s.pool] == 0
		}
	}
}

// launchWithin is how soon a launch that is due must be asked for [ticks]. What GitLab
// and the runners do is known with a delay: [gitlab.waitingLong] leaves the most of it
// out, and what ended a moment ago has that long again to be noticed.
func (c *rules) launchWithin() int {
	if g := c.world.gitlab; g != nil {
		return launchWithinTicks + int((g.every()+config.DefaultMetricsEvery)/c.world.story.Tick)
	}
	return launchWithinTicks
}

// blocking are the reasons that may keep a launch back.
var blocking = []policy.Reason{
	policy.ReasonMax, policy.ReasonProviderMax, policy.ReasonStepLimit, policy.ReasonStabilization, policy.ReasonCooldown,
	policy.ReasonHoldStale, policy.ReasonHoldPaused, policy.ReasonHoldCooledOff, policy.ReasonHoldProvider, policy.ReasonHoldBreaker,
	policy.ReasonGroupHalt, policy.ReasonThrottled, policy.ReasonRunnerGone,
}

// blocked lists the pools whose last decision says what keeps a launch back.
func (r *replica) blocked() map[string]bool {
	out := make(map[string]bool)
	for _, p := range r.pools {
		st := p.Status()
		finding, _, _ := strings.Cut(st.Finding, ":")
		// A pool that can't launch is offered no jobs, so that its decisions have nothing
		// to be held back from after the first: its finding goes on to say why, and so
		// does its status of one that waits for what it has launched to try.
		out[p.Name()] = st.Probing || finding == "boot_failing" || finding == "cooled_off" || finding == "group_halt" || finding == "runner_gone" || slices.Contains(blocking, st.Hold) ||
			slices.Contains(blocking, st.Decision.Reason) || slices.Contains(blocking, st.Decision.LimitedBy)
	}
	return out
}

// throttled lists the pools whose provider said when to ask again.
func (r *replica) throttled() map[string]bool {
	out := make(map[string]bool)
	for _, p := range r.pools {
		out[p.Name()] = r.world.now.Before(p.Status().WaitTill)
	}
	return out
}

func (r *replica) holds(pool string) bool {
	return r.world.store.Holder("pool/"+pool) == r.name
}

// assigned checks I10: a job is on at most one machine that lives.
func (c *rules) assigned(to *runner, ref router.JobRef) {
	if r := c.world.running[ref.ID]; r != nil && r != to && !r.dead && r.replica != nil {
		c.broken("I10", "job %s is given to %s while %s runs it", ref.ID, to.id, r.id)
	}
}

// jobChanged checks I10: a job ends once. It reports whether the change is one.
func (c *rules) jobChanged(j *jobStory, to spillway.JobState) bool {
	if !j.state.Terminal() || to == spillway.Pending && c.countedAnew(j) {
		return true
	}
	if to != spillway.Pending { // the store may have forgotten it: it is pushed and found again
		c.broken("I10", "job %s is %s after it has ended as %s", j.id, to, j.state)
	}
	return false
}

// step checks I6 now and then: no job stays in a state for ever.
func (c *rules) step() {
	w := c.world
	w.noteReplacements()
	if w.now.Sub(c.checkedAt) < time.Minute {
		return
	}
	c.checkedAt = w.now
	if w.rec.open == 0 || !w.faults.settled(w.now, settleTime) {
		return
	}
	for _, j := range w.rec.order {
		job := &w.jobs[j.id].Job
		if j.state == spillway.Pending && w.gitlab != nil {
			continue // for as long as GitLab lets it
		}
		if limit := w.limit(j.state, job); limit > 0 && w.now.Sub(j.since) > limit+stateGrace {
			c.broken("I6", "job %s has been %s for %s", j.id, j.state, w.now.Sub(j.since))
		}
	}
}

// atEnd checks I7: after the last fault everything comes right by itself.
func (c *rules) atEnd() {
	w := c.world
	if w.faults.last.IsZero() || !w.faults.settled(w.now, convergeTime) {
		return
	}
	blocked := make(map[string]bool)
	for _, r := range w.replicas {
		if !r.working() {
			continue
		}
		for pool, why := range r.blocked() {
			blocked[pool] = blocked[pool] || why && r.holds(pool)
		}
	}
	admitted := slices.DeleteFunc(w.waiting(), func(c demand.Class) bool { return c.Unadmitted })
	left := w.attributeOf(admitted, func(s *site, t *truth) int {
		if blocked[s.pool] {
			return 0
		}
		return t.room() * t.placesOfNew()
	})
	for _, s := range w.clouds {
		if share := left.Pools[s.pool]; share.Launch > 0 || share.Free > 0 {
			c.broken("I7", "%s: %d jobs still wait though the last fault is over", s.pool, share.Total())
		}
	}
}
