package router

import (
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

const (
	// RemotePatience is how long a job waits for a free place of a pool of higher
	// priority at another replica. Longer than that replica takes to claim it (not
	// smaller), and no longer than a job may be kept waiting for facts that turn out to
	// be old (not larger).
	RemotePatience = time.Second
	// RemoteFresh is how long facts about other replicas are believed; older ones are
	// asked for again, which is so often a second at most.
	RemoteFresh = 250 * time.Millisecond
	// RoomFresh is how long a pool is believed to have room to grow: a dozen ticks of
	// the scaler. A job isn't kept waiting for a scaler that is gone.
	RoomFresh = time.Minute
	// MaxSpillTimes bounds the different times of spill_after among the pools [times]:
	// the queue is counted for each.
	MaxSpillTimes = 8
)

// RemotePlaces is the free places of a pool's machines at other replicas.
type RemotePlaces struct {
	Pool string
	Free int // jobs
	At   time.Time
}

// Room is how much a pool can grow, and why not more.
type Room struct {
	Jobs        int       // places on instances that come, or could be launched
	CooledUntil time.Time // the provider refused: nothing is launched before; zero = it didn't
	Down        bool      // the provider can't be asked
	At          time.Time
}

// remote is what is known of other replicas.
type remote struct {
	peers  bool           // there are some
	at     time.Time      // when free was true; zero = not known
	free   map[string]int // places by pool
	wanted bool           // the last plan depended on it
}

// SetPeers says whether other replicas have machines. While they have, a job for which
// a pool of higher priority may have a free place there waits until that is known.
func (e *Engine) SetPeers(peers bool) {
	if e.remote.peers != peers {
		e.remote.peers, e.dirty = peers, true
	}
}

// SetRemote replaces what is known of free places at other replicas.
func (e *Engine) SetRemote(now time.Time, places []RemotePlaces) {
	e.advance(now)
	e.remote.at = e.now
	e.remote.free = make(map[string]int, len(places))
	for _, p := range places {
		if p.Free > 0 && e.now.Sub(p.At) <= e.opt.SilentAfter {
			e.remote.free[p.Pool] += p.Free
		}
	}
	e.dirty = true
}

// RemoteWanted reports whether jobs wait for what other replicas have, and what is
// known of that is no longer fresh.
func (e *Engine) RemoteWanted(now time.Time) bool {
	return e.remote.wanted && now.Sub(e.remote.at) >= RemoteFresh
}

// SetRoom replaces what is known of the pools' room to grow, by pool.
func (e *Engine) SetRoom(room map[string]Room) {
	same := func(a, b Room) bool { a.At = b.At; return a == b }
	if !maps.EqualFunc(e.room, room, same) {
		e.dirty = true
	}
	e.room = room
}

// Ages are the times for which the queue is to be counted (ClassCount.Waited), in
// ascending order.
func (e *Engine) Ages() []time.Duration {
	ages := []time.Duration{RemotePatience}
	for _, p := range e.pools {
		for _, d := range []time.Duration{p.SpillAfter, p.LeastWait} {
			if d > 0 {
				ages = append(ages, d)
			}
		}
	}
	slices.Sort(ages)
	ages = slices.Compact(ages)
	return ages[:min(len(ages), MaxSpillTimes+1)]
}

// RipensAt returns when the next job need not wait any longer for a better pool than
// those that have a place; ok is false when none waits so. The queue is counted then.
func (e *Engine) RipensAt() (at time.Time, ok bool) { return e.ripensAt, !e.ripensAt.IsZero() }

// ahead lists what pools that a waiting class prefers to a berth may have for it: free
// places at other replicas, and room to grow. A class waits for these as demand has it
// for any pool.
func (e *Engine) ahead(classes []*class, first []int) (supplies []demand.Supply, spills []time.Duration, jobs int) {
	if !e.remote.peers && !e.spills {
		return nil, nil, 0
	}
	e.plans++
	most := 0 // more places than this are of no use
	for _, c := range classes {
		most += c.available()
	}
	add := func(s demand.Supply) {
		supplies, jobs = append(supplies, s), jobs+s.Launchable
		spills = append(spills, s.SpillAfter)
	}
	for _, c := range classes { // what one of them doesn't wait for, another one may
		last := e.lastBerth(c, first)
		for _, i := range c.takers {
			p := e.pools[i]
			if p.LeastWait > 0 && first[i] < first[i+1] && p.young != e.plans {
				p.young = e.plans
				add(tooYoung(p, most))
			}
			if p.Priority < last && p.ahead != e.plans {
				p.ahead = e.plans
				for _, s := range e.aheadOf(p, most) {
					add(s)
				}
			}
		}
	}
	slices.Sort(spills)
	return supplies, slices.Compact(spills), jobs
}

// lastBerth is the lowest priority of a berth that c could have.
func (e *Engine) lastBerth(c *class, first []int) int {
	last := 0
	for _, i := range c.takers {
		if first[i] < first[i+1] {
			last = max(last, e.pools[i].Priority)
		}
	}
	return last
}

// tooYoung stands for the time that a job waits before a pool may take it: as if a pool
// just before that one could come to have a place for every job.
func tooYoung(p *pool, most int) demand.Supply {
	return demand.Supply{
		Pool: p.Name + "/young", Capability: opaque(p, -1-p.index), Alike: -1 - p.index, Priority: p.Priority - 1,
		Launchable: most, SpillAfter: p.LeastWait,
	}
}

// aheadOf is what one pool may have beside its free places here.
func (e *Engine) aheadOf(p *pool, most int) (supplies []demand.Supply) {
	supply := func(name string, jobs int, patience time.Duration) {
		if jobs > 0 {
			supplies = append(supplies, demand.Supply{
				Pool: p.Name + name, Capability: opaque(p, -1-p.index), Alike: -1 - p.index, Priority: p.Priority, CostPerJob: p.CostPerJob,
				Launchable: min(jobs, most), SpillAfter: patience,
			})
		}
	}
	if e.remote.peers {
		e.remote.wanted = true
		supply("/remote", e.remotePlaces(p, most), RemotePatience)
	}
	if p.SpillAfter > 0 {
		supply("/room", e.roomOf(p), p.SpillAfter)
	}
	return supplies
}

// remotePlaces is what the pool has free at other replicas: anything, until that is known
// by fresh facts.
func (e *Engine) remotePlaces(p *pool, most int) int {
	if e.remote.at.IsZero() || e.now.Sub(e.remote.at) >= RemoteFresh {
		return most
	}
	return e.remote.free[p.Name]
}

// elsewhere is what the pool had free at other replicas when they were looked at last;
// nothing where that is so long ago that it tells nothing.
func (e *Engine) elsewhere(p *pool) int {
	if !e.remote.peers || e.now.Sub(e.remote.at) > e.opt.SilentAfter {
		return 0
	}
	return e.remote.free[p.Name]
}

// freshRoom is what is known of the pool's room to grow, if that can be believed still.
func (e *Engine) freshRoom(p *pool) (r Room, ok bool) {
	r, known := e.room[p.Name]
	return r, known && e.now.Sub(r.At) <= RoomFresh
}

// roomOf is how many more places the pool can come to have.
func (e *Engine) roomOf(p *pool) int {
	r, known := e.freshRoom(p)
	if !known || r.Down || e.now.Before(r.CooledUntil) {
		return 0
	}
	return r.Jobs
}

// noteHeld notes when to look again at classes of which jobs wait for what is ahead.
func (e *Engine) noteHeld(c *class, spills []time.Duration) {
	for _, d := range spills {
		at := c.oldest.Add(d)
		if !at.After(e.now) {
			if c.waitedFor(e.now, d) == c.available() {
				continue
			}
			at = e.now.Add(RemoteFresh) // others of the class: the queue is counted until then
		}
		if e.ripensAt.IsZero() || at.Before(e.ripensAt) {
			e.ripensAt = at
		}
	}
}

// opaque stands for a berth, or for what a pool has ahead, where demand asks.
func opaque(p *pool, number int) spillway.Capability {
	return spillway.Capability{Tags: p.Capability.Tags, RunUntagged: p.Capability.RunUntagged, Projects: []int64{int64(number)}}
}
