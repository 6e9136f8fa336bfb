package gitlabtest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statuses are all that a job can have in GitLab (CommitStatus::AVAILABLE_STATUSES).
var statuses = []string{
	"created", "waiting_for_resource", "preparing", "waiting_for_callback", Pending, Running,
	Success, Failed, Canceling, Canceled, "skipped", "manual", "scheduled",
}

// projectOf finds the project that a path names by id or by its encoded path, or
// answers 404, for one too that may not be seen.
func (s *Server) projectOf(w http.ResponseWriter, r *http.Request, u *user) *project {
	p := s.mu.projects[pathID(r, "id")]
	if p == nil {
		p = s.projectAt(r.PathValue("id"))
	}
	if p == nil || !u.seesProject(p) {
		message(w, http.StatusNotFound, "404 Project Not Found")
		return nil
	}
	return p
}

func (s *Server) listProjects(w http.ResponseWriter, r *http.Request, u *user) {
	page(w, r, u.visible(), projectID, func(p *project) any { return p.json() })
}

func (s *Server) getProject(w http.ResponseWriter, r *http.Request, u *user) {
	if p := s.projectOf(w, r, u); p != nil {
		answerJSON(w, http.StatusOK, p.json())
	}
}

func projectID(p *project) int64 { return p.id }

func (p *project) json() any {
	body := map[string]any{
		"id": p.id, "name": lastPart(p.path), "path": lastPart(p.path), "path_with_namespace": p.path,
		"shared_runners_enabled": p.instanceRunners, "archived": false, "default_branch": "main",
		"namespace": map[string]any{"id": 0, "kind": "user", "full_path": "", "parent_id": nil},
	}
	if g := p.group; g != nil {
		body["namespace"] = map[string]any{"id": g.id, "kind": "group", "path": lastPart(g.path), "full_path": g.path, "parent_id": g.parentID()}
	}
	return body
}

func (g *group) parentID() any {
	if g.parent == nil {
		return nil
	}
	return g.parent.id
}

func (g *group) json() any {
	return map[string]any{"id": g.id, "name": lastPart(g.path), "path": lastPart(g.path), "full_path": g.path, "parent_id": g.parentID()}
}

func (s *Server) listProjectGroups(w http.ResponseWriter, r *http.Request, u *user) {
	p := s.projectOf(w, r, u)
	if p == nil {
		return
	}
	var groups []*group
	for g := p.group; g != nil; g = g.parent {
		groups = append(groups, g)
	}
	page(w, r, groups, func(g *group) int64 { return g.id }, func(g *group) any { return g.json() })
}

func (s *Server) groupOf(w http.ResponseWriter, r *http.Request, u *user) *group {
	g := s.mu.groups[pathID(r, "id")]
	if g == nil {
		for _, other := range s.mu.groups {
			if other.path == r.PathValue("id") {
				g = other
			}
		}
	}
	if g == nil || !u.seesGroup(g) {
		message(w, http.StatusNotFound, "404 Group Not Found")
		return nil
	}
	return g
}

func (s *Server) getGroup(w http.ResponseWriter, r *http.Request, u *user) {
	if g := s.groupOf(w, r, u); g != nil {
		answerJSON(w, http.StatusOK, g.json())
	}
}

func (s *Server) listGroupProjects(w http.ResponseWriter, r *http.Request, u *user) {
	g := s.groupOf(w, r, u)
	if g == nil {
		return
	}
	deep := r.URL.Query().Get("include_subgroups") == "true"
	page(w, r, projectsIn(u.visible(), g, deep), projectID, func(p *project) any { return p.json() })
}

func projectsIn(all []*project, g *group, deep bool) []*project {
	return slices.DeleteFunc(all, func(p *project) bool { return p.group != g && (!deep || !p.group.below(g.id)) })
}

// listJobs is GET /projects/:id/jobs (lib/api/ci/jobs.rb).
func (s *Server) listJobs(w http.ResponseWriter, r *http.Request, u *user) {
	p := s.projectOf(w, r, u)
	if p == nil {
		return
	}
	query := r.URL.Query()
	wanted := slices.Concat(query["scope[]"], query["scope"])
	for _, status := range wanted {
		if !slices.Contains(statuses, status) {
			answerJSON(w, http.StatusBadRequest, map[string]string{"error": "scope does not have a valid value"})
			return
		}
	}
	page(w, r, s.list(p, wanted), jobID, func(j *job) any { return s.jobJSON(j) })
}

func jobID(j *job) int64 { return j.id }

// listKey is a list of jobs: of a project, or with 0 of all.
type listKey struct {
	project  int64
	statuses string
}

// maxLists bounds the lists that are kept until the next change [lists].
const maxLists = 100

