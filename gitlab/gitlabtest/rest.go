package gitlabtest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// user is who calls the API, by its token.
type user struct {
	apiToken
	s *Server
}

type userHandler func(w http.ResponseWriter, r *http.Request, u *user)

func (s *Server) restRoutes() map[string]userHandler {
	return map[string]userHandler{
		"GET /api/v4/version":                                 s.getVersion,
		"GET /api/v4/metadata":                                s.getVersion,
		"GET /api/v4/user":                                    s.getUser,
		"GET /api/v4/personal_access_tokens/self":             s.getToken,
		RouteProjects:                                         s.listProjects,
		RouteProject:                                          s.getProject,
		"GET /api/v4/projects/{id}/groups":                    s.listProjectGroups,
		"GET /api/v4/projects/{id}/runners":                   s.listProjectRunners,
		"GET /api/v4/projects/{id}/protected_branches":        s.listProtectedBranches,
		"GET /api/v4/projects/{id}/protected_tags":            s.listProtectedTags,
		RouteProjectJobs:                                      s.listJobs,
		RouteJob:                                              s.getJob,
		"GET /api/v4/projects/{id}/jobs/{job}/trace":          s.getTrace,
		"POST /api/v4/projects/{id}/jobs/{job}/cancel":        s.postCancel,
		RoutePipeline:                                         s.getPipeline,
		"GET /api/v4/projects/{id}/pipelines/{pipeline}/jobs": s.listPipelineJobs,

		RouteGroup:                         s.getGroup,
		"GET /api/v4/groups/{id}/projects": s.listGroupProjects,
		"GET /api/v4/groups/{id}/runners":  s.listGroupRunners,
		"GET /api/v4/runners":              s.listRunners,
		"GET /api/v4/runners/all":          s.listAllRunners,
		RouteRunner:                        s.getRunner,
		"PUT /api/v4/runners/{id}":         s.putRunner,
		"DELETE /api/v4/runners/{id}":      s.deleteRunner,
		RouteManagers:                      s.listManagers,
		RouteRunnerJobs:                    s.listRunnerJobs,
	}
}

// bearer is the API token of a request.
func bearer(r *http.Request) string {
	if token := r.Header.Get("Private-Token"); token != "" {
		return token
	}
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return ""
	}
	return token
}

// withUser lets nobody through whose token is unknown (401) or has no right to read
// (403), as lib/api/api_guard.rb does. The handler runs with the lock held.
func (s *Server) withUser(handle userHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.noteToken(r, APIToken, bearer(r))
		s.mu.Lock()
		defer s.mu.Unlock()
		token, known := s.mu.apiTokens[bearer(r)]
		switch {
		case !known:
			message(w, http.StatusUnauthorized, "401 Unauthorized")
		case token.scope == NoRights:
			answerJSON(w, http.StatusForbidden, insufficientScope)
		default:
			s.sweep()
			handle(w, r, &user{token, s})
		}
	}
}

var insufficientScope = map[string]string{
	"error":             "insufficient_scope",
	"error_description": "The request requires higher privileges than provided by the access token.",
	"scope":             "api read_api",
}

func (u *user) admin() bool { return u.scope == Admin }

func (u *user) seesProject(p *project) bool {
	return u.admin() || slices.Contains(u.projects, p.id) || slices.ContainsFunc(u.groups, p.group.below)
}

func (u *user) seesGroup(g *group) bool {
	return u.admin() || slices.ContainsFunc(u.groups, g.below)
}

// seesRunner: GitLab shows instance runners to every user.
func (u *user) seesRunner(r *runner) bool {
	if u.admin() || r.spec.Type == "instance" {
		return true
	}
	for _, id := range r.spec.Groups {
		if g := u.s.mu.groups[id]; g != nil && u.seesGroup(g) {
			return true
		}
	}
	for _, id := range r.spec.Projects {
		if p := u.s.mu.projects[id]; p != nil && u.seesProject(p) {
			return true
		}
	}
	return false
}

// visible are the projects that u sees, the newest first.
func (u *user) visible() []*project {
	var all []*project
	for _, p := range u.s.mu.projects {
		if u.seesProject(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *project) int { return int(b.id - a.id) })
	return all
}

