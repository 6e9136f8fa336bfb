package evidence

import (
	"fmt"

	"github.com/spillway-ci/spillway/router"
)

// cannotDrain is why nothing can be removed, and what to set up.
func (j *judge) cannotDrain(machines []router.Machine) string {
	switch j.f.Mode {
	case Observe:
		return j.cannotDrainObserved()
	case RouteOne:
		return j.cannotProveBoth()
	default:
		return j.cannotProveByBook(machines)
	}
}

func (j *judge) cannotDrainObserved() string {
	if j.sidecarHeard() {
		return ""
	}
	switch {
	case j.f.Drain == DrainSidecar && len(j.f.Instances) == 0:
		return ""
	case j.f.Drain == DrainSidecar:
		return "no sidecar is heard: run the agent with --sidecar beside gitlab-runner on the pool's instances"
	case j.f.Drain != DrainHook:
		return "nothing makes a runner take no more jobs: set observe.drain to sidecar or hook"
	case !j.f.HookVerified:
		return "the group has no terminating hook that its plugin could complete: add one whose script sends SIGQUIT to gitlab-runner and waits, or run a sidecar"
	case j.f.Scrapes == nil:
		return "nobody asks the runners whether they are idle: set observe.metrics, or run a sidecar"
	case !j.gitlab.asked:
		return "GitLab isn't asked whether it agrees that a runner is idle: set gitlab.api_token and the pool's gitlab.runner_id, or run a sidecar"
	default:
		return ""
	}
}

// cannotProveBoth is for jobs that may pass us by.
func (j *judge) cannotProveBoth() string {
	switch {
	case !j.gitlab.asked:
		return "GitLab isn't asked what runs on a machine: set gitlab.api_token and the pool's gitlab.runner_id, or make Spillway the front proxy"
	case j.f.Scrapes == nil && !j.sidecarHeard() && len(j.f.Instances) > 0:
		return "a machine's own side isn't asked what runs on it: set observe.metrics or run a sidecar, or make Spillway the front proxy"
	default:
		return ""
	}
}

// cannotProveByBook is for a book that began after all the machines.
func (j *judge) cannotProveByBook(machines []router.Machine) string {
	if j.gitlab.asked || j.f.Scrapes != nil || len(j.f.Streams) > 0 || len(machines) == 0 {
		return ""
	}
	for i := range machines {
		if j.bookCovers(machines[i].InstanceID) || j.askedSince(&machines[i]) {
			return ""
		}
	}
	return fmt.Sprintf("jobs from before %s may still run, and nobody tells: keep the store, or set gitlab.api_token or observe.metrics", stamp(j.f.BookSince))
}

func (j *judge) sidecarHeard() bool {
	for _, m := range j.streams {
		if j.fresh(m.HeartbeatAt) {
			return true
		}
	}
	return false
}

// unaccounted is why a job may run where nothing is heard of.
func (j *judge) unaccounted() string {
	if j.f.Mode == RouteFront {
		if why := j.unplaced(); why != "" || j.bookCoversAll() {
			return why
		}
	}
	switch g := &j.gitlab; {
	case j.f.Mode == RouteFront && !j.bookSettled():
		return fmt.Sprintf("jobs from before %s, when the book of them began, may still run", stamp(j.f.BookSince))
	case !g.asked:
		return "nobody tells what runs on an instance that isn't heard of: GitLab isn't asked (gitlab.api_token)"
	case !g.whole:
		return "nobody tells what runs on an instance that isn't heard of: GitLab's list is old or not whole"
	case g.running > j.account.jobs:
		return fmt.Sprintf("GitLab shows %d running jobs, and the machines that are heard %d", g.running, j.account.jobs)
	case j.f.Mode == RouteOne:
		return j.unplaced()
	default:
		return ""
	}
}

// unplaced is why a machine that asks for jobs may be on any instance.
func (j *judge) unplaced() string {
	for i := range j.f.Routed {
		r := &j.f.Routed[i]
		if r.Machine.InstanceID == "" && j.fresh(j.heardAt(r)) {
			return fmt.Sprintf("machine %s asks for jobs and doesn't say on which instance it is: give its runner the label spillway-instance", r.Machine.ID)
		}
	}
	return ""
}

func (j *judge) bookCoversAll() bool {
	for _, in := range j.f.Instances {
		if in.Running && !j.bookCovers(in.ID) {
			return false
		}
	}
	return !j.f.ListedAt.IsZero()
}
