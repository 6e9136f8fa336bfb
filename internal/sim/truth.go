package sim

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/router"
)

// truth is what a pool really has, whatever anybody believes. Counts are
// instances unless said otherwise.
type truth struct {
	pool     config.Pool
	exists   int // in the cloud
	ending   int // of exists: being ended
	hidden   int // of ending: by somebody else, and nobody can have seen them since, or ever
	asked    int // of the group, and not there
	useful   int // will serve or serves: not leaving, not failed to boot
	inUse    int
	free     int // places on machines that take jobs [jobs]
	coming   int // places on booting instances and on drains that can be taken back [jobs]
	unseen   int // of coming: on instances that the group has launched of itself a moment ago [jobs]
	groupMin int
	groupMax int
}

// truth looks at one pool.
func (w *world) truth(s *site) truth {
	pool, _ := w.config.Pool(s.pool)
	s.cloud.Advance(w.now)
	t := truth{pool: pool, groupMin: s.cloud.Min(), groupMax: s.cloud.Max()}
	for _, in := range s.cloud.Existing() {
		t.exists++
		t.count(w, in)
	}
	t.asked = max(0, s.cloud.Desired()-(t.exists-t.ending))
	young := w.now.Sub(w.rules.pool(s.pool).raisedAt) < pool.Policy.RegisterTimeout
	if young && !w.launchLost(s.pool) && w.faults.plugin(s.pool, w.now) == "" {
		t.useful += t.asked
		t.coming += t.asked * t.placesOfNew()
	}
	return t
}

func (t *truth) count(w *world, in Instance) {
	r := w.runners[machineID(t.pool.Name, in.ID)]
	switch {
	case in.Ending:
		t.ending++
		if w.hidden(t.pool.Name, in) {
			t.hidden++
		}
	case in.Doomed:
	case r == nil:
		if w.now.Sub(in.LaunchedAt) < t.pool.Policy.RegisterTimeout {
			t.useful++
			t.coming += t.placesOfNew()
		}
		if w.rules.pool(t.pool.Name).unasked[in.ID] && w.now.Sub(in.LaunchedAt) < noticeTicks*w.story.Tick {
			t.unseen += t.placesOfNew()
		}
	case r.dead || w.deaf(r) || r.complaint != "": // it gets no jobs
	default:
		t.countRunner(r, w.rec.pools[t.pool.Name].leaves[in.ID])
	}
}

// deaf reports whether a machine is given no jobs, whatever it could take, and that can be
// known.
func (w *world) deaf(r *runner) bool {
	if w.gitlab != nil {
		return r.quit || w.gitlab.gone(r) || w.gitlab.paused[r.id]
	}
	return r.replica == nil
}

// placesOfNew is how many jobs a new instance takes before it is used up.
func (t *truth) placesOfNew() int {
	if limit := t.pool.Policy.MaxUses; limit > 0 {
		return min(limit, t.pool.CapacityPerInstance)
	}
	return t.pool.CapacityPerInstance
}

// countRunner counts a machine. leaves: once drained, it is so for good.
func (t *truth) countRunner(r *runner, leaves bool) {
	if r.draining && leaves {
		return
	}
	places := max(0, r.capacity-len(r.jobs)-len(r.results)) // a job that nobody was told has ended takes its place still
	if limit := t.pool.Policy.MaxUses; limit > 0 {
		if r.uses >= limit {
			return
		}
		places = min(places, limit-r.uses)
	}
	t.useful++
	if len(r.jobs) > 0 {
		t.inUse++
	}
	if r.draining {
		t.coming += places
	} else {
		t.free += places
	}
}

// launchLost reports whether whoever scales a pool says that its provider failed after
// it had accepted: what was asked for and is not there covers no job then.
func (w *world) launchLost(pool string) bool {
	for _, r := range w.replicas {
		if r.dead || !r.holds(pool) {
			continue
		}
		for _, p := range r.pools {
			if p.Name() == pool {
				return p.Status().LaunchLost
			}
		}
	}
	return false
}

// bound is how many instances the pool may have.
func (t *truth) bound() int {
	return max(min(t.pool.Policy.Max, t.groupMax), t.groupMin)
}

// room is how many instances could still be asked for.
func (t *truth) room() int {
	return max(0, min(t.pool.Policy.Max, t.groupMax)-t.exists-t.asked)
}

