package scenario

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/config"
)

// readControllers reads who of the configured controllers is there.
func (s *storyReader) readControllers(n *yaml.Node) {
	if n == nil || s.story.Config == nil {
		return
	}
	if s.story.Mode != Orchestrate {
		s.failf(n.Line, s.path("controllers"), "controllers are asked in mode orchestrate only")
		return
	}
	s.story.Controllers = make(map[string]Controller)
	fields := make(map[string]field)
	for _, name := range s.controllerNames() {
		fields[name] = func(n *yaml.Node, path string) { s.story.Controllers[name] = s.controller(n, path) }
	}
	s.mapping(n, s.path("controllers"), fields)
}

// controllerNames are those of the configuration, and of every one that a reload brings.
func (s *storyReader) controllerNames() []string {
	names := make(map[string]bool)
	for _, c := range append(slices.Collect(maps.Values(s.reloads)), s.story.Config) {
		for _, k := range c.Admission.Controllers {
			names[k.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *storyReader) controller(n *yaml.Node, path string) Controller {
	c := Controller{Instances: 1, Replica: -1}
	var jobs []string
	if isNull(n) {
		return c // as it is by default
	}
	replica := 0
	seen := s.mapping(n, path, map[string]field{
		"instances": s.count(&c.Instances), "replica": s.count(&replica), "from": s.duration(&c.From),
		"batch": s.count(&c.Batch), "takes": s.duration(&c.Takes),
		"refuses": func(n *yaml.Node, path string) {
			s.mapping(n, path, map[string]field{
				"jobs": s.texts(&jobs), "tags": s.texts(&c.Refuses.Tags), "projects": s.numbers(&c.Refuses.Projects),
			})
		},
	})
	if seen["replica"] {
		c.Replica = replica
		if replica >= s.story.Replicas {
			s.failf(n.Line, join(path, "replica"), "there is no replica %d (replicas: %d)", replica, s.story.Replicas)
		}
	}
	if c.Instances < 1 || c.Instances > MaxControllerInstances {
		s.failf(n.Line, join(path, "instances"), "%d: use 1 to %d", c.Instances, MaxControllerInstances)
	}
	if c.Batch > admission.MaxBatch {
		s.failf(n.Line, join(path, "batch"), "%d: use at most %d", c.Batch, admission.MaxBatch)
	}
	s.within(n.Line, path, c.From, s.story.Duration)
	handed := func(id string) bool { return strings.HasPrefix(id, "cell/") } // by what it is called here
	for _, id := range jobs {
		if handed(id) {
			c.Refuses.Jobs = append(c.Refuses.Jobs, id)
		}
	}
	jobs = slices.DeleteFunc(jobs, handed)
	for _, id := range s.resolveJobs(s.book, jobs, s.story.Duration, n.Line, join(path, "refuses")) {
		c.Refuses.Jobs = append(c.Refuses.Jobs, string(id))
	}
	return c
}

// Refused reports whether a controller refuses a job.
func (r *Refuses) Refused(job *spillway.Job) bool {
	return slices.Contains(r.Jobs, string(job.ID)) || slices.Contains(r.Projects, job.Requirement.Project) ||
		slices.ContainsFunc(r.Tags, func(tag string) bool { return slices.Contains(job.Requirement.Tags, tag) })
}

// control reads a fault of a controller.
func (s *storyReader) control(n *yaml.Node, path string) Action {
	a := Control{Nth: -1, For: DefaultFaultFor}
	nth := 0
	seen := s.need(n, path, map[string]field{
		"name": s.text(&a.Name), "nth": s.count(&nth), "takes": s.duration(&a.Takes), "for": s.duration(&a.For),
		"fault": oneOf(s.reader, &a.Fault, ControllerGone, ControllerSilent, ControllerSlow, ControllerLies),
	}, "name", "fault")
	if seen["nth"] {
		a.Nth = nth
	}
	if seen["takes"] != (a.Fault == ControllerSlow) {
		s.failf(n.Line, path, "takes goes with slow, and slow with takes")
	}
	c, known := s.story.Controllers[a.Name]
	switch {
	case !known && seen["name"]:
		s.failf(n.Line, path, "there is no controller %.60q; there are %s", a.Name, strings.Join(slices.Sorted(maps.Keys(s.story.Controllers)), ", "))
	case known && a.Nth >= c.Instances:
		s.failf(n.Line, path, "controller %s has %d instances: nth is 0 to %d", a.Name, c.Instances, c.Instances-1)
	}
	return a
}

// checkReload reports what a running control plane can't take over.
func (s *storyReader) checkReload(line int, next *config.Config) {
	if len(s.story.Config.Admission.Controllers) == 0 && len(next.Admission.Controllers) > 0 {
		s.failf(line, s.path("config"), "admission: the first controller needs a restart, and can't come with a reload")
	}
}
