package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/store"
)

// faults is what is wrong at the moment, and until when.
type faults struct {
	signal  fault[scenario.SignalFault]
	stale   demand.View // what a stale signal goes on to say
	plugins map[string]fault[scenario.PluginFault]
	store   time.Time // until when the store is broken
	wiped   time.Time // when the store was last wiped
	last    time.Time // when the last fault of all is over; zero = there was none
}

type fault[K ~string] struct {
	kind  K
	until time.Time
}

func (f *fault[K]) at(now time.Time) K {
	if now.Before(f.until) {
		return f.kind
	}
	return ""
}

func (f *faults) init() { f.plugins = make(map[string]fault[scenario.PluginFault]) }

// lasts notes that something is wrong until then.
func (f *faults) lasts(until time.Time) { f.last = later(f.last, until) }

// active reports whether anything is wrong now.
func (f *faults) active(now time.Time) bool { return now.Before(f.last) }

// settled reports whether everything has been in order for d.
func (f *faults) settled(now time.Time, d time.Duration) bool {
	return f.last.IsZero() || !now.Before(f.last.Add(d))
}

func (f *faults) plugin(pool string, now time.Time) scenario.PluginFault {
	p := f.plugins[pool]
	return p.at(now)
}

// happen carries out an event of the story.
func (w *world) happen(ev *scenario.Event) {
	w.faults.lasts(w.now)
	switch a := ev.Action.(type) {
	case scenario.Cancel:
		for _, id := range a.Jobs {
			w.cancel(id)
		}
	case scenario.Duplicate:
		for range a.Times {
			for _, id := range a.Jobs {
				w.duplicate(id)
			}
		}
	case scenario.SetDesired:
		w.rules.pool(a.Pool).foreignAt = w.now
		if before := w.site(a.Pool).cloud.SetDesiredExternally(w.now, a.To); before < a.To {
			w.rules.pool(a.Pool).raisedAt = w.now
		}
	case scenario.KillInstance:
		w.site(a.Pool).cloud.Kill(w.now, a.Nth)
	case scenario.Interrupt:
		w.interrupt(a)
	case scenario.Unhealthy:
		w.breakInstance(a)
	case scenario.Keep:
		w.site(a.Pool).cloud.Keep(w.now, a.Nth)
	case scenario.Signal:
		w.faults.stale, _ = w.view() // what was known last; nothing, if nothing was
		w.faults.signal = fault[scenario.SignalFault]{a.Fault, w.now.Add(a.For)}
		w.faults.lasts(w.now.Add(a.For))
	case scenario.Plugin:
		w.faults.plugins[a.Pool] = fault[scenario.PluginFault]{a.Fault, w.now.Add(a.For)}
		w.faults.lasts(w.now.Add(a.For))
	case scenario.Store:
		w.breakStore(a)
	case scenario.Replica:
		w.breakReplica(a)
	case scenario.Reload:
		w.reload(a)
	case scenario.Runner:
		w.gitlab.setRunner(a)
	case scenario.Control:
		w.control(a)
	case scenario.Link:
		w.breakLink(a)
	case scenario.Offers:
		w.breakOffers(a)
	}
}

// cancel takes a job back, again and again until the store has noted it.
func (w *world) cancel(id spillway.JobID) {
	if w.gitlab != nil {
		w.gitlab.cancel(id)
		return
	}
	was, err := w.store.Cancel(id)
	if err != nil {
		if !w.rec.ended(id) && w.rec.known(id) {
			w.after(retryEvery, func() { w.cancel(id) })
		}
		return
	}
	ref := router.JobRef{ID: id, Class: was.Job.Requirement.Class(), Attempt: was.Attempt}
	for _, r := range w.replicas {
		if r.working() && r.engine.Drop(w.now, ref) {
			if m := w.runners[was.Machine]; m != nil {
				m.stop(id)
			}
			r.touched(was.Machine)
		}
	}
	w.queueChanged()
}

// duplicate is the same submission once more.
func (w *world) duplicate(id spillway.JobID) {
	job := w.jobs[id].Job
	job.SubmittedAt = w.now
	if outcome, err := w.queue().Push(job); err == nil && outcome == store.Accepted {
		w.queueChanged()
	}
}

