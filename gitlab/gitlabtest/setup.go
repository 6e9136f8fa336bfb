package gitlabtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Scope is what an API token may see.
type Scope string

// The scopes.
const (
	Admin        Scope = "admin"     // everything
	GroupToken   Scope = "group"     // groups and what is below them
	ProjectToken Scope = "project"   // projects
	NoRights     Scope = "no_rights" // a token that is good, but has neither api nor read_api
)

type apiToken struct {
	scope    Scope
	groups   []int64
	projects []int64
}

// AddGroup adds a group, and those above it that there aren't yet: a path of
// "a/b" makes a too.
func (s *Server) AddGroup(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.group(path).id
}

// group returns the group at path. The lock is held.
func (s *Server) group(path string) *group {
	for _, g := range s.mu.groups {
		if g.path == path {
			return g
		}
	}
	g := &group{path: path}
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		g.parent = s.group(path[:i])
	}
	g.id = s.newID()
	s.mu.groups[g.id] = g
	return g
}

// AddProject adds a project and the groups above it, which "group/project" names.
// Instance runners may run its jobs.
func (s *Server) AddProject(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &project{path: path, instanceRunners: true}
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		p.group = s.group(path[:i])
	}
	p.id = s.newID()
	s.mu.projects[p.id] = p
	return p.id
}

// SetInstanceRunners says whether instance runners may run a project's jobs.
func (s *Server) SetInstanceRunners(project int64, allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.projects[project].instanceRunners = allowed
}

// AddRunner adds a runner and returns its id and its authentication token.
func (s *Server) AddRunner(spec RunnerSpec) (id int64, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.Type == "" {
		spec.Type = spillway.InstanceType
	}
	r := &runner{id: s.newID(), spec: spec, token: secret("glrt-"), managers: map[string]*manager{}, createdAt: s.clock()}
	r.queue = s.newQueueValue()
	s.mu.runners[r.id], s.mu.byToken[r.token] = r, r
	return r.id, r.token
}

// newQueueValue is a value of X-GitLab-Last-Update that wasn't before.
func (s *Server) newQueueValue() string { return fmt.Sprintf("%032x", s.newID()) }

// AddAPIToken adds a token of the API that sees the groups or projects at paths.
func (s *Server) AddAPIToken(scope Scope, paths ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := apiToken{scope: scope}
	for _, path := range paths {
		if scope == GroupToken {
			t.groups = append(t.groups, s.group(path).id)
			continue
		}
		if p := s.projectAt(path); p != nil {
			t.projects = append(t.projects, p.id)
		}
	}
	token := secret("glpat-")
	s.mu.apiTokens[token] = t
	return token
}

func (s *Server) projectAt(path string) *project {
	for _, p := range s.mu.projects {
		if p.path == path {
			return p
		}
	}
	return nil
}

// Revoke makes a token of any kind worthless.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.apiTokens, token)
	delete(s.mu.byToken, token)
}

// Enqueue makes a job pending and returns its id.
func (s *Server) Enqueue(spec JobSpec) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.newJob(spec)
	s.push(j, "enqueued")
	return j.id
}

// newJob adds a job to a project. The lock is held.
func (s *Server) newJob(spec JobSpec) *job {
	p := s.mu.projects[spec.Project]
	if p == nil {
		panic(fmt.Sprintf("gitlabtest: there is no project %d", spec.Project))
	}
	if spec.Name == "" {
		spec.Name = "job"
	}
	if spec.Stage == "" {
		spec.Stage = "test"
	}
	if spec.Ref == "" {
		spec.Ref = "work"
		if spec.Protected {
			spec.Ref = protectedBranch
		}
	}
	if spec.Timeout == 0 {
		spec.Timeout = time.Hour
	}
	spec.Tags = slices.Clone(spec.Tags)
	j := &job{JobSpec: spec, id: s.newID(), token: secret("glcbt-"), project: p, createdAt: s.clock()}
	j.pipeline = s.mu.pipelines[spec.Pipeline]
	if j.pipeline == nil {
		j.pipeline = &pipeline{id: s.newID(), project: p}
		s.mu.pipelines[j.pipeline.id] = j.pipeline
	}
	j.pipeline.jobs = append(j.pipeline.jobs, j)
	p.jobs = append(p.jobs, j)
	s.mu.byID = append(s.mu.byID, j)
	s.mu.jobs[j.id] = j
	return j
}

// push makes a job pending, and tells the runners that may get it. The lock is
// held.
func (s *Server) push(j *job, why string) {
	j.queuedAt = s.clock()
	s.mu.queue = append(s.mu.queue, j)
	for _, r := range s.mu.runners {
		if r.serves(j) {
			r.queue = s.newQueueValue()
		}
	}
	s.to(j, Pending, why)
}

// to gives a job a status and tells everybody. The lock is held.
func (s *Server) to(j *job, status, why string) {
	now := s.clock()
	before := j.status
	j.status = status
	j.history = append(j.history, Change{At: now, Status: status, Why: why})
	switch {
	case status == Running && j.startedAt.IsZero():
		j.startedAt = now
	case j.over():
		j.finishedAt = now
	}
	if j.over() || status == Running {
		delete(s.mu.waiting, j.id)
		j.waiting = false
	}
	if before != status && s.hooks.any() {
		s.hooks.send(s.jobHook(j))
	}
	s.broadcast()
}
