package evidence

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Judge says what machines a pool has. A machine without a job whose HeartbeatAt is
// within Facts.Fresh is proven idle: every proof that the table asks for was there and
// that young. Any other is busy, or nobody knows.
func Judge(f *Facts, now time.Time) Verdict {
	j := judge{f: f, now: now, streams: streamsByInstance(f.Streams)}
	j.list = make(map[string]Instance, len(f.Instances))
	for _, in := range f.Instances {
		j.list[in.ID] = in
	}
	j.gitlab = j.readGitLab()
	j.account = j.countHeard()
	var v Verdict
	switch f.Mode {
	case Observe:
		v.Machines = j.observed()
	case RouteFront, RouteOne:
		v.Machines = j.routed()
	default: // streams are all the evidence there is, and say it themselves
		return Verdict{Machines: byID(slices.Clone(f.Streams))}
	}
	for i := range v.Machines {
		j.mark(&v.Machines[i])
	}
	v.Machines = byID(v.Machines)
	v.Unseen, v.StoppedByHook = j.unseen(v.Machines), j.byHook()
	v.CannotDrain, v.Unaccounted, v.CannotServe = j.cannotDrain(v.Machines), j.unaccounted(), j.gitlab.cannotServe
	return v
}

// judge is one judgement in the making.
type judge struct {
	f       *Facts
	now     time.Time
	streams map[string]*router.Machine // by instance
	list    map[string]Instance
	gitlab  gitlab
	account account
}

// fresh reports whether a fact of that time proves anything. One from the future, by a
// clock that differs, is as good as one of now.
func (j *judge) fresh(at time.Time) bool {
	return !at.IsZero() && j.now.Sub(at) <= j.f.Fresh
}

// proof is the age of proofs together: that of the oldest, zero if one of them is too
// old to prove anything, or missing.
func (j *judge) proof(at ...time.Time) time.Time {
	oldest := slices.MinFunc(at, time.Time.Compare)
	if !j.fresh(oldest) {
		return time.Time{}
	}
	if oldest.After(j.now) {
		return j.now
	}
	return oldest
}

// streamsByInstance returns the stream's machine of each instance: the latest, where
// a process has taken the place of another.
func streamsByInstance(streams []router.Machine) map[string]*router.Machine {
	out := make(map[string]*router.Machine, len(streams))
	for i := range streams {
		m := &streams[i]
		if have := out[m.InstanceID]; m.InstanceID != "" && (have == nil || have.RegisteredAt.Before(m.RegisteredAt)) {
			out[m.InstanceID] = m
		}
	}
	return out
}

// localJobs is what an instance's own side says of its jobs, sidecar or metrics; at is
// zero if it says nothing.
func (j *judge) localJobs(instance string) (jobs int, at time.Time) {
	if m := j.streams[instance]; m != nil {
		return m.Busy, m.HeartbeatAt
	}
	s := j.f.Scrapes[instance]
	return s.Jobs, s.At
}

func (j *judge) instance(id string) (in Instance, listed bool) {
	in, listed = j.list[id]
	return in, listed
}

// systems are the system_ids that are known to be on an instance.
func (j *judge) systems(instance string) []string { return j.f.Scrapes[instance].Systems }

// order puts a drain that takes effect by its being ordered on a machine.
func (j *judge) order(m *router.Machine, acknowledged bool) {
	o, ordered := j.f.Drains[string(m.ID)]
	m.Draining, m.DrainAckedAt = ordered && o.On, time.Time{}
	if m.Draining && acknowledged {
		m.DrainAckedAt = o.At
	}
}

// byHook reports whether it is the group's hook that stops the pool's runners.
func (j *judge) byHook() bool {
	return j.f.Mode == Observe && j.f.Drain == DrainHook && j.f.HookVerified
}

func byID(machines []router.Machine) []router.Machine {
	slices.SortStableFunc(machines, func(a, b router.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return machines
}

func machineOf(instance string) spillway.MachineID { return spillway.MachineID(instance) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }
