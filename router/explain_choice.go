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
	OutcomeFull       Outcome = "full"             // it has no place, and can't grow as far as is known
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

// Best is the place that the job would get now: of the pools of the highest priority that
// have one, whichever it is claimed for, the machine with the least against it.
func (x *Choice) Best() (pool string, machine spillway.MachineID, ok bool) {
	priority, least := 0, 0.0
	for i := range x.Pools {
		p := &x.Pools[i]
		if p.Outcome != OutcomeFree || len(p.Machines) == 0 || ok && p.Priority != priority {
			continue
		}
		if sum := p.Machines[0].Sum(); !ok || sum < least {
			pool, machine, ok = p.Pool, p.Machines[0].Machine, true
			priority, least = p.Priority, sum
		}
	}
	return pool, machine, ok
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
	Remote   int // places at other replicas, as far as is known
	Room     int // places that could come, as far as is known
	Until    time.Time
	Machines []Score // the best first
}

// question is the job that an explanation is about.
type question struct {
	*spillway.Job

	class      spillway.JobClass
	unadmitted bool // it waits for admission, as far as we know
	// spare is pools that may have such a job and have places to spare, by priority: as
	// many as a choice looks at.
	spare map[int][]*pool
}

// ExplainChoice says what each pool has for a job and what would come of it, now. It
// changes nothing.
func (e *Engine) ExplainChoice(now time.Time, job *spillway.Job) Choice {
	e.advance(now)
	r := job.Requirement.Normalize()
	q := question{Job: job, class: r.Class(), spare: make(map[int][]*pool)}
	x := Choice{At: e.now}
	if c := e.classes[q.class]; c != nil {
		x.Waiting, x.Unadmitted = c.available(), c.unadmitted
		x.Running, x.ServedBefore = e.standing(c)
	}
	q.unadmitted = x.Unadmitted > 0 && x.Waiting == 0
	verdicts := make([]Verdict, len(e.pools))
	for i, p := range e.pools {
		verdicts[i] = Explain(&p.Capability, &r)
		if verdicts[i].OK() {
			e.noteSpare(&q, p)
		}
	}
	for _, p := range e.inOrder() {
		x.Pools = append(x.Pools, e.explainPool(p, verdicts[p.index], &q))
	}
	e.explainWaits(x.Pools, job)
	return x
}

// noteSpare notes a pool that a choice could look at: as in [choice.open], but also when
// no job of the class waits any more.
func (e *Engine) noteSpare(q *question, p *pool) {
	if len(q.spare[p.Priority]) == maxPoolsLookedAt || p.places-e.reserved[p.Name]-p.due <= 0 {
		return
	}
	if _, barred := e.bar(p, q.class, q.ID); !barred {
		q.spare[p.Priority] = append(q.spare[p.Priority], p)
	}
}

// inOrder lists the pools as demand considers them.
func (e *Engine) inOrder() []*pool {
	return slices.SortedStableFunc(slices.Values(e.pools), func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.CostPerJob, b.CostPerJob), strings.Compare(a.Name, b.Name))
	})
}

func (e *Engine) explainPool(p *pool, v Verdict, q *question) PoolChoice {
	x := PoolChoice{Pool: p.Name, Priority: p.Priority, Cost: p.CostPerJob, Verdict: v}
	if !v.OK() {
		x.Outcome, x.Detail = OutcomeNoMatch, v.Detail
		return x
	}
	x.Free = max(0, p.places-e.reserved[p.Name])
	x.Remote, x.Room = e.elsewhere(p), e.roomOf(p)
	bar, barred := e.bar(p, q.class, q.ID)
	switch {
	case barred:
		x.Outcome, x.Until, x.Detail = OutcomeRefused, bar.Until, bar.Why+"; it is not offered there before "+clockOf(bar.Until)
	case q.unadmitted:
		x.Outcome, x.Detail = OutcomeUnadmitted, "the job waits for admission"
	case x.Free > 0:
		x.Outcome, x.Detail = OutcomeFree, placesText(x.Free)+" free here"
		x.Machines = e.explainMachines(p, q)
	case x.Remote > 0:
		x.Outcome, x.Detail = OutcomeElsewhere, placesText(x.Remote)+" free at another replica"
	default:
		e.explainRoom(&x, p)
	}
	return x
}

// explainRoom says whether a pool without a place can come to have one.
func (e *Engine) explainRoom(x *PoolChoice, p *pool) {
	switch room, known := e.freshRoom(p); {
	case !known:
		x.Outcome, x.Detail = OutcomeFull, "no place, and nothing has been heard of whether it can get more"
	case e.now.Before(room.CooledUntil):
		x.Outcome, x.Until, x.Detail = OutcomeCooledOff, room.CooledUntil, "no place; its provider refused, and is not asked before "+clockOf(room.CooledUntil)
	case room.Down:
		x.Outcome, x.Detail = OutcomeDown, "no place; its provider can't be asked"
	case room.Jobs > 0:
		x.Outcome, x.Detail = OutcomeGrowing, "no place; "+placesText(room.Jobs)+" may still come"
	default:
		x.Outcome, x.Detail = OutcomeFull, "no place, and no room to grow"
	}
}