// page answers with one page of items that are sorted by id, the newest first.
// GitLab counts neither jobs nor what else is long: X-Total isn't sent.
func page[T any](w http.ResponseWriter, r *http.Request, items []T, id func(T) int64, show func(T) any) {
	query := r.URL.Query()
	perPage := number(query, "per_page", DefaultPerPage)
	perPage = min(perPage, MaxPerPage)
	if query.Get("sort") == "asc" {
		items = slices.Clone(items)
		slices.Reverse(items)
	}
	if query.Get("pagination") == "keyset" {
		items = afterCursor(w, r, items, id, perPage)
	} else {
		items = offsetPage(w, r, items, perPage)
	}
	shown := make([]any, 0, len(items))
	for _, item := range items {
		shown = append(shown, show(item))
	}
	answerJSON(w, http.StatusOK, shown)
}

func number(query url.Values, name string, otherwise int) int {
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < 1 {
		return otherwise
	}
	return n
}

func offsetPage[T any](w http.ResponseWriter, r *http.Request, items []T, perPage int) []T {
	at := number(r.URL.Query(), "page", 1)
	from := min((at-1)*perPage, len(items))
	to := min(from+perPage, len(items))
	header := w.Header()
	header.Set("X-Page", strconv.Itoa(at))
	header.Set("X-Per-Page", strconv.Itoa(perPage))
	header.Set("X-Next-Page", "")
	header.Set("X-Prev-Page", "")
	links := []string{link(r, "first", "page", "1")}
	if at > 1 {
		header.Set("X-Prev-Page", strconv.Itoa(at-1))
		links = append(links, link(r, "prev", "page", strconv.Itoa(at-1)))
	}
	if to < len(items) {
		header.Set("X-Next-Page", strconv.Itoa(at+1))
		links = append(links, link(r, "next", "page", strconv.Itoa(at+1)))
	}
	header.Set("Link", strings.Join(links, ", "))
	return items[from:to]
}

func afterCursor[T any](w http.ResponseWriter, r *http.Request, items []T, id func(T) int64, perPage int) []T {
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		last, ok := decodeCursor(cursor)
		if !ok {
			return nil
		}
		descending := r.URL.Query().Get("sort") != "asc"
		items = items[after(items, id, last, descending):]
	}
	if len(items) <= perPage {
		return items
	}
	items = items[:perPage]
	w.Header().Set("Link", link(r, "next", "cursor", encodeCursor(id(items[perPage-1]))))
	return items
}

// after is the index of the first item behind the one with the id last.
func after[T any](items []T, id func(T) int64, last int64, descending bool) int {
	i, _ := slices.BinarySearchFunc(items, last, func(item T, last int64) int {
		behind := id(item) > last
		if descending {
			behind = id(item) < last
		}
		if behind {
			return 1
		}
		return -1
	})
	return i
}

// link is one entry of a Link header: the same request with one parameter changed.
func link(r *http.Request, rel, name, value string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	query := r.URL.Query()
	query.Set(name, value)
	return "<" + scheme + "://" + r.Host + r.URL.EscapedPath() + "?" + query.Encode() + `>; rel="` + rel + `"`
}

// stamp is a time as GitLab's JSON has it; null when there is none.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func (s *Server) getVersion(w http.ResponseWriter, _ *http.Request, _ *user) {
	answerJSON(w, http.StatusOK, map[string]any{"version": "19.4.0-ee", "revision": "0000000", "enterprise": true})
}

func (s *Server) getUser(w http.ResponseWriter, _ *http.Request, u *user) {
	body := map[string]any{"id": 1, "username": "bot", "state": "active", "bot": true}
	if u.admin() {
		body["is_admin"] = true
	}
	answerJSON(w, http.StatusOK, body)
}

func (s *Server) getToken(w http.ResponseWriter, _ *http.Request, _ *user) {
	answerJSON(w, http.StatusOK, map[string]any{"id": 1, "name": "bot", "active": true, "revoked": false, "scopes": []string{"read_api"}, "user_id": 1})
}
