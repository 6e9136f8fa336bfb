package evidence

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// routed is the machines of a pool whose jobs we hand out. No order reaches one that
// only others speak of, so that nothing can be proven of that.
func (j *judge) routed() []router.Machine {
	out := make([]router.Machine, 0, len(j.f.Routed))
	asking := make(map[string]int, len(j.f.Routed)) // machines by instance
	for i := range j.f.Routed {
		if m := &j.f.Routed[i].Machine; m.InstanceID != "" && j.fresh(j.heardAt(&j.f.Routed[i])) {
			asking[m.InstanceID]++
		}
	}
	for i := range j.f.Routed {
		m := j.handed(&j.f.Routed[i])
		if asking[m.InstanceID] > 1 {
			m.HeartbeatAt = time.Time{} // the instance is as busy as all of them, and one is looked at
		}
		out = append(out, m)
	}
	known := make(map[string]bool, len(out))
	for i := range out {
		known[out[i].InstanceID] = true
	}
	for _, m := range j.f.Streams {
		if m.InstanceID == "" || (!known[m.InstanceID] && j.streams[m.InstanceID].ID == m.ID) {
			out = append(out, j.notAsking(m))
		}
	}
	for instance, s := range j.f.Scrapes {
		if !known[instance] && j.streams[instance] == nil {
			out = append(out, j.notAsking(router.Machine{
				ID: machineOf(instance), InstanceID: instance, Pool: j.f.Pool, Capacity: j.f.Capacity,
				Busy: s.Jobs, HeardAt: s.At, RegisteredAt: s.FirstAt, LastUsedAt: s.LastBusyAt, Connected: true,
			}))
		}
	}
	return out
}

// notAsking is a machine that is up by another source's word and has not asked for a
// job yet, or not since our books were lost. It is taken for older than any contact, so
// that the machine that asks takes its place.
func (j *judge) notAsking(m router.Machine) router.Machine {
	m.HeartbeatAt, m.DrainAckedAt = time.Time{}, time.Time{}
	if in, listed := j.instance(m.InstanceID); listed && !in.LaunchedAt.IsZero() {
		m.RegisteredAt = in.LaunchedAt
	}
	return m
}

// heardAt is when a machine was last heard: one at its limit does not ask for jobs,
// and is heard as long as it has one, unless its instance is gone from the list.
func (j *judge) heardAt(r *Routed) time.Time {
	_, listed := j.instance(r.Machine.InstanceID)
	if r.Open > 0 && (listed || r.Machine.InstanceID == "" || j.f.ListedAt.IsZero()) {
		return later(r.Machine.HeardAt, r.ReadAt)
	}
	return later(r.Machine.HeardAt, earlier(r.LastUsedAt, r.ReadAt)) // the end of a job is a word too
}

// handed is a machine that asks for jobs through us. That it is ordered to drain is
// the acknowledgement: no job is handed to it from then on.
func (j *judge) handed(r *Routed) router.Machine {
	m := r.Machine
	m.Pool, m.HeardAt, m.Assigned, m.HeartbeatAt = j.f.Pool, j.heardAt(r), r.Open, time.Time{}
	m.Uses = max(m.Uses, r.Uses)
	m.LastUsedAt = later(later(r.LastUsedAt, m.LastUsedAt), m.RegisteredAt)
	j.order(&m, true)
	jobs, at := j.localJobs(m.InstanceID)
	if m.InstanceID != "" && j.fresh(at) {
		m.Busy = jobs
	}
	systems := []string{string(m.ID)}
	if j.f.Mode == RouteFront {
		j.provenByBook(&m, r, systems)
	} else {
		j.provenByBoth(&m, r, systems, at)
	}
	return m
}

