package router

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
)

// Bounds of what is barred.
const (
	// MaxBars bounds the jobs that one list bars [jobs]: a plan looks at each of them.
	MaxBars = 1_000
	// maxBarLists bounds the owners of lists [lists]: a part of a class says in one word
	// which of them bar it. What a further one says is not known here.
	maxBarLists = 64
)

// Bar keeps a waiting job out of pools that have refused it for what it is, and would
// again. Others of its class may go there.
type Bar struct {
	Job   spillway.JobID
	Class spillway.JobClass
	Why   string    // a sentence
	Until time.Time // when whoever barred it will take that back
}

// barList is what the pools of one owner bar.
type barList struct {
	owner string
	pools []string
	bars  map[spillway.JobClass]map[spillway.JobID]Bar
}

// SetBars replaces what an owner has its pools bar. A bar ends only so: the owner takes it
// back when its time is over, and when the job waits no more.
func (e *Engine) SetBars(owner string, pools []string, bars []Bar) {
	e.dirty = true
	e.barred = slices.DeleteFunc(e.barred, func(l *barList) bool { return l.owner == owner })
	if len(bars) == 0 || len(pools) == 0 || len(e.barred) >= maxBarLists {
		return
	}
	l := &barList{owner: owner, pools: slices.Clone(pools), bars: make(map[spillway.JobClass]map[spillway.JobID]Bar)}
	for _, b := range bars[:min(len(bars), MaxBars)] {
		if l.bars[b.Class] == nil {
			l.bars[b.Class] = make(map[spillway.JobID]Bar)
		}
		l.bars[b.Class][b.Job] = b
	}
	e.barred = append(e.barred, l)
}

// barsOf is the list of a pool, nil if it has none, and its bit in a mask.
func (e *Engine) barsOf(p *pool) (l *barList, bit uint64) {
	for i, l := range e.barred {
		if slices.Contains(l.pools, p.Name) {
			return l, 1 << i
		}
	}
	return nil, 0
}

// bar is what bars a job from a pool.
func (e *Engine) bar(p *pool, class spillway.JobClass, id spillway.JobID) (Bar, bool) {
	l, _ := e.barsOf(p)
	if l == nil {
		return Bar{}, false
	}
	b, barred := l.bars[class][id]
	return b, barred
}

// bars reports whether a pool bars the job that a place is chosen for.
func (e *Engine) bars(p *pool, c *choice) bool {
	_, barred := e.bar(p, c.class, c.job.ID)
	return barred
}

// barredJobs counts the waiting jobs of a class that a list bars.
func (e *Engine) barredJobs(l *barList, c *class) (jobs int) {
	for id := range l.bars[c.id] {
		if e.holds[id] == nil {
			jobs++
		}
	}
	return jobs
}

// portion is jobs of a class that the same lists bar.
type portion struct {
	mask uint64 // of the lists
	jobs int
}

// portions are the waiting jobs of a class that some list bars.
func (e *Engine) portions(c *class) []portion {
	if len(e.barred) == 0 {
		return nil
	}
	masks := make(map[spillway.JobID]uint64)
	for i, l := range e.barred {
		for id := range l.bars[c.id] {
			if e.holds[id] == nil {
				masks[id] |= 1 << i
			}
		}
	}
	if len(masks) == 0 {
		return nil
	}
	jobs := make(map[uint64]int)
	for _, mask := range masks {
		jobs[mask]++
	}
	list := make([]portion, 0, len(jobs))
	for _, mask := range slices.Sorted(maps.Keys(jobs)) {
		list = append(list, portion{mask, jobs[mask]})
	}
	return list
}

// split has each turn be of jobs that the same lists bar. Those that are barred come
// first: they were in a pool's hands before, and so they are the older ones.
func (e *Engine) split(classes []*class, turns []turn) []turn {
	if len(e.barred) == 0 {
		return turns
	}
	rest := make(map[int][]portion)
	var list []turn
	for _, t := range turns {
		portions, seen := rest[t.class]
		if !seen {
			portions = e.portions(classes[t.class])
		}
		for len(portions) > 0 && t.jobs > 0 {
			n := min(portions[0].jobs, t.jobs)
			list = append(list, turn{class: t.class, from: t.from, jobs: n, share: t.share, barred: portions[0].mask})
			t.from, t.jobs = t.from+n, t.jobs-n
			if portions[0].jobs -= n; portions[0].jobs == 0 {
				portions = portions[1:]
			}
		}
		rest[t.class] = portions
		if t.jobs > 0 {
			list = append(list, t)
		}
	}
	return list
}

// admits reports whether a pool bars none of a turn's jobs.
func (e *Engine) admits(p *pool, t *turn) bool {
	if t.barred == 0 {
		return true
	}
	_, bit := e.barsOf(p)
	return t.barred&bit == 0
}

// id names jobs that are alike to every pool.
func (t *turn) id(c *class) spillway.JobClass {
	if t.barred == 0 {
		return c.id
	}
	return c.id + spillway.JobClass("/"+strconv.FormatUint(t.barred, 16))
}

// oneOvertakes leaves of the flows of a class to pools that bar others of it those of one
// pool: each would ask for what is in its way, and so take what the other one may have.
// The others are planned when that is claimed.
func (e *Engine) oneOvertakes(flows []flow, classes []*class, berths []berth) []flow {
	if len(e.barred) == 0 {
		return flows
	}
	first := make(map[int]*pool)
	return slices.DeleteFunc(flows, func(f flow) bool {
		p := berths[f.berth].pool
		if e.inTheWay(p, classes[f.class]) == 0 {
			return false
		}
		if first[f.class] == nil {
			first[f.class] = p
		}
		return first[f.class] != p
	})
}

// wantOvertaken has each want ask for what is in its way besides. Those are given back.
func (e *Engine) wantOvertaken(wants []ClaimWant, want func(c *class, p *pool, jobs int)) {
	if len(e.barred) == 0 {
		return
	}
	for _, w := range wants {
		c, p := e.classes[w.Class], e.poolOf[w.Pool]
		if more := min(e.inTheWay(p, c), c.available()); more > 0 {
			want(c, p, more)
		}
	}
}

// inTheWay is how many jobs of a class a pool bars that may be first in the queue.
func (e *Engine) inTheWay(p *pool, c *class) int {
	l, _ := e.barsOf(p)
	if l == nil {
		return 0
	}
	return e.barredJobs(l, c)
}
