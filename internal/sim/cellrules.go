package sim

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// wipeGrace is how long after a cell's store has lost everything a job may run twice: the
// claims on what is in other cells are lost with it.
const wipeGrace = 10 * time.Minute

// stay is an attempt on a machine, in whatever cell.
type stay struct {
	world  *world
	runner *runner
	x      *execution
}

// over reports whether the attempt runs no more.
func (s *stay) over() bool { return s.runner.dead || s.runner.jobs[s.x.job.ID] != s.x }

// home is the job that an attempt is at, and the cell whose job it is.
func (w *world) home(id spillway.JobID) (origin *world, job spillway.JobID) {
	if from, ok := w.away[id]; ok {
		return from.origin, from.ref.ID
	}
	return w, id
}

// begins checks I14: no job runs in two cells, nor at two attempts in another one.
func (c *rules) begins(r *runner, x *execution) {
	w := c.world
	if len(w.whole.all) == 1 {
		return
	}
	origin, id := w.home(x.job.ID)
	known := origin.stays[id]
	if known != nil && !known.over() && (known.world != w || known.x.job.ID != x.job.ID) {
		wiped := origin.faults.wiped
		if wiped.IsZero() || w.now.Sub(wiped) > wipeGrace {
			c.broken("I14", "job %s begins in cell %s on %s while it runs in cell %s on %s", id, w.cell(), r.id, known.world.cell(), known.runner.id)
		}
	}
	origin.stays[id] = &stay{w, r, x}
}

// countedAnew reports whether a job is at an attempt of another cell's whose store has lost
// everything since that was handed over: it counts from one again, so that an attempt of
// the same name may come.
func (c *rules) countedAnew(j *jobStory) bool {
	origin, _ := c.world.home(j.id)
	return origin != c.world && origin.faults.wiped.After(j.at)
}

// handsOver checks I11 and I14 of a job that goes to another cell: it has waited for long
// enough, nobody here has a free place for it, and nobody runs it.
func (c *rules) handsOver(m *cellMachine, a *router.Assignment, free map[string]bool) {
	w := c.world
	if waited := w.now.Sub(a.Job.SubmittedAt); waited < m.pool.LeastWait {
		c.broken("I11", "job %s is handed over to %s after it has waited for %s", a.Ref.ID, m.pool.Name, waited)
	}
	for _, p := range w.pools() {
		if free[p.Name] && router.Match(&p.Capability, &a.Job.Requirement).OK() {
			c.broken("I11", "job %s is handed over to %s while %s has a free place", a.Ref.ID, m.pool.Name, p.Name)
		}
	}
	if r := w.running[a.Ref.ID]; r != nil && !r.dead && r.replica != nil {
		c.broken("I14", "job %s is handed over to %s while %s runs it", a.Ref.ID, m.pool.Name, r.id)
	}
}
