package jobrouter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
)

// HoldInfo says why a pool's machines are given no job: GitLab isn't asked for them.
type HoldInfo struct {
	Pool   string
	Behind string // the pool that goes first
	Why    Why
}

// rivalry is what a desk knows of the pools of other tokens, besides what its own lines
// say: who waits at other replicas, which pools can grow, and what waits in GitLab.
type rivalry struct {
	mu struct {
		sync.Mutex
		direct crowd                     // machines that ask GitLab themselves, through the front proxy here
		others map[string]map[string]far // by replica, by pool
		room   map[string]router.Room    // by pool
		queues map[string]Queue          // by pool
		spent  map[string]int            // jobs that were asked for since the queue was counted, by pool
		// changed is closed when something has changed that a turn depends on.
		changed chan struct{}
	}
}

// far is what another replica says of a pool.
type far struct {
	since time.Time // since when one of its machines waits
	until time.Time // when that is no longer believed
}

func newRivalry() *rivalry {
	r := &rivalry{}
	r.mu.others, r.mu.spent, r.mu.changed = map[string]map[string]far{}, map[string]int{}, make(chan struct{})
	return r
}

// wake wakes whoever waits for a turn.
func (r *rivalry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// change is closed when a turn may be another.
func (r *rivalry) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.changed
}

// asksHere returns since when a machine of a pool asks GitLab itself through this
// replica.
func (r *rivalry) asksHere(pool string, now time.Time) (since time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.direct.since(pool, now)
}

// fill adds to a contest what is known of the queue, the pools' room and other replicas.
func (r *rivalry) fill(c *contest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q, known := r.mu.queues[c.pool]; known && c.now.Sub(q.At) <= queueFresh {
		c.queue = &q
	}
	for i := range c.others {
		o := &c.others[i]
		o.room = roomAt(r.mu.room[o.pool], c.now)
		if since, free := r.mu.direct.since(o.pool, c.now); free {
			o.waitsSince(since, c.now)
		}
		for _, pools := range r.mu.others {
			if f, told := pools[o.pool]; told && c.now.Before(f.until) {
				o.waitsSince(f.since, c.now)
			}
		}
	}
}

// waitsSince notes that one of the contender's machines waits.
func (o *contender) waitsSince(since, now time.Time) {
	if o.apart {
		o.free, o.freeFor = true, max(o.freeFor, now.Sub(since))
	}
}

// roomAt is how many more places a pool can come to have, as the router sees it.
func roomAt(r router.Room, now time.Time) int {
	if r.Down || now.Before(r.CooledUntil) || now.Sub(r.At) > router.RoomFresh {
		return 0
	}
	return r.Jobs
}

// left is how many of a turn's jobs were not asked for yet since they were counted.
func (r *rivalry) left(pool string, t turn) int {
	if t.jobs >= anyNumber {
		return t.jobs
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, t.jobs-r.mu.spent[pool])
}

// took notes that GitLab has given out a job for a pool.
func (r *rivalry) took(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.spent[pool]++
}

// SetRoom tells what is known of the pools' room to grow, by pool.
func (d *Desk) SetRoom(room map[string]router.Room) {
	d.rivals.setRoom(room)
	d.wakeRivals()
}

func (r *rivalry) setRoom(room map[string]router.Room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.room = room
}

// SetQueues tells which jobs wait in GitLab for each pool whose runners have rivals with
// another token. Of a pool that is left out that isn't known.
func (d *Desk) SetQueues(queues map[string]Queue) {
	d.rivals.setQueues(queues)
	d.wakeRivals()
}

func (r *rivalry) setQueues(queues map[string]Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pool := range r.mu.spent {
		if q, known := queues[pool]; !known || q.At.After(r.mu.queues[pool].At) {
			delete(r.mu.spent, pool)
		}
	}
	r.mu.queues = queues
}

// queueFresh is how long it is believed which jobs wait: as long as a scaler that has gone
// may have found no time to say it.
const queueFresh = router.RoomFresh

// turn says whether GitLab may be asked with a token in the name of a pool now.
func (d *Desk) turn(hash, pool string, waits bool, now time.Time) turn {
	c, contested := d.contest(hash, pool, waits, now)
	if !contested {
		return turn{jobs: anyNumber}
	}
	t := c.turn()
	t.jobs = d.rivals.left(pool, t)
	return t
}

