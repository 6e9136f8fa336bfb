package session

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// ErrEnded says that the dispatcher has ended, and answers nothing any more.
var ErrEnded = errors.New("session: the dispatcher has ended")

// agesCounter is a Queue that can say how long its jobs have waited.
type agesCounter interface {
	// CountAges has Counts say so for each of these times from now on.
	CountAges(ages []time.Duration)
}

// remotePlaces is the reading of what other replicas have.
type remotePlaces struct {
	reading bool
	read    time.Time
	live    map[string]int // machines by pool
}

// SetRoom tells what is known of the pools' room to grow, by pool.
func (d *Dispatcher) SetRoom(room map[string]router.Room) {
	d.put(context.Background(), event{kind: called, call: func(time.Time) { d.engine.SetRoom(room) }})
}

// ExplainChoice says how a place for a job would be chosen here and now.
func (d *Dispatcher) ExplainChoice(ctx context.Context, job *spillway.Job) (router.Choice, error) {
	answer := make(chan router.Choice, 1)
	asked := d.put(ctx, event{kind: called, call: func(now time.Time) { answer <- d.engine.ExplainChoice(now, job) }})
	if !asked {
		return router.Choice{}, endOf(ctx)
	}
	select {
	case choice := <-answer:
		return choice, nil
	case <-ctx.Done():
		return router.Choice{}, ctx.Err()
	case <-d.done:
		return router.Choice{}, ErrEnded
	}
}

// endOf is why ctx ended; ErrEnded if it didn't.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrEnded
}

// countAges has the queue counted for the times that the engine needs.
func (d *Dispatcher) countAges() {
	if q, ok := d.store.(agesCounter); ok {
		q.CountAges(d.engine.Ages())
	}
}

// followRemote reads what other replicas have free, while jobs depend on it: often; and
// what machines they have, seldom: that is a look at every record there is.
func (d *Dispatcher) followRemote(now time.Time) time.Duration {
	r := &d.remote
	wanted := d.engine.RemoteWanted(now)
	rest := r.read.Add(router.RemoteFresh).Sub(now)
	if !wanted { // what they say of their machines is no newer than the last heartbeats
		rest = r.read.Add(d.opt.HeartbeatEvery).Sub(now)
	}
	if r.reading || rest > 0 {
		return max(rest, time.Millisecond)
	}
	r.reading, r.read = true, now
	d.beside(func(ctx context.Context) func(time.Time) {
		all, err := d.store.Machines(ctx)
		return func(now time.Time) {
			r.reading = false
			if err != nil {
				d.trouble("read machines", err)
				return // patience ends without it
			}
			d.takeRemote(now, all)
		}
	})
	return sweepEvery
}

func (d *Dispatcher) takeRemote(now time.Time, all []router.Machine) {
	var places []router.RemotePlaces
	d.remote.live = make(map[string]int)
	for i := range all {
		m := &all[i]
		if m.Replica == d.opt.Replica || !m.Connected || now.Sub(m.HeardAt) > d.opt.SilentAfter {
			continue
		}
		d.remote.live[m.Pool]++
		if free := d.freePlaces(m); free > 0 {
			places = append(places, router.RemotePlaces{Pool: m.Pool, Free: free, At: m.HeardAt})
		}
	}
	peers := len(d.remote.live) > 0
	d.engine.SetPeers(peers)
	if peers {
		d.engine.SetRemote(now, places)
	}
}

// freePlaces is what a machine of another replica may be given [jobs].
func (d *Dispatcher) freePlaces(m *router.Machine) int {
	if !m.TakesJobs() {
		return 0
	}
	free := m.Capacity - m.InUse()
	if limit := d.pools[m.Pool].maxUses; limit > 0 {
		free = min(free, limit-m.Uses)
	}
	return max(0, free)
}

// alike reports whether a job that was claimed for one pool may be on a machine of
// another one: of several pools of one priority the best machine gets it.
func (d *Dispatcher) alike(claimedFor, on string, r *spillway.Requirement) bool {
	a, known := d.pools[claimedFor]
	b, knownToo := d.pools[on]
	return known && knownToo && a.priority == b.priority && router.Match(&b.capability, r).OK()
}
