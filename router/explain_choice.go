package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Outcome is what comes of a pool for a job.
type Outcome string

// The outcomes.
const (
	OutcomeNoMatch    Outcome = "no_match"         // it can't take the job
	OutcomeUnadmitted Outcome = "unadmitted"       // the job's class waits for admission
	OutcomeFree       Outcome = "free"             // it has a place, and the job's turn comes with it
	OutcomeWaits      Outcome = "waits_for_better" // it has a place, and a better pool is waited for
	OutcomeElsewhere  Outcome = "elsewhere"        // another replica has a place of it
	OutcomeGrowing    Outcome = "growing"          // it has no place, and room to grow
	OutcomeCooledOff  Outcome = "cooled_off"       // it can't grow now: its provider refused
	OutcomeDown       Outcome = "down"             // it can't grow now: its provider can't be asked
	OutcomeFull       Outcome = "full"             // it has no place, and can't grow
	OutcomeRefused    Outcome = "refused"          // it has refused the job, and is not offered it for some time
)

// maxScoresExplained bounds the machines that a Choice lists of each pool.
const maxScoresExplained = 5

// Choice is how a place for a job would be chosen now.
type Choice struct {
	At         time.Time
	Waiting    int // jobs of its class that no claim wants yet
	Unadmitted int // jobs of its class that wait for admission
	Running    int // jobs of its project that count where projects share
	// ServedBefore is how many jobs of other classes come before the class's first, in
	// pools that both can have.
	ServedBefore int
	Pools        []PoolChoice // in the order in which they are considered
}

// PoolChoice is what one pool has for a job.
type PoolChoice struct {
	Pool     string
	Priority int
	Cost     float64 // per job
	Verdict  Verdict
	Outcome  Outcome
	Detail   string
	Free     int // places here that are promised to nobody
	Remote   int // places at other replicas
	Room     int // places that could come
	Until    time.Time
	Machines []Score // the best first
}

// ExplainChoice says what each pool has for a job and what would come of it, now. It
// changes nothing.
func (e *Engine) ExplainChoice(now time.Time, job *spillway.Job) Choice {
	e.advance(now)
	r := job.Requirement.Normalize()
	x := Choice{At: e.now}
	c := e.classes[r.Class()]
	if c != nil {
		x.Waiting, x.Unadmitted = c.available(), c.unadmitted
		x.Running, x.ServedBefore = e.standing(c)
	}
	for _, p := range e.inOrder() {
		x.Pools = append(x.Pools, e.explainPool(p, job, &r, x.Unadmitted > 0 && x.Waiting == 0))
	}
	e.explainWaits(x.Pools, job)
	return x
}

// inOrder lists the pools as demand considers them.
func (e *Engine) inOrder() []*pool {
	return slices.SortedStableFunc(slices.Values(e.pools), func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.CostPerJob, b.CostPerJob), strings.Compare(a.Name, b.Name))
	})
}

func (e *Engine) explainPool(p *pool, job *spillway.Job, r *spillway.Requirement, unadmitted bool) PoolChoice {
	x := PoolChoice{Pool: p.Name, Priority: p.Priority, Cost: p.CostPerJob, Verdict: Explain(&p.Capability, r)}
	if !x.Verdict.OK() {
		x.Outcome, x.Detail = OutcomeNoMatch, x.Verdict.Detail
		return x
	}
	x.Free = max(0, p.places-e.reserved[p.Name])
	x.Remote, x.Room = e.remote.free[p.Name], e.roomOf(p)
	known := e.room[p.Name]
	bar, barred := e.bar(p, r.Class(), job.ID)
	switch {
	case barred:
		x.Outcome, x.Until, x.Detail = OutcomeRefused, bar.Until, bar.Why+"; it is not offered there before "+clockOf(bar.Until)
	case unadmitted:
		x.Outcome, x.Detail = OutcomeUnadmitted, "the job waits for admission"
	case x.Free > 0:
		x.Outcome, x.Detail = OutcomeFree, fmt.Sprintf("%s free here", placesText(x.Free))
		x.Machines = e.explainMachines(p, job, r)
	case x.Remote > 0:
		x.Outcome, x.Detail = OutcomeElsewhere, placesText(x.Remote)+" free at another replica"
	case e.now.Before(known.CooledUntil):
		x.Outcome, x.Until, x.Detail = OutcomeCooledOff, known.CooledUntil, "no place; its provider refused, and is not asked before "+clockOf(known.CooledUntil)
	case known.Down:
		x.Outcome, x.Detail = OutcomeDown, "no place; its provider can't be asked"
	case x.Room > 0:
		x.Outcome, x.Detail = OutcomeGrowing, fmt.Sprintf("no place; %s may still come", placesText(x.Room))
	default:
		x.Outcome, x.Detail = OutcomeFull, "no place, and no room to grow"
	}
	return x
}