// list is newestFirst of a project's jobs, or of all. It is made once for all pages
// of it, and is not to be changed. The lock is held.
func (s *Server) list(p *project, wanted []string) []*job {
	key, jobs := listKey{statuses: strings.Join(wanted, " ")}, s.mu.byID
	if p != nil {
		key.project, jobs = p.id, p.jobs
	}
	if made, is := s.mu.lists[key]; is {
		return made
	}
	if len(s.mu.lists) >= maxLists {
		clear(s.mu.lists)
	}
	s.mu.lists[key] = newestFirst(jobs, wanted)
	return s.mu.lists[key]
}

// newestFirst are the jobs that a list shows, of the wanted statuses or of all.
func newestFirst(jobs []*job, wanted []string) []*job {
	shown := make([]*job, 0, len(jobs))
	for _, j := range slices.Backward(jobs) {
		if !j.gone && (len(wanted) == 0 || slices.Contains(wanted, j.status)) {
			shown = append(shown, j)
		}
	}
	return shown
}

func (s *Server) jobOf(w http.ResponseWriter, r *http.Request, u *user) *job {
	p := s.projectOf(w, r, u)
	if p == nil {
		return nil
	}
	j := s.mu.jobs[pathID(r, "job")]
	if j == nil || j.project != p || j.gone || j.ghost {
		message(w, http.StatusNotFound, "404 Not found")
		return nil
	}
	return j
}

func (s *Server) getJob(w http.ResponseWriter, r *http.Request, u *user) {
	if j := s.jobOf(w, r, u); j != nil {
		answerJSON(w, http.StatusOK, s.jobJSON(j))
	}
}

func (s *Server) getTrace(w http.ResponseWriter, r *http.Request, u *user) {
	if j := s.jobOf(w, r, u); j != nil {
		write(w, http.StatusOK, "text/plain", string(j.trace))
	}
}

func (s *Server) postCancel(w http.ResponseWriter, r *http.Request, u *user) {
	if j := s.jobOf(w, r, u); j != nil {
		s.cancel(j)
		answerJSON(w, http.StatusCreated, s.jobJSON(j))
	}
}

func (s *Server) getPipeline(w http.ResponseWriter, r *http.Request, u *user) {
	if p := s.pipelineOf(w, r, u); p != nil {
		answerJSON(w, http.StatusOK, p.json())
	}
}

func (s *Server) listPipelineJobs(w http.ResponseWriter, r *http.Request, u *user) {
	if p := s.pipelineOf(w, r, u); p != nil {
		page(w, r, newestFirst(p.jobs, r.URL.Query()["scope[]"]), jobID, func(j *job) any { return s.jobJSON(j) })
	}
}

func (s *Server) pipelineOf(w http.ResponseWriter, r *http.Request, u *user) *pipeline {
	p := s.projectOf(w, r, u)
	if p == nil {
		return nil
	}
	line := s.mu.pipelines[pathID(r, "pipeline")]
	if line == nil || line.project != p {
		message(w, http.StatusNotFound, "404 Not found")
		return nil
	}
	return line
}

func (p *pipeline) json() map[string]any {
	return map[string]any{
		"id": p.id, "iid": p.id, "project_id": p.project.id, "status": p.status(), "source": "push", "ref": "main",
	}
}

// jobJSON is the entity Ci::Job. It says nothing of whether the job is protected,
// as GitLab's doesn't.
func (s *Server) jobJSON(j *job) any {
	body := map[string]any{
		"id": j.id, "name": j.Name, "stage": j.Stage, "status": j.status, "ref": j.Ref, "tag": false, "allow_failure": false,
		"created_at": stamp(j.createdAt), "queued_at": stamp(j.queuedAt), "started_at": stamp(j.startedAt), "finished_at": stamp(j.finishedAt),
		"duration": nil, "queued_duration": s.queuedFor(j).Seconds(), "tag_list": append([]string{}, j.Tags...),
		"pipeline": j.pipeline.json(), "runner": nil, "runner_manager": nil, "archived": false,
		"project": map[string]any{"ci_job_token_scope_enabled": false},
		"web_url": "http://gitlab.invalid/" + j.project.path + "/-/jobs/" + strconv.FormatInt(j.id, 10),
	}
	if j.failure != "" {
		body["failure_reason"] = j.failure
	}
	if j.runner != nil {
		body["runner"] = s.runnerJSON(j.runner)
		if m := j.runner.managers[j.system]; m != nil && !j.waiting {
			body["runner_manager"] = s.managerJSON(m)
		}
	}
	return body
}

func (s *Server) queuedFor(j *job) time.Duration {
	if !j.startedAt.IsZero() {
		return j.startedAt.Sub(j.queuedAt)
	}
	return s.clock().Sub(j.queuedAt)
}

func (s *Server) listProtectedBranches(w http.ResponseWriter, r *http.Request, u *user) {
	if s.projectOf(w, r, u) != nil {
		page(w, r, []string{protectedBranch}, func(string) int64 { return 1 }, func(name string) any { return map[string]any{"id": 1, "name": name} })
	}
}

func (s *Server) listProtectedTags(w http.ResponseWriter, r *http.Request, u *user) {
	if s.projectOf(w, r, u) != nil {
		answerJSON(w, http.StatusOK, []any{})
	}
}