// waiting is the queue as it is.
func (w *world) waiting() []demand.Class {
	if w.gitlab != nil {
		return w.gitlab.waitingLong()
	}
	counts, err := w.counts()
	if err != nil {
		return nil
	}
	return collect.View(counts, w.now).Classes
}

// attribute gives the waiting jobs to what there really is. launchable says how
// many places each pool could still launch [jobs].
func (w *world) attribute(launchable func(s *site, t *truth) int) demand.Attribution {
	return w.attributeOf(w.waiting(), launchable)
}

// attributeOf is attribute for some of the jobs.
func (w *world) attributeOf(classes []demand.Class, launchable func(s *site, t *truth) int) demand.Attribution {
	pools := w.pools()
	supplies := make([]demand.Supply, 0, len(pools))
	for i := range pools {
		s := w.site(pools[i].Name)
		t := w.truth(s)
		launch := launchable(s, &t)
		supplies = append(supplies, demand.Supply{
			Pool: pools[i].Name, Capability: pools[i].Capability, Priority: pools[i].Priority, CostPerJob: pools[i].CostPerJob,
			Free: t.free, Booting: t.coming, Launchable: launch, SpillAfter: pools[i].SpillAfter,
		})
	}
	return demand.Attribute(classes, supplies, matches)
}

func matches(c *spillway.Capability, r *spillway.Requirement) (ok bool, predicate string) {
	v := router.Match(c, r)
	return v.OK(), string(v.Predicate)
}

// noticeTicks is within how many ticks it is noticed that an instance is gone, and
// that the group has launched another for it: the one is missing from three lists, the
// first of which may be asked for a tick later.
const noticeTicks = 4

// noteReplacements notes when a group wants more than it has though nobody has asked
// for more: it replaces what it has lost. That takes as long to come as what was asked
// for, from the next list, which shows that the one is gone.
func (w *world) noteReplacements() {
	for _, s := range w.clouds {
		p, ending := w.rules.pool(s.pool), len(w.rec.pools[s.pool].held)
		asked := max(0, s.cloud.Desired()-(s.cloud.Live()-ending))
		if asked > p.asked && !p.raisedAt.Equal(w.now) {
			p.raisedAt = w.now.Add(w.story.Tick)
		}
		p.asked = asked
	}
}

// hidden reports whether an instance is being ended by somebody else, and there was
// no list since that can have shown it: the number has fallen, and it still bills.
func (w *world) hidden(pool string, in Instance) bool {
	since, taken := w.rules.pool(pool).taken[in.ID]
	return taken && (w.now.Before(in.LaunchedAt.Add(w.story.Clouds[pool].VisibleAfter+w.story.Tick)) || !w.seen(pool, since))
}

// seen reports whether what somebody else has done to a group can be known: it was
// looked at since, but for a plugin that can't be asked.
func (w *world) seen(pool string, since time.Time) bool {
	if since.IsZero() {
		return true
	}
	by := since
	if f := w.faults.plugins[pool]; f.until.After(since) {
		by = f.until
		if f.kind == scenario.PluginHang {
			by = by.Add(readDeadline) // the last call that hangs
		}
	}
	return w.now.Sub(by) >= 2*w.story.Tick
}

// poolWatch is what the rules remember of a pool.
type poolWatch struct {
	raisedAt time.Time            // when more was last asked for
	asked    int                  // of the group and not there, a moment ago [instances]
	taken    map[string]time.Time // instances that somebody else has begun to end, which a hook holds
	lostAt   time.Time            // when the group last lost an instance that we didn't end
	unasked  map[string]bool      // instances that it has launched for those
	starving int                  // ticks in a row in which a launch was due and none came
	turned   bool                 // it had a turn since the last tick
	full     bool                 // it had no room at the last tick: a list must show that it has some
	spare    int                  // places that its last launch has beyond what it was for [jobs]
	sparedAt time.Time

	foreignAt time.Time // when somebody else changed the group
}

// spareAt is the places that a launch of this very moment has left over: an
// instance has as many as it has. The pools whose turn it is in the same look can't
// know of them.
func (p *poolWatch) spareAt(now time.Time) int {
	if !p.sparedAt.Equal(now) {
		return 0
	}
	return p.spare
}