// contest gathers what is known. contested is false where no other pool takes the same
// jobs, as is usual. With one token a job goes to the best machine that waits anyway: of
// such pools it only matters which can grow.
func (d *Desk) contest(hash, pool string, waits bool, now time.Time) (c contest, contested bool) {
	rivals := d.opt.Tokens.Rivals(pool)
	if len(rivals) == 0 {
		return contest{}, false
	}
	c = contest{now: now, pool: pool, priority: d.priorityOf(hash, pool), waits: waits, others: make([]contender, len(rivals))}
	for i := range rivals {
		p := &rivals[i].Pool
		o := contender{pool: p.Name, priority: p.Priority, spillAfter: p.SpillAfter, apart: rivals[i].Token != hash}
		if since, free := d.waitsHere(rivals[i], now); free {
			o.waitsSince(since, now)
		}
		c.others[i] = o
	}
	d.rivals.fill(&c)
	return c, true
}

// priorityOf is that of one of a token's pools as it is now: a machine's question may be
// older than its last change.
func (d *Desk) priorityOf(hash, pool string) int {
	pools, _ := d.opt.Tokens.Pools(hash)
	for i := range pools {
		if pools[i].Name == pool {
			return pools[i].Priority
		}
	}
	return 0
}

// waitsHere returns since when a machine of a pool waits for whom we ask GitLab. One
// for whom it can't be asked now waits in vain, and nobody waits for it.
func (d *Desk) waitsHere(r route.Rival, now time.Time) (since time.Time, ok bool) {
	d.mu.Lock()
	l := d.mu.lines[r.Token]
	d.mu.Unlock()
	if l == nil || d.draining.Load() {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.servesLocked(now) {
		return time.Time{}, false
	}
	return l.mu.crowd.since(r.Pool.Name, now)
}

// servesLocked reports whether GitLab is asked with the token from here, and answers.
func (l *line) servesLocked(now time.Time) bool {
	return l.mu.role.ours(now) && l.mu.pace.ill == 0
}

// comesLater reports whether there are pools that go before this one when they can take
// a job. GitLab must not hold a question for it then, since that can't be taken back.
func (d *Desk) comesLater(hash, pool string) bool {
	priority := d.priorityOf(hash, pool)
	return slices.ContainsFunc(d.opt.Tokens.Rivals(pool), func(r route.Rival) bool {
		return r.Pool.Priority < priority && (r.Token != hash || r.Pool.SpillAfter > 0)
	})
}

// Turn waits until GitLab may be asked in the name of a machine that asks itself, for as
// long as a question is held. held is why it may not; nil: it may. contested: others go
// before it at other times, so that GitLab must not hold the question.
func (d *Desk) Turn(ctx context.Context, who route.Caller) (held *HoldInfo, contested bool) {
	if !d.comesLater(who.Token, who.Pool.Name) {
		return nil, false
	}
	deadline := time.NewTimer(d.opt.LongPoll)
	defer deadline.Stop()
	look := time.NewTicker(sweepEvery) // also for what time alone changes
	defer look.Stop()
	for {
		changed := d.rivals.change()
		t := d.turn(who.Token, who.Pool.Name, true, d.opt.Now())
		if !t.held() {
			d.rivals.took(who.Pool.Name)
			return nil, true
		}
		held = &HoldInfo{Pool: who.Pool.Name, Behind: t.behind, Why: t.why}
		select {
		case <-ctx.Done():
			return held, true
		case <-deadline.C:
			return held, true
		case <-changed:
		case <-look.C:
		}
	}
}

// Asking notes that a machine asks GitLab itself, until done is called: with whether it
// was told that there is no job, after which it asks again soon.
func (d *Desk) Asking(who route.Caller) (done func(noJob bool)) {
	if d.rivals.comes(who, d.opt.Now()) {
		d.crowdChanged()
	}
	return func(noJob bool) {
		if d.rivals.goes(who, noJob, d.opt.Now()) {
			d.crowdChanged()
		}
	}
}

func (r *rivalry) comes(who route.Caller, now time.Time) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.direct.come(who.Pool.Name, who.System, now)
}

func (r *rivalry) goes(who route.Caller, back bool, now time.Time) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.direct.leave(who.Pool.Name, who.System, back, now)
}

// sweep drops what has piled up.
func (r *rivalry) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.direct.sweep(now)
	r.forgetLocked(now)
}