// explainMachines weighs some of a pool's machines, as a choice would: beside those of
// the other pools of its priority that have places.
func (e *Engine) explainMachines(p *pool, job *spillway.Job, r *spillway.Requirement) []Score {
	class := r.Class()
	c := choice{engine: e, job: job, class: class, own: p}
	c.open()
	c.pools = e.besides(p, r)
	list := c.candidates()
	for _, m := range p.open[:min(len(p.open), maxMachinesLookedAt)] {
		if !m.refuses(class) && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	scores := c.scores(list)
	var order []int
	for i, m := range list {
		if m.pool == p {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		if c.better(list[i], list[j], &scores[i], &scores[j]) {
			return -1
		}
		return 1
	})
	var best []Score
	for _, i := range order[:min(len(order), maxScoresExplained)] {
		best = append(best, scores[i])
	}
	return best
}

// besides is p and the other pools of its priority that have places to spare for such a
// job. Unlike [choice.open] it finds them too when no job of the class waits any more.
func (e *Engine) besides(p *pool, r *spillway.Requirement) []*pool {
	pools := []*pool{p}
	for _, o := range e.pools {
		spare := o.places - e.reserved[o.Name] - o.due
		if o != p && o.Priority == p.Priority && spare > 0 && len(pools) < maxPoolsLookedAt && Explain(&o.Capability, r).OK() {
			pools = append(pools, o)
		}
	}
	return pools
}

// explainWaits marks the pools that have a place and are not used, because a pool of
// higher priority is waited for.
func (e *Engine) explainWaits(pools []PoolChoice, job *spillway.Job) {
	for i := range pools {
		x := &pools[i]
		if x.Outcome != OutcomeFree {
			continue
		}
		if p := e.poolOf[x.Pool]; p.LeastWait > 0 && job.SubmittedAt.Add(p.LeastWait).After(e.now) {
			x.Outcome, x.Until = OutcomeWaits, job.SubmittedAt.Add(p.LeastWait)
			x.Detail = fmt.Sprintf("%s free there; a job goes there only after it has waited for %s, at %s", placesText(x.Free), p.LeastWait, clockOf(x.Until))
		}
		for _, b := range pools[:i] {
			if b.Priority >= x.Priority || !b.Verdict.OK() {
				continue
			}
			if until, why := e.waitsFor(&b, job); until.After(e.now) && until.After(x.Until) {
				x.Outcome, x.Until = OutcomeWaits, until
				x.Detail = fmt.Sprintf("%s free here; until %s the job waits for %s, which has %s", placesText(x.Free), clockOf(until), b.Pool, why)
			}
		}
	}
}

// waitsFor is until when a job waits for a better pool, and what that has for it.
func (e *Engine) waitsFor(b *PoolChoice, job *spillway.Job) (until time.Time, why string) {
	p := e.poolOf[b.Pool]
	if b.Room > 0 && p.SpillAfter > 0 {
		until, why = job.SubmittedAt.Add(p.SpillAfter), "room to grow"
	}
	if b.Remote > 0 && e.remote.peers {
		if at := job.SubmittedAt.Add(RemotePatience); at.After(until) {
			until, why = at, "a place at another replica"
		}
	}
	return until, why
}

// standing is how many jobs of a class's project count as running, and how many jobs of
// other classes come before its first.
func (e *Engine) standing(c *class) (running, before int) {
	e.countRunning()
	share := func(o *class) int {
		if !c.kind.fair || !o.kind.fair {
			return 0
		}
		return o.project.running
	}
	running = share(c)
	for _, o := range e.classes {
		if o == c || o.available() == 0 || !meet(o.takers, c.takers) {
			continue
		}
		first := o.compare(c) < 0
		switch {
		case o.priority != c.priority || !c.kind.fair || !o.kind.fair:
			if first {
				before += o.available()
			}
		case o.project == c.project:
			if first {
				before += o.available()
			}
		default: // job by job, until it has as many running
			ahead := running - share(o)
			if first {
				ahead++
			}
			before += min(o.available(), max(0, ahead))
		}
	}
	return running, before
}

// meet reports whether two ascending lists have an element in common.
func meet(a, b []int) bool {
	return slices.ContainsFunc(a, func(i int) bool { _, found := slices.BinarySearch(b, i); return found })
}

// Why a machine of a pool with a free place is not given a job: the reasons of a Wait.
const (
	WaitNoJobs    = "no_jobs"   // none waits that it could take
	WaitSpillover = "spillover" // those that wait go to pools of higher priority first
	WaitAdmission = "admission" // those that wait are not admitted yet
	WaitTaken     = "taken"     // those that wait are about to be given to others
)

// WaitReason says why a machine of the pool is given no job, and until when that is
// known to last; zero = not known.
func (e *Engine) WaitReason(name string) (reason string, until time.Time) {
	p := e.poolOf[name]
	if p == nil {
		return WaitNoJobs, time.Time{}
	}
	reason = WaitNoJobs
	for _, c := range e.classes {
		switch {
		case !c.takenBy(p):
		case c.available() > 0:
			return WaitSpillover, e.ripensAt
		case c.pending > 0:
			reason = WaitTaken
		case c.unadmitted > 0 && reason == WaitNoJobs:
			reason = WaitAdmission
		}
	}
	return reason, time.Time{}
}

func placesText(n int) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}

func clockOf(t time.Time) string { return t.UTC().Format(time.TimeOnly) + " UTC" }
