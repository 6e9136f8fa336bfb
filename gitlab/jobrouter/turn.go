package jobrouter

import (
	"math"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// Times of turns.
const (
	// FreePatience is how long a pool may have a free machine, and GitLab jobs that it
	// could take, before others need not wait for it any more: GitLab gives them to another
	// runner then, as while its own is paused. Longer than GitLab takes to give out a job
	// that it has (not smaller); jobs that only others get wait for that long (not larger).
	FreePatience = 10 * time.Second
	// LookEvery is how often GitLab is asked all the same with a token that is held back
	// where nothing else tells which jobs wait: once, and on until there is none.
	LookEvery = 30 * time.Second
)

// Why a pool goes before another one.
type Why string

// The reasons.
const (
	MachineFree Why = "machine_free" // one of its machines waits for a job
	MayGrow     Why = "may_grow"     // it can get more machines, and jobs wait for them
)

// Queue is what is known of GitLab's jobs that a pool could take.
type Queue struct {
	Jobs   int             // that wait
	Waited []demand.Waited // as demand.Class has it; nil = not known
	At     time.Time       // when that was true
}

// contender is what is known of another pool whose runners take the same jobs. What isn't
// known of it is left out.
type contender struct {
	pool       string
	priority   int
	apart      bool          // its runners have another token
	spillAfter time.Duration // jobs wait for it that long while it can grow
	free       bool          // one of its machines waits, and GitLab is asked for it
	freeFor    time.Duration // for how long, without a break
	room       int           // places that it can come to have
}

// contest is all that decides whether GitLab may be asked with a runner token.
type contest struct {
	now      time.Time
	pool     string // in whose name
	priority int
	waits    bool // one of its machines waits; otherwise the job is to be kept for one that is to come
	others   []contender
	queue    *Queue // nil: not known
}

// turn says for how many jobs GitLab may be asked now, as far as is known now.
type turn struct {
	jobs   int    // 0: held back; anyNumber: nobody goes before
	behind string // the first pool that goes before; empty: none does
	why    Why
	blind  bool // it isn't known which jobs wait
}

func (t *turn) held() bool { return t.jobs == 0 }

const (
	anyNumber = math.MaxInt32
	forever   = time.Duration(math.MaxInt64)
)

// turn asks demand.Attribute where the jobs that wait, or the next one, would go, if our
// pool and those that go before it were all. A pool with a free machine has a place for
// each: GitLab gives it one after the other, until it is full.
func (c *contest) turn() turn {
	supplies, whys := c.supplies()
	if len(supplies) == 1 {
		return turn{jobs: anyNumber}
	}
	shares := demand.Attribute([]demand.Class{c.class()}, supplies, anyJob)
	t := turn{jobs: shares.Pools[c.pool].Total(), blind: c.queue == nil}
	first := 1
	for i := len(supplies) - 1; i > 0; i-- {
		if shares.Pools[supplies[i].Pool].Total() > 0 {
			first = i
		}
	}
	t.behind, t.why = c.others[whys[first].of].pool, whys[first].why
	return t
}

// because is why a contender has a supply.
type because struct {
	of  int // of contest.others
	why Why
}

// supplies are our pool's, then those of the contenders that could go before it. Their
// free machines are such that may come for our own ones: jobs wait for these.
func (c *contest) supplies() (list []demand.Supply, whys []because) {
	own := demand.Supply{Pool: c.pool, Priority: c.priority, Launchable: 1}
	if c.waits {
		own.Launchable, own.Free = 0, anyNumber
	}
	list, whys = append(list, own), append(whys, because{})
	add := func(i int, s demand.Supply, why Why) {
		s.Pool, s.Priority = c.others[i].pool+"/"+string(why), c.others[i].priority
		list, whys = append(list, s), append(whys, because{i, why})
	}
	for i := range c.others {
		o := &c.others[i]
		better := o.priority < c.priority
		if o.free && better {
			add(i, demand.Supply{Launchable: anyNumber, SpillAfter: c.patience(o)}, MachineFree)
		}
		if o.free && !better && !c.waits { // a machine now rather than one that is to come
			add(i, demand.Supply{Free: anyNumber}, MachineFree)
		}
		if better && o.room > 0 && (!c.waits || o.spillAfter > 0 && c.agesKnown()) {
			add(i, demand.Supply{Launchable: o.room, SpillAfter: o.spillAfter}, MayGrow)
		}
	}
	return list, whys
}

// patience is for how long jobs wait for a contender with a free machine. One that had
// it long before the jobs were counted, and didn't get those that were old then, is not
// waited for by them.
func (c *contest) patience(o *contender) time.Duration {
	if c.queue == nil || c.now.Add(FreePatience-o.freeFor).After(c.queue.At) {
		return forever
	}
	return FreePatience
}

// agesKnown reports whether it is known how long the jobs have waited. Otherwise they wait
// for no machine that is still to come: nobody would know when that has to end.
func (c *contest) agesKnown() bool {
	return c.queue != nil && (c.queue.Jobs == 0 || c.queue.Waited != nil)
}

// class is the jobs that wait as demand.Attribute knows them. If none is known it is the
// next one, which has not waited yet.
func (c *contest) class() demand.Class {
	class := demand.Class{Pending: 1, Waited: []demand.Waited{}}
	if c.agesKnown() && c.queue.Jobs > 0 {
		class.Pending, class.Waited = min(c.queue.Jobs, anyNumber), c.queue.Waited
	}
	return class
}

// anyJob is a demand.Matcher: all of a contest take the same jobs.
func anyJob(*spillway.Capability, *spillway.Requirement) (bool, string) { return true, "" }
