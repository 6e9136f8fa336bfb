package sim

import (
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// sighted begins what shows a runner to the replicas in a story in which GitLab hands
// the jobs out: its sidecar, its metrics, and its asking through us.
func (r *runner) sighted() {
	s := r.world.sight(r.pool)
	if s.sidecar {
		r.connect()
		r.world.after(r.world.heartbeatEvery(), r.heartbeat)
	}
	if s.scraped {
		r.world.after(r.world.gitlab.phase(s.every), r.scrape)
	}
	if s.mode != evidence.Observe {
		r.contact()
	}
}

// scrape reads the runner's metrics now and then. Its system_id shows with its first job.
func (r *runner) scrape() {
	w := r.world
	if r.dead {
		return
	}
	if ended := r.quit && len(r.jobs) == 0; w.anyReplica() != nil && !ended { // a runner that is told to stop ends with its last job
		s := w.scrapes[r.pool][r.instance]
		s.At, s.Jobs = w.now, len(r.jobs)
		if s.FirstAt.IsZero() {
			s.FirstAt = w.now
		}
		if s.Jobs > 0 {
			s.Systems, s.LastBusyAt = []string{string(r.id)}, w.now
		}
		if w.scrapes[r.pool] == nil {
			w.scrapes[r.pool] = make(map[string]evidence.Scrape)
		}
		w.scrapes[r.pool][r.instance] = s
	}
	w.after(w.sight(r.pool).every, r.scrape)
}

// Scrapes implements watch.Metrics.
func (w *world) Scrapes(pool string) map[string]evidence.Scrape { return w.scrapes[pool] }

// contact is a runner that talks to us in GitLab's place. As a front proxy we hear it as
// long as it lives; else only when it has a place to ask for.
func (r *runner) contact() {
	w := r.world
	if r.dead {
		return
	}
	asks := len(r.jobs) < r.capacity && !r.quit
	if w.anyReplica() != nil && (asks || w.sight(r.pool).mode == evidence.RouteFront) {
		_ = w.store.PutMachine(router.Machine{ // it comes again
			ID: r.id, InstanceID: r.instance, Pool: r.pool, Capacity: r.capacity, HeardAt: w.now,
			RegisteredAt: r.bornAt, LastUsedAt: r.bornAt, Connected: true,
		})
	}
	w.after(w.heartbeatEvery(), r.contact)
}