func (w *world) breakStore(a scenario.Store) {
	until := w.now.Add(a.For)
	switch a.Fault {
	case scenario.StoreWiped:
		w.store.Wipe()
		w.rules.wiped()
		if w.gitlab != nil {
			w.gitlab.board = board{} // until it is listed again
		}
		for _, s := range w.clouds { // when more was asked for is forgotten with the rest
			w.rules.pool(s.pool).raisedAt = w.now.Add(scaler.LeaseTTL)
		}
		w.faults.wiped = w.now
		w.faults.lasts(w.now.Add(recheckAfter))
		w.after(recheckAfter, w.recheck)
		return
	case scenario.StoreDown:
		w.store.Fault = memstore.Down
	case scenario.StoreReadonly:
		w.store.Fault = memstore.Readonly
	}
	w.faults.store = until
	w.faults.lasts(until)
	w.after(a.For, func() {
		if !w.now.Before(w.faults.store) {
			w.store.Fault = memstore.Healthy
			w.storeBack()
		}
	})
}

// storeBack is what each replica does when the store answers again: its claims
// come first, before anybody takes them for given up.
func (w *world) storeBack() {
	if w.gitlab != nil {
		w.gitlab.offer()
	}
	for _, r := range w.replicas {
		if r.working() {
			r.renewClaims()
			r.leases.Renew(w.ctx, w.now)
			r.flush()
			r.countQueue()
		}
	}
}

func (w *world) breakReplica(a scenario.Replica) {
	r := w.replicas[a.N]
	w.faults.lasts(w.now.Add(max(a.RestartAfter, streamTimeout)))
	if a.Fault == scenario.ReplicaPause {
		w.pause(r, a.RestartAfter)
		return
	}
	if r.dead {
		return
	}
	r.kill()
	if a.RestartAfter > 0 {
		w.after(a.RestartAfter, r.start)
	}
}

// pause stops a replica in the middle of everything. Machines wait for it for a
// while, then look for another.
func (w *world) pause(r *replica, d time.Duration) {
	if !r.working() {
		return
	}
	r.paused = true
	life := r.life
	w.after(streamPing, func() { // its machines notice, and are as good as alone
		if r.life != life || !r.paused {
			return
		}
		for _, id := range sortedKeys(r.streams) {
			m := r.streams[id]
			m.alone(func() bool { return m.replica == r && r.life == life && r.paused })
		}
	})
	if d > streamTimeout {
		w.after(streamTimeout, func() {
			if r.life == life && r.paused && w.anyReplica() != nil {
				r.dropStreams()
			}
		})
	}
	w.after(d, func() {
		if r.life == life && r.paused {
			r.resume()
		}
	})
}

// resume goes on where the replica stood, and finds out what it has missed.
func (r *replica) resume() {
	r.paused, r.poked = false, false
	r.alarm = time.Time{}
	r.renewClaims()            // before anybody takes them for given up
	r.setPools(r.world.config) // a reload may have been missed
	for _, m := range r.engine.Machines() {
		switch stream := r.streams[m.ID]; {
		case stream != nil && !stream.dead:
			r.heartbeat(stream)
			for _, o := range stream.takeResults() {
				stream.report(o)
			}
		case r.cellMachine(m.ID) == nil: // one of another cell is in this process, and stood still with it
			r.disconnected(m.ID)
		}
	}
	r.settle()
}

// reload gives every replica another configuration.
func (w *world) reload(a scenario.Reload) {
	w.config, w.policy, w.reloadedAt = a.Config, a.Config.AdmissionPolicy(), w.now
	if w.err = w.addSites(); w.err != nil {
		return
	}
	for _, r := range w.replicas {
		if r.working() {
			r.setPools(a.Config)
			r.last = nil
			r.settle()
		}
	}
}

// collected is the view of the waiting jobs, with what is wrong with it.
type collected struct{ world *world }

// view reads the queue as it is.
func (w *world) view() (demand.View, error) {
	if w.gitlab != nil {
		return w.gitlab.demand()
	}
	counts, err := w.counts()
	if err != nil {
		return demand.View{}, fmt.Errorf("counting the queue: %w", err)
	}
	return collect.View(counts, w.now), nil
}

// Demand implements scaler.Demand.
func (c collected) Demand(context.Context) (demand.View, error) {
	w := c.world
	view, err := w.view()
	if err != nil || w.gitlab != nil { // GitLab's is as wrong already as it is
		return view, err
	}
	switch w.faults.signal.at(w.now) {
	case scenario.SignalError:
		return demand.View{}, fmt.Errorf("the source of the jobs answers with an error")
	case scenario.SignalTimeout:
		return demand.View{}, fmt.Errorf("the source of the jobs: %w", context.DeadlineExceeded)
	case scenario.SignalEmpty:
		view.Classes = nil
	case scenario.SignalStale:
		return w.faults.stale, nil
	case scenario.SignalPartial:
		view = halved(view)
	}
	return view, nil
}
