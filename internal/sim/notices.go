package sim

import (
	"time"

	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// interrupt is a notice about an instance: the replicas' pools are told at once, or
// its machine tells the replica that it has a stream to.
func (w *world) interrupt(a scenario.Interrupt) {
	id, ok := w.rec.pools[a.Pool].nth(a.Nth)
	if !ok {
		return
	}
	told := pluginsdk.Interruption{InstanceID: id}
	if a.Kind != pluginsdk.Rebalance {
		if told, ok = w.site(a.Pool).cloud.Interrupt(w.now, a.Nth, a.Notice); !ok {
			return
		}
	}
	told.Group, told.Kind = a.Pool, a.Kind
	w.rec.pools[a.Pool].leaves[id] = true
	if a.Via == scenario.ViaMachine {
		if r := w.runners[machineID(a.Pool, id)]; r != nil {
			r.warned(told)
		}
		return
	}
	for _, r := range w.replicas {
		if !r.working() {
			continue
		}
		for _, p := range r.pools {
			if p.Name() == a.Pool {
				p.Interrupted(told)
				r.last = nil // the notice concerns the pool whatever the picture says
				r.poke()
			}
		}
	}
}

// breakInstance is an instance that somebody finds broken.
func (w *world) breakInstance(a scenario.Unhealthy) {
	if a.Via == scenario.ViaProvider {
		if id, ok := w.site(a.Pool).cloud.Break(w.now, a.Nth); ok {
			w.rec.pools[a.Pool].leaves[id] = true
		}
		return
	}
	if id, ok := w.rec.pools[a.Pool].nth(a.Nth); ok {
		if r := w.runners[machineID(a.Pool, id)]; r != nil {
			r.complain("its own check failed")
		}
	}
}

// nth is the nth instance that was ever launched, if it exists.
func (p *poolStory) nth(n int) (id string, ok bool) {
	if n < 0 || n >= len(p.ever) {
		return "", false
	}
	id = p.ever[n]
	_, ok = p.born[id]
	return id, ok
}

// warned is a machine that has read a notice about its own instance. It tells it
// now, and again with each new stream.
func (r *runner) warned(n pluginsdk.Interruption) {
	r.notice, r.noticedAt = n, r.world.now
	if r.replica != nil && r.replica.working() {
		r.replica.engine.Interrupt(r.world.now, r.id, string(n.Kind), n.Deadline)
		r.replica.touched(r.id)
	}
}

// complain is a machine that finds itself broken.
func (r *runner) complain(why string) {
	r.complaint = why
	if r.replica != nil && r.replica.working() {
		r.replica.engine.SetUnhealthy(r.world.now, r.id, why)
		r.replica.touched(r.id)
	}
}

// doomed is the jobs on instances that are taken with whatever runs on them.
func (w *world) doomed(s *site) (jobs int) {
	for _, in := range s.cloud.Existing() {
		if r := w.runners[machineID(s.pool, in.ID)]; in.Doomed && r != nil {
			jobs += len(r.jobs)
		}
	}
	return jobs
}

// heldFor is for how long a terminating hook has held an instance.
func (p *poolStory) heldFor(id string, now time.Time) (d time.Duration, held bool) {
	since, held := p.held[id]
	return now.Sub(since), held
}
