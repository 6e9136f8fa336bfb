package sim

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// streamTimeout is how long a machine waits for a replica that stands still
// before it looks for another.
const streamTimeout = 30 * time.Second

// runner is the runner process of one instance.
type runner struct {
	world    *world
	id       spillway.MachineID
	pool     string
	instance string
	capacity int
	jobs     map[spillway.JobID]*execution
	results  []outcome // not yet taken by a replica
	replica  *replica  // nil: no stream
	draining bool
	dead     bool
	aloneFor int // grows with each time that it has lost its router
	uses     int
	bornAt   time.Time

	// Where GitLab hands the jobs out.
	asking bool      // it will ask for one soon
	quit   bool      // it was told to finish what it has
	usedAt time.Time // when a job last ended on it

	notice    pluginsdk.Interruption // of its own instance, by its own word
	noticedAt time.Time
	complaint string
}

// execution is one attempt that runs.
type execution struct {
	job     spillway.Job
	ref     router.JobRef
	stopped bool // ended before its time: canceled, superseded or lost
	ending  bool // it was told to end
}

// outcome is how an attempt ended.
type outcome struct {
	ref    router.JobRef
	result spillway.JobResult
}

func machineID(pool, instance string) spillway.MachineID {
	return spillway.MachineID(pool + "/" + instance)
}

// busy reports whether an instance has jobs.
func (w *world) busy(pool, instance string) bool {
	r := w.runners[machineID(pool, instance)]
	return r != nil && len(r.jobs) > 0
}

// cloudChanged is told what happens to instances. It may be called in the middle
// of a tick, so that what follows is planned for the same moment.
func (w *world) cloudChanged(s *site, ch Change) {
	switch ch.Kind {
	case Launched:
		w.rec.instanceLaunched(s.pool, ch.ID, ch.At)
		w.rules.instanceLaunched(s.pool, ch.ID)
	case Ready:
		if ch.Registers {
			w.after(0, func() { w.boot(s.pool, ch.ID) })
		}
	case Held:
		w.rec.pools[s.pool].held[ch.ID] = ch.At
		if r := w.runners[machineID(s.pool, ch.ID)]; r != nil && w.gitlab != nil && w.sight(s.pool).drain == evidence.DrainHook {
			r.stopped()
		}
		w.rules.instanceHeld(s.pool, ch)
	case Ended:
		w.rules.instanceEnded(s.pool, ch)
		w.rec.instanceEnded(s.pool, ch)
		delete(w.scrapes[s.pool], ch.ID)
		if r := w.runners[machineID(s.pool, ch.ID)]; r != nil {
			r.dead = true
			w.after(0, r.die)
		}
	}
}

// boot starts the runner of an instance.
func (w *world) boot(pool, instance string) {
	if w.rec.instanceGone(pool, instance) {
		return
	}
	p, _ := w.config.Pool(pool)
	r := &runner{
		world: w, id: machineID(pool, instance), pool: pool, instance: instance,
		capacity: max(1, p.CapacityPerInstance), jobs: make(map[spillway.JobID]*execution), bornAt: w.now,
	}
	w.runners[r.id] = r
	w.rec.pools[pool].registered++
	if w.gitlab != nil {
		r.sighted()
		w.gitlab.offer()
		return
	}
	r.connect()
	w.after(w.heartbeatEvery(), r.heartbeat)
}

func (w *world) heartbeatEvery() time.Duration {
	return cmp.Or(w.config.Timeouts.HeartbeatEvery, spillway.DefaultHeartbeatEvery)
}

// connect looks for a replica: the one that the machine's name falls on, of those
// that work.
func (r *runner) connect() {
	if r.dead || r.replica != nil {
		return
	}
	defer func() {
		if r.replica != nil {
			r.aloneFor++ // it is heard
		}
	}()
	var working []*replica
	for _, rep := range r.world.replicas {
		if rep.working() {
			working = append(working, rep)
		}
	}
	if len(working) == 0 {
		r.world.after(retryEvery, r.connect)
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.id)) // a hash never fails
	r.replica = working[int(h.Sum32())%len(working)]
	r.replica.connected(r)
	for _, o := range r.takeResults() {
		r.report(o)
	}
}

func (r *runner) takeResults() []outcome {
	results := r.results
	r.results = nil
	return results
}

// disconnect is the stream breaking under a machine that lives on.
func (r *runner) disconnect() {
	if r.replica == nil {
		return
	}
	r.replica = nil
	r.world.after(retryEvery, r.connect)
	r.alone(func() bool { return r.replica == nil })
}

