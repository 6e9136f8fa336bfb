package gitlabtest

import (
	"net/http"
	"slices"
	"time"
)

func runnerID(r *runner) int64 { return r.id }

// runnersWhere are the runners that ok wants, the newest first.
func (s *Server) runnersWhere(ok func(*runner) bool) []*runner {
	var some []*runner
	for _, r := range s.mu.runners {
		if ok(r) {
			some = append(some, r)
		}
	}
	slices.SortFunc(some, func(a, b *runner) int { return int(b.id - a.id) })
	return some
}

func (s *Server) listRunners(w http.ResponseWriter, r *http.Request, u *user) {
	own := s.runnersWhere(func(r *runner) bool { return r.spec.Type != "instance" && u.seesRunner(r) })
	page(w, r, own, runnerID, func(r *runner) any { return s.runnerJSON(r) })
}

func (s *Server) listAllRunners(w http.ResponseWriter, r *http.Request, u *user) {
	if !u.admin() {
		message(w, http.StatusForbidden, "403 Forbidden")
		return
	}
	page(w, r, s.runnersWhere(func(*runner) bool { return true }), runnerID, func(r *runner) any { return s.runnerJSON(r) })
}

func (s *Server) listProjectRunners(w http.ResponseWriter, r *http.Request, u *user) {
	p := s.projectOf(w, r, u)
	if p == nil {
		return
	}
	some := s.runnersWhere(func(r *runner) bool {
		return r.spec.Type == "instance" && p.instanceRunners || slices.Contains(r.spec.Projects, p.id) ||
			slices.ContainsFunc(r.spec.Groups, p.group.below)
	})
	page(w, r, some, runnerID, func(r *runner) any { return s.runnerJSON(r) })
}

func (s *Server) listGroupRunners(w http.ResponseWriter, r *http.Request, u *user) {
	g := s.groupOf(w, r, u)
	if g == nil {
		return
	}
	some := s.runnersWhere(func(r *runner) bool {
		return r.spec.Type == "instance" || slices.ContainsFunc(r.spec.Groups, g.below)
	})
	page(w, r, some, runnerID, func(r *runner) any { return s.runnerJSON(r) })
}

// runnerOf finds a runner, or answers 404, or 403 for one that may not be seen.
func (s *Server) runnerOf(w http.ResponseWriter, r *http.Request, u *user) *runner {
	known := s.mu.runners[pathID(r, "id")]
	switch {
	case known == nil:
		message(w, http.StatusNotFound, "404 Runner Not Found")
	case !u.seesRunner(known):
		message(w, http.StatusForbidden, "403 Forbidden - No access granted")
	default:
		return known
	}
	return nil
}

func (s *Server) getRunner(w http.ResponseWriter, r *http.Request, u *user) {
	if known := s.runnerOf(w, r, u); known != nil {
		answerJSON(w, http.StatusOK, s.runnerDetails(known, u))
	}
}

func (s *Server) putRunner(w http.ResponseWriter, r *http.Request, u *user) {
	known := s.runnerOf(w, r, u)
	if known == nil {
		return
	}
	var change struct {
		Paused *bool `json:"paused"`
	}
	if !readJSON(w, r, MaxBodyBytes, &change) {
		return
	}
	if change.Paused != nil {
		known.paused = *change.Paused
		known.queue = s.newQueueValue()
		s.broadcast()
	}
	answerJSON(w, http.StatusOK, s.runnerDetails(known, u))
}

