package router

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// kind is what classes have in common that the same pools can take.
type kind struct {
	key     string // in Engine.kinds
	classes int    // that are of it

	fair bool // a pool for the whole instance is among them
	fifo bool // another one is

	plan   uint64 // for which the rest of the fields holds
	places int    // that its classes could have [jobs]
	picked int    // jobs that were put in line
}

// project is what the classes of one project have in common.
type project struct {
	classes int // that know it

	plan    uint64 // for which the rest of the fields holds
	running int    // jobs that are assigned or running at any replica
	picked  int    // jobs that were put in line
}

// kindOf returns the kind of the classes that the pools of these indices can take.
func (e *Engine) kindOf(takers []int) *kind {
	key := make([]byte, 0, 2*len(takers))
	for _, i := range takers {
		key = binary.AppendUvarint(key, uint64(i))
	}
	k := e.kinds[string(key)]
	if k == nil {
		k = &kind{key: string(key)}
		for _, i := range takers {
			if e.pools[i].fair() {
				k.fair = true
			} else {
				k.fifo = true
			}
		}
		e.kinds[k.key] = k
	}
	return k
}

// fair reports whether projects share the pool's places: those of one that serves the
// whole instance.
func (p *pool) fair() bool {
	return p.Capability.Type == spillway.InstanceType || p.Capability.Type == ""
}

func (e *Engine) joinProject(c *class) {
	id := c.requirement.Project
	if e.projects[id] == nil {
		e.projects[id] = &project{}
	}
	c.project = e.projects[id]
	c.project.classes++
}

// leave takes a class that is forgotten out of what it has in common with others.
func (e *Engine) leave(c *class) {
	if c.project.classes--; c.project.classes == 0 {
		delete(e.projects, c.requirement.Project)
	}
	if c.kind.classes--; c.kind.classes == 0 {
		delete(e.kinds, c.kind.key)
	}
}

// running is the jobs of a class that have a place: as the queue was counted, and not
// fewer than are on our own book.
func (e *Engine) running(c *class) int { return max(c.claimed, e.held[c.id]) }

// turn is jobs of a class that are served one after the other. The class is by index.
type turn struct {
	class int
	from  int // how many jobs of the class are served before
	jobs  int
	share int // of demand.Class: its place in line

	barred uint64 // the lists of Engine.barred that bar them, one bit each
}

// line puts the jobs of classes in the order in which they are served, and the classes
// too, as far as that depends on it: the most urgent first. Among projects that share
// pools it is job by job the one's with the fewest running, as GitLab does it; a job that
// is put in line counts as running.
//
// Of each kind no more are put in line than there are places for it: which ones is all
// that is left to say. There are places for every job where some may be waited for, and
// then not all go one by one.
func (e *Engine) line(classes []*class, first []int, berths []berth, ahead int) []turn {
	shared := e.shared(classes)
	if !shared || slices.ContainsFunc(classes, func(c *class) bool { return c.kind.fifo }) {
		slices.SortFunc(classes, (*class).compare)
	}
	if !shared {
		turns := make([]turn, len(classes))
		for i, c := range classes {
			turns[i] = turn{class: i, jobs: c.available()}
		}
		return turns
	}
	e.countRunning()
	l := queueLine{waiters: make([]waiter, 0, len(classes)), singly: maxSingly}
	for i := range berths {
		l.singly += berths[i].free
	}
	for i, c := range classes {
		if e.countPlaces(c, first, berths, ahead) {
			l.places += c.kind.places
		}
		for _, p := range e.portions(c) { // barred from some places: others may need those
			c.kind.places, l.places = c.kind.places+p.jobs, l.places+p.jobs
		}
		if c.kind.fair {
			l.waiters = append(l.waiters, waiter{class: c, index: i, running: c.project.running, oldest: c.oldest.UnixNano()})
		}
	}
	return e.oldestToo(classes, l.serve())
}

// shared reports whether jobs of several projects wait for pools that share.
func (e *Engine) shared(classes []*class) bool {
	var only *project
	for _, c := range classes {
		if !c.kind.fair {
			continue
		}
		if only != nil && c.project != only {
			return true
		}
		only = c.project
	}
	return false
}

// countRunning counts the running jobs of each project that pools for the whole
// instance could have taken.
func (e *Engine) countRunning() {
	e.plans++
	for _, c := range e.classes {
		if !c.kind.fair {
			continue
		}
		if c.project.plan != e.plans {
			*c.project = project{classes: c.project.classes, plan: e.plans}
		}
		c.project.running += e.running(c) + c.wanted
	}
}

// countPlaces counts what the classes of c's kind could have; false if that was done
// for another one before.
func (e *Engine) countPlaces(c *class, first []int, berths []berth, ahead int) bool {
	if c.kind.plan == e.plans {
		return false
	}
	c.kind.plan, c.kind.places, c.kind.picked = e.plans, ahead, 0
	for _, p := range c.takers {
		for i := first[p]; i < first[p+1]; i++ {
			c.kind.places += berths[i].free
		}
	}
	return true
}