// provenByBook: whatever a runner says to GitLab passes through us, so that the book
// has every job since it began. What began before, something else must tell.
func (j *judge) provenByBook(m *router.Machine, r *Routed, systems []string) {
	covered := j.bookCovers(m.InstanceID) || j.askedSince(m)
	if m.InUse() > 0 || covered {
		if n := j.unbooked(m, r, systems); n > 0 && !covered {
			m.Busy = m.InUse() + n
		}
		m.HeartbeatAt = j.proof(r.ReadAt)
		return
	}
	if shown := j.gitlab.on(systems); j.gitlab.whole && shown > 0 {
		m.Busy, m.HeartbeatAt = shown, j.gitlab.at
		return
	}
	if _, at := j.localJobs(m.InstanceID); j.fresh(at) && !j.f.BookSince.IsZero() && at.After(j.f.BookSince) { // m.Busy has it: none
		m.HeartbeatAt = j.proof(r.ReadAt, at)
		return
	}
	// GitLab names the machine whose question got a job. One that was ordered to drain by
	// then has left it to another, so that a job that nobody else tells of may be here.
	if j.gitlab.whole && j.gitlab.unnamed == 0 && j.gitlab.running <= j.account.jobs && j.bookSettled() {
		m.HeartbeatAt = j.proof(r.ReadAt, j.gitlab.at)
	}
}

// unbooked is how many jobs GitLab shows on a machine beyond those that are known to be
// there; none if it is not positive. They are from before the book, and take places still.
// A list from before the last begin or end in the book may show one that has ended. What
// all machines together tell of as well is no more: one of them may have a job that
// another has asked for.
func (j *judge) unbooked(m *router.Machine, r *Routed, systems []string) int {
	if !j.gitlab.whole || !j.gitlab.at.After(r.LastUsedAt) {
		return 0
	}
	return min(j.gitlab.on(systems)-m.InUse(), j.gitlab.running-j.account.jobs)
}

// bookGrace is for how long GitLab's list alone doesn't tell what began before the book:
// the default time limit of a job. A list that is wrong for once costs no job then.
const bookGrace = time.Hour

func (j *judge) bookSettled() bool {
	return !j.f.BookSince.IsZero() && j.now.Sub(j.f.BookSince) >= bookGrace
}

// askedSince reports whether a machine first asked for a job after the book began. One
// with a single place has no job when it asks.
func (j *judge) askedSince(m *router.Machine) bool {
	return j.f.Capacity == 1 && !j.f.BookSince.IsZero() && m.RegisteredAt.After(j.f.BookSince)
}

// bookCovers reports whether the book has every job that may still run on an instance:
// it is older than the instance, or than any job can be.
func (j *judge) bookCovers(instance string) bool {
	if j.f.BookSince.IsZero() {
		return false
	}
	if j.now.Sub(j.f.BookSince) > spillway.MaxJobTimeout {
		return true
	}
	in, listed := j.instance(instance)
	return listed && !in.LaunchedAt.IsZero() && !in.LaunchedAt.Before(j.f.BookSince)
}

// provenByBoth: jobs may come and end without passing through us, so that GitLab and
// the machine's own side must both say that there is none. What they say long after
// the last job was handed out outvotes the book, which never sees an end here.
func (j *judge) provenByBoth(m *router.Machine, r *Routed, systems []string, local time.Time) {
	if shown := j.gitlab.on(systems); j.gitlab.whole && shown > 0 {
		m.Busy = max(m.Busy, shown)
		m.HeardAt = later(m.HeardAt, j.gitlab.at)
	}
	both := time.Time{}
	if m.InstanceID != "" && j.agrees(systems) {
		// One that has ceased to ask us may have begun to ask GitLab: an order doesn't reach it.
		both = j.proof(local, j.agreedAt(systems), j.heardAt(r))
	}
	switch {
	case m.Busy > 0:
		m.HeartbeatAt = j.proof(r.ReadAt)
	case both.IsZero():
		m.HeartbeatAt = time.Time{}
	case r.Open == 0, both.After(r.LastUsedAt.Add(j.f.Fresh)):
		m.Assigned, m.HeartbeatAt = 0, both
	default:
		m.HeartbeatAt = j.proof(r.ReadAt)
	}
}