// alone has a machine end the jobs of other cells if it has had no router for long enough:
// their cell can't say that they have ended of which nobody hears.
func (r *runner) alone(still func() bool) {
	if r.world.config.Cells == nil {
		return
	}
	r.aloneFor++
	spell := r.aloneFor
	r.world.after(r.world.timing().AloneFor(), func() {
		if r.aloneFor == spell && still() {
			r.endAllHandedOver(cells.AloneReason)
		}
	})
}

// endAllHandedOver ends every job of another cell.
func (r *runner) endAllHandedOver(reason string) {
	for _, id := range sortedKeys(r.jobs) {
		if handedOver(&r.jobs[id].job) {
			r.end(id, reason)
		}
	}
}

// end ends an attempt as it is told to, and reports how it has ended.
func (r *runner) end(id spillway.JobID, reason string) {
	x := r.jobs[id]
	if x == nil || x.ending {
		return
	}
	x.ending = true
	r.world.after(stopTakes, func() {
		if r.dead || x.stopped || r.jobs[id] != x {
			return
		}
		x.stopped = true
		r.leave(id)
		r.report(outcome{ref: x.ref, result: spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled, Detail: reason}})
	})
}

// heartbeat says what runs, every so often.
func (r *runner) heartbeat() {
	if r.dead {
		return
	}
	r.beat()
	r.world.after(r.world.heartbeatEvery(), r.heartbeat)
}

func (r *runner) beat() {
	if !r.dead && r.replica != nil && r.replica.working() {
		r.replica.heartbeat(r)
	}
}

// running are the attempts that the machine has, by job.
func (r *runner) running() []router.JobRef {
	if r.world.gitlab != nil {
		return nil // a sidecar counts them, and knows none by name
	}
	refs := make([]router.JobRef, 0, len(r.jobs))
	for _, id := range slices.Sorted(maps.Keys(r.jobs)) {
		refs = append(refs, r.jobs[id].ref)
	}
	return refs
}

// run starts an attempt. A machine that has just died does not answer.
func (r *runner) run(job spillway.Job, ref router.JobRef) (accepted bool) {
	if r.dead {
		return false
	}
	x := &execution{job: job, ref: ref}
	r.world.rules.begins(r, x)
	r.jobs[job.ID] = x
	r.world.running[job.ID] = r
	r.uses++
	r.world.after(r.world.jobs[job.ID].Duration, func() { r.finish(x) })
	return true
}

// finish is an attempt that has run for its time.
func (r *runner) finish(x *execution) {
	if r.dead || x.stopped {
		return
	}
	r.leave(x.job.ID)
	r.report(outcome{ref: x.ref, result: spillway.JobResult{State: spillway.Completed}})
}

// leave takes an attempt off the machine.
func (r *runner) leave(id spillway.JobID) {
	delete(r.jobs, id)
	if r.world.running[id] == r {
		delete(r.world.running, id)
	}
}

// report hands a result on; without a replica it is kept.
func (r *runner) report(o outcome) {
	if r.world.gitlab != nil {
		r.world.gitlab.finished(r, o)
		return
	}
	if r.replica == nil || !r.replica.working() {
		r.results = append(r.results, o)
		return
	}
	r.replica.finished(r, o)
}

// stop ends an attempt before its time, and says so.
func (r *runner) stop(id spillway.JobID) {
	x := r.jobs[id]
	if x == nil {
		return
	}
	x.stopped = true
	r.leave(id)
	r.world.after(0, r.beat)
}

// drain is an order over the stream; the machine acknowledges it at once, and a
// heartbeat comes right behind that, as the agent does it.
func (r *runner) drain(on bool) (acknowledged bool) {
	if r.dead {
		return false
	}
	r.draining = on
	if !on && r.world.gitlab != nil {
		r.world.after(0, r.world.gitlab.offer)
	}
	r.world.after(0, r.beat)
	return true
}

// die is the end of the instance: its jobs are lost and its stream breaks.
func (r *runner) die() {
	for id, x := range r.jobs {
		x.stopped = true
		r.leave(id)
		r.world.rec.orphaned(id)
		if r.world.gitlab != nil {
			r.world.gitlab.lost(id)
		}
	}
	delete(r.world.runners, r.id)
	r.world.rec.pools[r.pool].registered--
	if rep := r.replica; rep != nil {
		r.replica = nil
		rep.disconnected(r.id)
	}
}