func (s *Server) deleteRunner(w http.ResponseWriter, r *http.Request, u *user) {
	if known := s.runnerOf(w, r, u); known != nil {
		delete(s.mu.runners, known.id)
		delete(s.mu.byToken, known.token)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) listManagers(w http.ResponseWriter, r *http.Request, u *user) {
	known := s.runnerOf(w, r, u)
	if known == nil {
		return
	}
	page(w, r, known.machines(), func(m *manager) int64 { return m.id }, func(m *manager) any { return s.managerJSON(m) })
}

// machines are a runner's managers, the newest first.
func (r *runner) machines() []*manager {
	var some []*manager
	for _, m := range r.managers {
		some = append(some, m)
	}
	slices.SortFunc(some, func(a, b *manager) int { return int(b.id - a.id) })
	return some
}

func (s *Server) listRunnerJobs(w http.ResponseWriter, r *http.Request, u *user) {
	known := s.runnerOf(w, r, u)
	if known == nil {
		return
	}
	query := r.URL.Query()
	jobs := slices.DeleteFunc(slices.Clone(s.list(nil, query["status"])), func(j *job) bool {
		return j.runner != known || query.Has("system_id") && j.system != query.Get("system_id") || !u.seesProject(j.project)
	})
	page(w, r, jobs, jobID, func(j *job) any {
		body := s.jobJSON(j).(map[string]any)
		body["project"] = j.project.json()
		return body
	})
}

// online is GitLab's word for a runner that was heard of not long ago.
func (s *Server) online(contacted time.Time) string {
	switch {
	case contacted.IsZero():
		return "never_contacted"
	case s.clock().Sub(contacted) <= onlineWithin:
		return "online"
	default:
		return "offline"
	}
}

func (s *Server) runnerJSON(r *runner) map[string]any {
	return map[string]any{
		"id": r.id, "description": r.spec.Description, "ip_address": nil, "active": !r.paused, "paused": r.paused,
		"is_shared": r.spec.Type == "instance", "runner_type": string(r.spec.Type) + "_type", "name": nil,
		"online": s.online(r.contactedAt) == "online", "status": s.online(r.contactedAt), "created_at": stamp(r.createdAt),
	}
}

func (s *Server) runnerDetails(r *runner, u *user) any {
	body := s.runnerJSON(r)
	body["tag_list"] = append([]string{}, r.spec.Tags...)
	body["run_untagged"], body["locked"], body["maximum_timeout"] = r.spec.RunUntagged, r.spec.Locked, nil
	body["access_level"] = r.accessLevel()
	body["contacted_at"] = stamp(r.contactedAt)
	projects, groups := []any{}, []any{}
	for _, p := range s.projectsOf(r, u) {
		projects = append(projects, p.json())
	}
	for _, g := range s.groupsOf(r, u) {
		groups = append(groups, g.json())
	}
	body["projects"], body["groups"] = projects, groups
	return body
}

func (r *runner) accessLevel() string {
	if r.spec.Protected {
		return "ref_protected"
	}
	return "not_protected"
}

// projectsOf are the projects of a project runner that u may see.
func (s *Server) projectsOf(r *runner, u *user) []*project {
	var some []*project
	for _, id := range r.spec.Projects {
		if p := s.mu.projects[id]; p != nil && u.seesProject(p) {
			some = append(some, p)
		}
	}
	slices.SortFunc(some, func(a, b *project) int { return int(b.id - a.id) })
	return some
}

func (s *Server) groupsOf(r *runner, u *user) []*group {
	var some []*group
	for _, id := range r.spec.Groups {
		if g := s.mu.groups[id]; g != nil && u.seesGroup(g) {
			some = append(some, g)
		}
	}
	slices.SortFunc(some, func(a, b *group) int { return int(b.id - a.id) })
	return some
}

func (s *Server) managerJSON(m *manager) any {
	return map[string]any{
		"id": m.id, "system_id": m.system, "version": m.info.Version, "revision": m.info.Revision, "platform": m.info.Platform,
		"architecture": m.info.Architecture, "created_at": stamp(m.createdAt), "contacted_at": stamp(m.contactedAt),
		"ip_address": m.ip, "status": s.online(m.contactedAt), "job_execution_status": s.executing(m),
	}
}

func (s *Server) executing(m *manager) string {
	for _, j := range s.mu.byID {
		if (j.status == Running || j.status == Canceling) && j.runner != nil && j.runner.managers[j.system] == m {
			return "active"
		}
	}
	return "idle"
}