// explainMachines weighs some of a pool's machines, as a choice would: beside those of
// the other pools of its priority that have places.
func (e *Engine) explainMachines(p *pool, q *question) []Score {
	c := choice{engine: e, job: q.Job, class: q.class, own: p}
	c.open()
	c.pools = []*pool{p}
	for _, o := range q.spare[p.Priority] {
		if o != p && len(c.pools) < maxPoolsLookedAt {
			c.pools = append(c.pools, o)
		}
	}
	list := c.candidates()
	for _, m := range p.open[:min(len(p.open), maxMachinesLookedAt)] {
		if !m.refuses(q.class) && !slices.Contains(list, m) {
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

// wait is until when a job waits for a pool, and what that has for it.
type wait struct {
	until     time.Time
	pool, why string
}

// explainWaits marks the pools that have a place and are not used, because a pool of
// higher priority is waited for.
func (e *Engine) explainWaits(pools []PoolChoice, job *spillway.Job) {
	var better, longest wait // of the pools of higher priority, and of all so far
	for i := range pools {
		x := &pools[i]
		if i > 0 && x.Priority != pools[i-1].Priority {
			better = longest
		}
		if x.Outcome == OutcomeNoMatch || x.Outcome == OutcomeRefused {
			continue // nobody waits for what may not have the job
		}
		if x.Outcome == OutcomeFree {
			e.explainWait(x, job, better)
		}
		if w := e.waitsFor(x, job); w.until.After(longest.until) {
			longest = w
		}
	}
}

// explainWait marks a pool with a place if the job waits before it goes there.
func (e *Engine) explainWait(x *PoolChoice, job *spillway.Job, better wait) {
	p := e.poolOf[x.Pool]
	ripe := job.SubmittedAt.Add(p.LeastWait)
	if p.LeastWait > 0 && ripe.After(e.now) {
		x.Outcome, x.Until = OutcomeWaits, ripe
		x.Detail = fmt.Sprintf("%s free there; a job goes there only after it has waited for %s, at %s", placesText(x.Free), p.LeastWait, clockOf(ripe))
	}
	if better.until.After(e.now) && better.until.After(x.Until) {
		x.Outcome, x.Until = OutcomeWaits, better.until
		x.Detail = fmt.Sprintf("%s free here; until %s the job waits for %s, which has %s", placesText(x.Free), clockOf(better.until), better.pool, better.why)
	}
}

// waitsFor is until when a job waits for a pool before it goes to one of lower priority.
func (e *Engine) waitsFor(x *PoolChoice, job *spillway.Job) wait {
	w := wait{pool: x.Pool}
	if p := e.poolOf[x.Pool]; x.Room > 0 && p.SpillAfter > 0 {
		w.until, w.why = job.SubmittedAt.Add(p.SpillAfter), "room to grow"
	}
	if at := job.SubmittedAt.Add(RemotePatience); x.Remote > 0 && at.After(w.until) {
		w.until, w.why = at, "a place at another replica"
	}
	return w
}

// standing is how many jobs of a class's project count as running, and how many jobs of
// other classes come before its first.
func (e *Engine) standing(c *class) (running, before int) {
	e.countRunning()
	if c.kind.fair {
		running = c.project.running
	}
	meets := make(map[*kind]bool)
	first := make(map[*project]int)       // jobs that come before by more than the share of their project
	rivals := make(map[*project][]*class) // those that share with c, project by project
	for _, o := range e.classes {
		if o == c || o.available() == 0 || !meeting(meets, o, c) {
			continue
		}
		shared := c.kind.fair && o.kind.fair
		switch {
		case shared && o.priority == c.priority && o.project != c.project:
			rivals[o.project] = append(rivals[o.project], o)
		case o.compare(c) < 0:
			before += o.available()
			if shared {
				first[o.project] += o.available()
			}
		}
	}
	level := running + first[c.project] // that c's project has reached when c's first is served
	for project, classes := range rivals {
		before += c.servedAfter(classes, level-project.running-first[project])
	}
	return running, before
}

// servedAfter is how many jobs of another project's classes come before the first of c:
// so many as make that project have as many running as c's, and one more if it is older.
func (c *class) servedAfter(classes []*class, ahead int) (jobs int) {
	if ahead < 0 {
		return 0
	}
	slices.SortFunc(classes, (*class).compare)
	for _, o := range classes {
		if jobs+o.available() <= ahead {
			jobs += o.available()
			continue
		}
		if jobs = ahead; o.compare(c) < 0 {
			jobs++
		}
		break
	}
	return jobs
}

// meeting reports whether some pool can take both classes. It is remembered by the kind of
// the one.
func meeting(known map[*kind]bool, o, c *class) bool {
	m, asked := known[o.kind]
	if !asked {
		m = meet(o.takers, c.takers)
		known[o.kind] = m
	}
	return m
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
