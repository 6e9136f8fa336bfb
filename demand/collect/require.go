package collect

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/router"
)

// maxNeeds bounds the requirements that are remembered [requirements].
const maxNeeds = 10_000

// needs turns GitLab's jobs into requirements. Of a job's project and groups it keeps
// only what some pool tells apart: without that, each project would be a class of its
// own. Equal requirements are one value.
type needs struct {
	origin   string
	projects map[int64]bool
	groups   map[int64]bool
	grouped  []spillway.Capability // of the pools that serve groups

	mu struct {
		sync.Mutex
		known map[string]*spillway.Requirement // nil: nobody can take it
		key   []byte
	}
}

func newNeeds(origin string, pools []spillway.Pool) *needs {
	n := &needs{origin: origin, projects: map[int64]bool{}, groups: map[int64]bool{}}
	n.mu.known = map[string]*spillway.Requirement{}
	for i := range pools {
		c := pools[i].Capability
		for _, id := range c.Projects {
			n.projects[id] = true
		}
		for _, id := range c.Groups {
			n.groups[id] = true
		}
		if c.Type == spillway.GroupType {
			n.grouped = append(n.grouped, c)
		}
	}
	return n
}

// byGroup reports whether the groups of the job's project decide whether some pool
// takes it.
func (n *needs) byGroup(j *gitlab.Job) bool {
	r := spillway.Requirement{Origin: n.origin, Tags: j.Tags, Protected: j.Protected}
	return slices.ContainsFunc(n.grouped, func(c spillway.Capability) bool {
		r.Groups = c.Groups
		return router.Match(&c, &r).OK()
	})
}

// of is what the job needs; groups are those of its project, where they matter. ok is
// false for a job that no runner can take, whatever it offers.
func (n *needs) of(j *gitlab.Job, groups []int64) (r *spillway.Requirement, ok bool) {
	need := spillway.Requirement{Origin: n.origin, Tags: j.Tags, Protected: j.Protected}
	if n.projects[j.Project.ID] {
		need.Project = j.Project.ID
	}
	for _, g := range groups {
		if n.groups[g] {
			need.Groups = append(need.Groups, g)
		}
	}
	need = need.Normalize()
	n.mu.Lock()
	defer n.mu.Unlock()
	key := n.keyOf(&need)
	if r, ok := n.mu.known[string(key)]; ok {
		return r, r != nil
	}
	if len(n.mu.known) >= maxNeeds {
		clear(n.mu.known)
	}
	if need.Validate() != nil {
		n.mu.known[string(key)] = nil
		return nil, false
	}
	r = &need
	n.mu.known[string(key)] = r
	return r, true
}

// keyOf tells requirements of one origin apart, cheaper than their class: a list may
// have a hundred thousand jobs. What it returns is valid until the next call.
func (n *needs) keyOf(r *spillway.Requirement) []byte {
	b := strconv.AppendBool(n.mu.key[:0], r.Protected)
	b = strconv.AppendInt(append(b, ' '), r.Project, 10)
	for _, g := range r.Groups {
		b = strconv.AppendInt(append(b, ' '), g, 10)
	}
	for _, t := range r.Tags {
		b = append(b, 0)
		b = strconv.AppendInt(b, int64(len(t)), 10)
		b = append(b, ' ')
		b = append(b, t...)
	}
	n.mu.key = b
	return b
}

// declares is what a runner takes, by GitLab's word.
func declares(origin string, r *gitlab.Runner) *Declared {
	c := spillway.Capability{
		Origin: origin, Tags: r.Tags, RunUntagged: r.RunUntagged, Protected: r.Protected, Type: r.Type,
	}
	switch r.Type {
	case spillway.GroupType:
		c.Groups = r.Groups
	case spillway.ProjectType:
		c.Projects = r.Projects
	case spillway.InstanceType, "":
	}
	return &Declared{Capability: c.Normalize()}
}

// sentence makes an error fit for a board: one line, not too long.
func sentence(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxProblemBytes {
		text = strings.ToValidUTF8(text[:maxProblemBytes-len("…")], "") + "…"
	}
	return text
}
