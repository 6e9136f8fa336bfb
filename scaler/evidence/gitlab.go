package evidence

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway/router"
)

// byGitLab is whose word it is that a machine is of no more use: its own may be that it
// is well.
const byGitLab = "GitLab"

// managerGrace is how long after its first contact a machine may be missing from
// GitLab's list of a runner's machines: the list is written when a runner asks for
// jobs, and not each time.
const managerGrace = 10 * time.Minute

// gitlab is GitLab's word on all runners of a pool together.
type gitlab struct {
	asked       bool
	whole       bool      // its numbers are exact, and young enough to prove something
	at          time.Time // of the oldest of them
	running     int       // jobs
	bySystem    map[string]int
	runnerOf    map[string]string // which of the runners knows a system_id, where there are several
	unnamed     int               // of running: jobs of which it isn't known which machine has them
	cannotServe string
}

// readGitLab adds the runners up. A runner that is deleted has no job to come; what
// still runs on its machines their own side tells.
func (j *judge) readGitLab() gitlab {
	g := gitlab{asked: len(j.f.Runners) > 0, whole: true, bySystem: make(map[string]int), runnerOf: make(map[string]string)}
	named, deleted, paused := 0, 0, 0
	for i, id := range slices.Sorted(maps.Keys(j.f.Runners)) {
		r := j.f.Runners[id]
		g.know(id, &r)
		if at := earlier(r.At, j.now); i == 0 || at.Before(g.at) {
			g.at = at
		}
		switch {
		case r.Deleted:
			deleted++
			g.whole = g.whole && j.fresh(r.At)
			continue
		case r.Paused:
			paused++
		}
		g.whole = g.whole && r.Whole && j.fresh(r.At)
		g.running += r.Running
		for system, jobs := range r.BySystem {
			g.bySystem[system] += jobs
			named += jobs
		}
	}
	g.whole = g.whole && g.asked
	g.unnamed = max(0, g.running-named)
	if g.asked && deleted+paused == len(j.f.Runners) {
		g.cannotServe = fmt.Sprintf("GitLab gives this pool's instances no job: of its %d runners %d are deleted and %d paused there", deleted+paused, deleted, paused)
	}
	return g
}

// know notes which machines are a runner's. The first one that knows a machine has it.
func (g *gitlab) know(id string, r *Runner) {
	for system := range r.BySystem {
		if _, known := g.runnerOf[system]; !known {
			g.runnerOf[system] = id
		}
	}
	for _, system := range r.Systems {
		if _, known := g.runnerOf[system]; !known {
			g.runnerOf[system] = id
		}
	}
}

// on is how many jobs GitLab shows on machines.
func (g *gitlab) on(systems []string) int {
	n := 0
	for _, s := range systems {
		n += g.bySystem[s]
	}
	return n
}

// agrees reports whether GitLab agrees that nothing runs on a machine whose own side
// says so. Where it can't be asked about the machine itself, it agrees if the jobs of
// all machines account for all that it shows.
func (j *judge) agrees(systems []string) bool {
	switch g := &j.gitlab; {
	case j.runnerDeleted(systems):
		return true // nothing is to come, and its own side says that nothing is left
	case !g.whole:
		return false
	case len(systems) > 0 && g.unnamed == 0:
		return g.on(systems) == 0
	default:
		return j.account.everyInstance && g.running <= j.account.jobs
	}
}

// agreedAt is how old that agreement is.
func (j *judge) agreedAt(systems []string) time.Time {
	if r, known := j.runnerOf(systems); known && r.Deleted {
		return r.At
	}
	return j.gitlab.at
}

// runnerOf is the runner that machines belong to: the only one, or the one that knows
// them.
func (j *judge) runnerOf(systems []string) (Runner, bool) {
	if len(j.f.Runners) == 1 {
		for _, r := range j.f.Runners {
			return r, true
		}
	}
	for _, s := range systems {
		if id, known := j.gitlab.runnerOf[s]; known {
			return j.f.Runners[id], true
		}
	}
	return Runner{}, false
}

func (j *judge) runnerDeleted(systems []string) bool {
	r, known := j.runnerOf(systems)
	return known && r.Deleted && j.fresh(r.At)
}

// mark adds what GitLab says of a machine's runner. A machine of a deleted one serves
// nobody any more: it is replaced. One of a paused one is left as it is.
func (j *judge) mark(m *router.Machine) {
	systems := j.systems(m.InstanceID)
	if j.isRouted(m) {
		systems = []string{string(m.ID)}
	}
	r, known := j.runnerOf(append([]string{string(m.ID)}, systems...)) // a sidecar may be named by the system_id
	switch {
	case known && r.Deleted:
		m.Unhealthy, m.UnhealthyBy = "its runner was deleted in GitLab", byGitLab
	case m.Unhealthy == "" && j.struckOff(m, systems):
		m.Unhealthy, m.UnhealthyBy = "GitLab doesn't list it as a machine of its runner any more", byGitLab
	}
	m.Paused = known && r.Paused && !r.Deleted
}

func (j *judge) isRouted(m *router.Machine) bool {
	return slices.ContainsFunc(j.f.Routed, func(r Routed) bool { return r.Machine.ID == m.ID })
}

// struckOff reports whether GitLab lists the machines of every runner, and long after
// the first contact none of them is this one.
func (j *judge) struckOff(m *router.Machine, systems []string) bool {
	if len(systems) == 0 || len(j.f.Runners) == 0 || m.RegisteredAt.IsZero() || j.now.Sub(m.RegisteredAt) <= managerGrace {
		return false
	}
	for _, r := range j.f.Runners {
		if r.Systems == nil || !j.fresh(r.At) {
			return false
		}
	}
	return !slices.ContainsFunc(systems, func(s string) bool { _, known := j.gitlab.runnerOf[s]; return known })
}

// unseen is how many running jobs no machine tells of.
func (j *judge) unseen(machines []router.Machine) int {
	if !j.gitlab.whole {
		return 0
	}
	n := j.gitlab.running
	for i := range machines {
		n -= machines[i].InUse()
	}
	return max(0, n)
}

// account is what the machines that are heard say together.
type account struct {
	jobs          int
	everyInstance bool // each instance of the group that is neither coming nor going was heard
}

// countHeard adds up what sidecars and metrics say that is young enough.
func (j *judge) countHeard() account {
	a := account{everyInstance: !j.f.ListedAt.IsZero()}
	heard := make(map[string]bool)
	open := make(map[string]int) // by the book; it has the jobs of those that nobody else speaks of
	for i := range j.f.Routed {
		r := &j.f.Routed[i]
		open[r.Machine.InstanceID] += r.Open
	}
	add := func(instance string) {
		if jobs, at := j.localJobs(instance); !heard[instance] && j.fresh(at) {
			heard[instance] = true
			a.jobs += jobs
			delete(open, instance)
		}
	}
	for instance := range j.streams {
		add(instance)
	}
	for instance := range j.f.Scrapes {
		add(instance)
	}
	for _, jobs := range open {
		a.jobs += jobs
	}
	for _, in := range j.f.Instances {
		a.everyInstance = a.everyInstance && (!in.Running || heard[in.ID])
	}
	return a
}