// waiter is a class in line.
type waiter struct {
	class   *class
	index   int
	running int   // of its project, when it was put here
	oldest  int64 // ns since 1970
	served  int   // of its jobs
}

func (w *waiter) goesBefore(o *waiter) bool {
	return cmp.Or(
		cmp.Compare(w.class.priority, o.class.priority), cmp.Compare(w.running, o.running),
		cmp.Compare(w.oldest, o.oldest), cmp.Compare(w.class.id, o.class.id),
	) < 0
}

// Bounds of a line, which otherwise is as long as the queue where places are waited for.
const (
	// maxSingly is how many jobs beyond the free places go one by one [jobs]: those that
	// wait for a better place stand before the ones that get them.
	maxSingly = 1024
	// shareParts is how finely projects share after that: as many jobs of one go at a time
	// as are one part in so many of those that it has in line.
	shareParts = 64
)

// queueLine is the classes in line: a heap, the one that is served next is first.
type queueLine struct {
	waiters []waiter
	places  int // of all kinds that are still to be filled
	singly  int // jobs that still go one by one
}

// serve puts jobs in line until there are no more, or all kinds have what they could use.
func (l *queueLine) serve() (turns []turn) {
	for i := len(l.waiters)/2 - 1; i >= 0; i-- {
		l.sink(i)
	}
	for len(l.waiters) > 0 && l.places > 0 {
		w := &l.waiters[0]
		k, p := w.class.kind, w.class.project
		now := p.running + p.picked
		switch {
		case k.picked >= k.places || w.served == w.class.available():
			last := len(l.waiters) - 1
			l.waiters[0] = l.waiters[last]
			l.waiters = l.waiters[:last]
		case w.running < now: // another class of its project was served
			w.running = now
		default:
			jobs := l.atOnce(w)
			turns = w.serve(turns, jobs)
			l.places, l.singly = l.places-jobs, l.singly-jobs
		}
		l.sink(0)
	}
	return turns
}

// atOnce is how many of the waiter's jobs are put in line before it is another one's turn.
func (l *queueLine) atOnce(w *waiter) int {
	if l.singly > 0 {
		return 1
	}
	k := w.class.kind
	return min(max(1, w.class.project.picked/shareParts), w.class.available()-w.served, k.places-k.picked, l.places)
}

// serve puts jobs of the waiter in line.
func (w *waiter) serve(turns []turn, jobs int) []turn {
	if n := len(turns); n > 0 && turns[n-1].class == w.index {
		turns[n-1].jobs += jobs
	} else {
		turns = append(turns, turn{class: w.index, from: w.served, jobs: jobs, share: n + 1})
	}
	w.served += jobs
	w.running += jobs
	w.class.kind.picked += jobs
	w.class.project.picked += jobs
	return turns
}

// sink moves the waiter at i behind those that go before it.
func (l *queueLine) sink(i int) {
	for {
		next := 2*i + 1
		if next >= len(l.waiters) {
			return
		}
		if right := next + 1; right < len(l.waiters) && l.waiters[right].goesBefore(&l.waiters[next]) {
			next = right
		}
		if !l.waiters[next].goesBefore(&l.waiters[i]) {
			return
		}
		l.waiters[i], l.waiters[next] = l.waiters[next], l.waiters[i]
		i = next
	}
}

// oldestToo adds the jobs that pools which do not share would serve, behind those that
// are in line.
func (e *Engine) oldestToo(classes []*class, turns []turn) []turn {
	served := make([]int, len(classes))
	for _, t := range turns {
		served[t.class] += t.jobs
	}
	for i, c := range classes {
		if !c.kind.fifo {
			continue
		}
		if rest := min(c.available(), c.kind.places) - served[i]; rest > 0 {
			turns = append(turns, turn{class: i, from: served[i], jobs: rest, share: len(turns) + 1})
		}
	}
	return turns
}

// waitedFor is how many of the jobs of c that a claim may want have waited for d.
func (c *class) waitedFor(now time.Time, d time.Duration) int {
	if now.Sub(c.oldest) < d {
		return 0
	}
	if c.waited == nil {
		return c.available()
	}
	n := 0
	for _, w := range c.waited {
		if w.For >= d {
			n = w.Jobs
			break
		}
	}
	return min(c.available(), max(0, n-c.wanted)) // the oldest are wanted first
}

// ages is what demand.Class.Waited says of the jobs of a turn.
func (t *turn) ages(now time.Time, c *class, spills []time.Duration) []demand.Waited {
	if len(spills) == 0 {
		return nil
	}
	list := make([]demand.Waited, len(spills))
	for i, d := range spills {
		list[i] = demand.Waited{For: d, Jobs: min(t.jobs, max(0, c.waitedFor(now, d)-t.from))}
	}
	return list
}
