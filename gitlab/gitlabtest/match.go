package gitlabtest

import (
	"cmp"
	"slices"

	"github.com/spillway-ci/spillway"
)

// serves reports whether GitLab may give j to r: Ci::Queue::BuildQueueService.
func (r *runner) serves(j *job) bool {
	if r.spec.Protected && !j.Protected || !r.spec.RunUntagged && len(j.Tags) == 0 {
		return false
	}
	for _, tag := range j.Tags {
		if !slices.Contains(r.spec.Tags, tag) {
			return false
		}
	}
	switch r.spec.Type {
	case spillway.GroupType:
		return slices.ContainsFunc(r.spec.Groups, j.project.group.below)
	case spillway.ProjectType:
		return slices.Contains(r.spec.Projects, j.project.id)
	default:
		return j.project.instanceRunners
	}
}

// candidates are the jobs that r may get now, the next one first: by id, but an
// instance runner serves the project first that has the fewest jobs on instance
// runners. The lock is held.
func (s *Server) candidates(r *runner) []*job {
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(j *job) bool { return !j.queued() })
	var jobs []*job
	for _, j := range s.mu.queue {
		if !j.ghost && r.serves(j) {
			jobs = append(jobs, j)
		}
	}
	var running map[*project]int
	if r.spec.Type == spillway.InstanceType {
		running = s.onInstanceRunners()
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(running[a.project], running[b.project]), cmp.Compare(a.id, b.id))
	})
	return jobs
}

func (s *Server) onInstanceRunners() map[*project]int {
	counts := map[*project]int{}
	for _, p := range s.mu.projects {
		for _, j := range p.jobs {
			if j.status == Running && j.runner != nil && j.runner.spec.Type == spillway.InstanceType {
				counts[p]++
			}
		}
	}
	return counts
}
