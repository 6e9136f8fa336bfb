package router

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spillway-ci/spillway"
)

// Labels of a machine that say where it is.
const (
	LabelZone     = "zone"     // machines of one zone are near to each other
	LabelDistance = "distance" // a number: how far it is from what jobs fetch; less is nearer
)

// Bounds of the search for the best place.
const (
	maxPoolsLookedAt    = 4 // of equal priority
	maxMachinesLookedAt = 8 // of each pool: some of those that were used last
)

// Weights are how much each criterion counts when several machines could take a job
// that pools of one priority have places for. Each criterion is between 0 and 1, and
// what is least in sum is best. 0 leaves a criterion out.
type Weights struct {
	Cost         float64 // the pool's cost per job, beside the dearest's
	History      float64 // how long jobs of the name take in the pool, beside the slowest
	Affinity     float64 // the machine ran none of the job's affinity lately
	AntiAffinity float64 // the machine runs a job that this one is to be kept away from
	Topology     float64 // the machine is far away, and not in the zone of the affinity's last
}

// DefaultWeights are the defaults: what was asked for in so many words counts most, then money and
// time; a warm cache and a short way are good for a part of a job's time only.
func DefaultWeights() Weights {
	return Weights{Cost: 1, History: 1, Affinity: 0.5, AntiAffinity: 4, Topology: 0.5}
}

// Score is what speaks against a machine, weighted.
type Score struct {
	Machine spillway.MachineID
	Pool    string

	Cost, History, Affinity, AntiAffinity, Topology float64
}

// Sum is all that speaks against it.
func (s *Score) Sum() float64 { return s.Cost + s.History + s.Affinity + s.AntiAffinity + s.Topology }

// choice is the choice of a machine for one job.
type choice struct {
	engine *Engine
	job    *spillway.Job
	class  spillway.JobClass
	own    *pool // that it was claimed for
	pools  []*pool
	warm   []*machine // that ran jobs of its affinity, the latest first

	poolsHere [maxPoolsLookedAt]*pool // of pools: choices are many
	warmHere  [warmMachines]*machine  // of warm
}

// open finds the pools that may be chosen from: the job's own and others of the same
// priority that have places to spare.
func (c *choice) open() {
	e := c.engine
	c.pools = append(c.poolsHere[:0], c.own)
	if class := e.classes[c.class]; class != nil {
		for _, i := range class.takers {
			p := e.pools[i]
			if p != c.own && p.Priority == c.own.Priority && len(c.pools) < maxPoolsLookedAt &&
				p.places-e.reserved[p.Name]-p.due > 0 && !e.bars(p, c) {
				c.pools = append(c.pools, p)
			}
		}
	}
	if e.opt.Weights.Affinity == 0 && e.opt.Weights.Topology == 0 {
		return
	}
	c.warm = c.warmHere[:0]
	ids, _ := e.tastes.warm.get(affinityOf(c.job))
	for _, id := range ids {
		if m := e.machines[id]; m != nil {
			c.warm = append(c.warm, m)
		}
	}
}

// plain reports whether nothing but the last use tells machines apart.
func (c *choice) plain() bool {
	return len(c.pools) == 1 && len(c.warm) == 0 && c.job.AntiAffinity == "" && c.own.labelled == 0
}

// best returns the machine with the least against it; of equals one of the job's own
// pool, and then the one that was used last.
func (c *choice) best() *machine {
	list := c.candidates()
	if len(list) == 0 {
		return nil
	}
	scores := c.scores(list)
	best := 0
	for i := 1; i < len(list); i++ {
		if c.better(list[i], list[best], &scores[i], &scores[best]) {
			best = i
		}
	}
	return list[best]
}

func (c *choice) better(m, o *machine, a, b *Score) bool {
	if order := cmp.Compare(a.Sum(), b.Sum()); order != 0 {
		return order < 0
	}
	if mine := m.pool == c.own; mine != (o.pool == c.own) {
		return mine
	}
	return m.goesBefore(o)
}

// candidates lists machines with a free place: of each pool the one that was used last,
// some more if they are not alike, and those that ran jobs of the job's affinity.
func (c *choice) candidates() []*machine {
	var list []*machine
	add := func(m *machine) {
		if m != nil && m.places > 0 && !m.refuses(c.class) && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	for _, p := range c.pools {
		add(p.best(c.class))
		if c.job.AntiAffinity == "" && p.labelled == 0 {
			continue
		}
		for _, m := range p.open[:min(len(p.open), maxMachinesLookedAt)] {
			add(m)
		}
	}
	for _, m := range c.warm {
		if slices.Contains(c.pools, m.pool) {
			add(m)
		}
	}
	return list
}

// scores weighs machines against each other.
func (c *choice) scores(list []*machine) []Score {
	w := c.engine.opt.Weights
	dearest, slowest, farthest := 0.0, 0.0, 0.0
	for _, m := range list {
		dearest = max(dearest, m.pool.CostPerJob)
		slowest = max(slowest, c.duration(m.pool))
		farthest = max(farthest, m.distance())
	}
	scores := make([]Score, len(list))
	for i, m := range list {
		s := Score{
			Machine: m.ID, Pool: m.Pool,
			Cost:    w.Cost * part(m.pool.CostPerJob, dearest),
			History: w.History * part(c.duration(m.pool), slowest),
		}
		if len(c.warm) > 0 && !slices.Contains(c.warm, m) {
			s.Affinity = w.Affinity
		}
		if m.avoids(c.job.AntiAffinity) {
			s.AntiAffinity = w.AntiAffinity
		}
		s.Topology = w.Topology * part(m.distance(), farthest) / 2
		if zone := c.zone(); zone != "" && m.Labels[LabelZone] != zone {
			s.Topology += w.Topology / 2
		}
		scores[i] = s
	}
	return scores
}

// duration is how long jobs of this name take in a pool; where that is not known, what
// they take on average in those where it is, so that nothing speaks against trying.
func (c *choice) duration(p *pool) float64 {
	t := &c.engine.tastes
	if c.job.Name == "" {
		return 0
	}
	if mean, known := t.durations.get(history{p.Name, c.job.Name}); known {
		return mean
	}
	sum, n := 0.0, 0
	for _, o := range c.pools {
		if mean, known := t.durations.get(history{o.Name, c.job.Name}); known {
			sum, n = sum+mean, n+1
		}
	}
	return sum / float64(max(n, 1))
}

// zone is where the last job of this one's affinity ran; empty = not known.
func (c *choice) zone() string {
	if len(c.warm) == 0 {
		return ""
	}
	return c.warm[0].Labels[LabelZone]
}

func (m *machine) labelled() bool { return m.Labels[LabelZone] != "" || m.Labels[LabelDistance] != "" }

// distance is what the machine's label says; 0 where it says nothing that is a number.
func (m *machine) distance() float64 {
	if len(m.Labels) == 0 {
		return 0
	}
	d, err := strconv.ParseFloat(m.Labels[LabelDistance], 64)
	if err != nil || !(d > 0 && d < 1e9) {
		return 0
	}
	return d
}

// avoids reports whether the machine runs a job of the same anti-affinity.
func (m *machine) avoids(word string) bool {
	return word != "" && slices.ContainsFunc(m.holds, func(h *hold) bool { return h.antiAffinity == word })
}

// part is x as a part of the most there is.
func part(x, most float64) float64 {
	if most == 0 {
		return 0
	}
	return x / most
}
