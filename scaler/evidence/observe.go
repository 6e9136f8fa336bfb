package evidence

import (
	"github.com/spillway-ci/spillway/router"
)

// observed is the machines of a pool that GitLab serves directly. A sidecar's own word
// is enough; what only its metrics speak of is as idle as they and GitLab agree on. An
// instance that has never answered boots still.
func (j *judge) observed() []router.Machine {
	out := make([]router.Machine, 0, len(j.streams)+len(j.f.Scrapes))
	for _, m := range j.f.Streams {
		if m.InstanceID == "" || j.streams[m.InstanceID].ID == m.ID {
			out = append(out, m)
		}
	}
	for instance := range j.f.Scrapes {
		if j.streams[instance] == nil && !j.stopped(instance) {
			out = append(out, j.scraped(instance))
		}
	}
	if j.nobodyAsks() {
		out = append(out, j.listed()...)
	}
	return out
}

// stopped reports whether the hook that ends an instance has stopped its runner: it
// answers no more, and GitLab has no job of it. A runner that is told to stop ends with
// its last job.
func (j *judge) stopped(instance string) bool {
	in, listed := j.instance(instance)
	return listed && in.Ending && j.byHook() && !j.fresh(j.f.Scrapes[instance].At) && j.agrees(j.systems(instance))
}

// scraped is the machine that an instance's metrics speak of.
func (j *judge) scraped(instance string) router.Machine {
	s := j.f.Scrapes[instance]
	m := router.Machine{
		ID: machineOf(instance), InstanceID: instance, Pool: j.f.Pool, Capacity: j.f.Capacity,
		Busy: s.Jobs, HeardAt: s.At, RegisteredAt: s.FirstAt, LastUsedAt: later(s.LastBusyAt, s.FirstAt), Connected: true,
	}
	if s.Concurrent > 0 {
		m.Capacity = min(m.Capacity, s.Concurrent)
	}
	in, _ := j.instance(instance)
	j.order(&m, j.byHook() && !in.Ending) // from then on it is the hook that says when its runner has stopped
	shown := 0
	if j.gitlab.whole {
		shown = j.gitlab.on(s.Systems)
	}
	switch {
	case s.Jobs > 0:
		m.HeartbeatAt = earlier(s.At, j.now)
	case shown > 0: // somebody has to be wrong, and it shall not be the one who says idle
		m.Busy, m.HeartbeatAt = shown, j.gitlab.at
		m.HeardAt, m.LastUsedAt = later(m.HeardAt, j.gitlab.at), later(m.LastUsedAt, j.gitlab.at)
	case j.agrees(s.Systems):
		m.HeartbeatAt = j.proof(s.At, j.agreedAt(s.Systems))
	}
	return m
}

// nobodyAsks reports whether nothing is set up that could hear of an instance.
func (j *judge) nobodyAsks() bool {
	return j.f.Scrapes == nil && j.f.Drain != DrainSidecar
}

// listed is the machines of a pool of which only the group speaks: what runs there
// serves, as far as anybody can know, and whether it has a job nobody does.
func (j *judge) listed() []router.Machine {
	var out []router.Machine
	for _, in := range j.f.Instances {
		if !in.Running || j.streams[in.ID] != nil {
			continue
		}
		m := router.Machine{
			ID: machineOf(in.ID), InstanceID: in.ID, Pool: j.f.Pool, Capacity: j.f.Capacity,
			HeardAt: j.f.ListedAt, RegisteredAt: in.LaunchedAt, LastUsedAt: in.LaunchedAt, Connected: true,
		}
		if m.RegisteredAt.IsZero() {
			m.RegisteredAt, m.LastUsedAt = j.f.ListedAt, j.f.ListedAt
		}
		j.order(&m, false)
		out = append(out, m)
	}
	return out
}
