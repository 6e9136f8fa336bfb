package gitlab

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// What a token lacks where GitLab says 403 or hides something.
const (
	rightAdmin    = "it must be an administrator's (and, where the instance has Admin Mode, have the scope admin_mode) to see the jobs of the whole instance; else set gitlab.jobs.scope to groups or projects"
	rightJobs     = "it needs at least the role Reporter to read jobs there, and CI/CD must be on"
	rightProjects = "it needs at least the role Reporter in the group"
)

// schemaAge is how long it is believed that GraphQL can't be used [time]: a GitLab is
// upgraded, and a proxy in front of it mended, without a restart of ours.
const schemaAge = time.Hour

// maxStatuses bounds what Jobs is asked for [statuses].
const maxStatuses = 16

// Jobs lists the jobs of a scope that are in one of the statuses: all of them, or an
// error, which comes last and makes the jobs that came before it worth nothing: nobody
// can tell which are missing. They come page by page, as GitLab is asked, so that a
// list takes the memory of what is kept of it and no more; the next page is asked for
// when the last job of this one has been used. No job comes twice because a page had to
// be read again.
//
// GraphQL is used where this GitLab's has what is needed, else REST; that is
// found out for each kind of scope and believed for schemaAge. The scope instance costs
// a call per hundred jobs, the others one per project and hundred jobs, besides those
// that list the projects of a group: GitLab has no list of jobs of a group.
func (c *Client) Jobs(ctx context.Context, scope Scope, statuses ...string) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		if err := scope.validate(); err != nil {
			yield(Job{}, err)
			return
		}
		if len(statuses) == 0 || len(statuses) > maxStatuses {
			yield(Job{}, fmt.Errorf("gitlab: %d statuses: ask for 1 to %d", len(statuses), maxStatuses))
			return
		}
		l := &lister{c: c, statuses: statuses, yield: yield}
		if err := l.list(ctx, scope); err != nil && !errors.Is(err, errEnough) {
			yield(Job{}, fmt.Errorf("gitlab: %w", err))
		}
	}
}

// errEnough: the caller wants no more of a list.
var errEnough = errors.New("the list is wanted no further")

// lister hands on the jobs of one list.
type lister struct {
	c        *Client
	statuses []string
	yield    func(Job, error) bool
	page     []Job // the one that is read, whose memory the next one uses again
	given    int   // jobs so far
}

func (l *lister) list(ctx context.Context, scope Scope) error {
	gone := &l.c.noGraph[scope.Kind]
	if now := l.c.now(); now.UnixNano() >= gone.Load() {
		err := l.graph(ctx, scope)
		if !errors.Is(err, errSchema) {
			return err
		}
		gone.Store(now.Add(schemaAge).UnixNano())
		if l.given > 0 { // what was handed on can't be taken back
			return fmt.Errorf("%w: its GraphQL API went away in the middle of a list: %w", ErrUnavailable, err)
		}
	}
	return l.rest(ctx, scope)
}

// give hands on the page that was read.
func (l *lister) give(ctx context.Context) error {
	if l.c.learns {
		if err := l.c.learnProtected(ctx, l.page); err != nil {
			return err
		}
	}
	l.given += len(l.page)
	for _, j := range l.page {
		if !l.yield(j, nil) {
			return errEnough
		}
	}
	return nil
}

// graph lists by GraphQL.
func (l *lister) graph(ctx context.Context, scope Scope) error {
	if scope.Kind == Instance {
		if err := l.graphInstance(ctx); err != nil {
			return err
		}
		if l.given > 0 {
			return nil
		}
		// Nothing, or no right to see it: app/graphql/types/query_type.rb, "Returns an empty
		// result for users without administrator access".
		return l.c.proveAdmin(ctx)
	}
	paths := scope.Paths
	if scope.Kind == Groups {
		var err error
		if paths, err = l.c.graphProjects(ctx, scope.Paths); err != nil {
			return err
		}
	}
	for _, path := range unique(paths) {
		if err := l.graphProject(ctx, strings.Trim(path, "/"), scope.Kind == Groups); err != nil {
			return err
		}
	}
	return nil
}

// jobPage is a page of jobs.
type jobPage struct {
	PageInfo pageInfo    `json:"pageInfo"`
	Nodes    []*graphJob `json:"nodes"`
}

const jobConnection = `jobs(statuses:$statuses,first:100,after:$after){pageInfo{hasNextPage endCursor} nodes{` + jobFields + `}}`

const (
	instanceJobs = `query($statuses:[CiJobStatus!],$after:String){` + jobConnection + `}`
	projectJobs  = `query($path:ID!,$statuses:[CiJobStatus!],$after:String){project(fullPath:$path){` + jobConnection + `}}`
)

func (l *lister) graphInstance(ctx context.Context) error {
	k := call{what: "list the jobs of the instance", right: rightAdmin}
	return l.c.graphPages(k.what, func(after any) (pageInfo, error) {
		data, err := graphql[struct{ Jobs *jobPage }](ctx, l.c, k, instanceJobs, l.vars(after, nil))
		if err != nil {
			return pageInfo{}, err
		}
		return l.take(ctx, k, data.Jobs)
	})
}

// graphProject lists one project's jobs. A project that a group had a moment ago may be
// gone: its jobs are, too.
func (l *lister) graphProject(ctx context.Context, path string, mayBeGone bool) error {
	k := call{what: "list the jobs of project " + quote(path), right: rightJobs}
	return l.c.graphPages(k.what, func(after any) (pageInfo, error) {
		data, err := graphql[struct{ Project *struct{ Jobs *jobPage } }](ctx, l.c, k, projectJobs, l.vars(after, map[string]any{"path": path}))
		switch {
		case err != nil:
			return pageInfo{}, err
		case data.Project == nil && mayBeGone:
			return pageInfo{}, nil
		case data.Project == nil:
			return pageInfo{}, fmt.Errorf("%s: %w", k.what, ErrNotFound)
		}
		return l.take(ctx, k, data.Project.Jobs)
	})
}

func (l *lister) vars(after any, more map[string]any) map[string]any {
	statuses := make([]string, len(l.statuses))
	for i, s := range l.statuses {
		statuses[i] = strings.ToUpper(s)
	}
	vars := map[string]any{"statuses": statuses, "after": after}
	for name, v := range more {
		vars[name] = v
	}
	return vars
}

// take hands a page on. null instead of a page, or of a job, is what GraphQL answers
// where the token may not see it.
func (l *lister) take(ctx context.Context, k call, page *jobPage) (pageInfo, error) {
	if page == nil {
		return pageInfo{}, fmt.Errorf("%s: %w: %s", k.what, ErrForbidden, k.right)
	}
	l.page = l.page[:0]
	for _, node := range page.Nodes {
		if node == nil {
			return pageInfo{}, fmt.Errorf("%s: %w: %s (some are hidden)", k.what, ErrForbidden, k.right)
		}
		if node.ID == 0 {
			return pageInfo{}, fmt.Errorf("%s: %w: a job has no id", k.what, ErrProtocol)
		}
		l.page = append(l.page, node.job())
	}
	return page.PageInfo, l.give(ctx)
}

// rest lists by REST, which has jobs of projects only.
func (l *lister) rest(ctx context.Context, scope Scope) error {
	var projects []string // ids or escaped paths
	switch scope.Kind {
	case Projects:
		for _, path := range unique(scope.Paths) {
			projects = append(projects, escaped(path))
		}
	case Groups:
		for _, group := range unique(scope.Paths) {
			// doc/api/groups.md, "List projects": those shared with the group are served by
			// runners of their own groups.
			query := url.Values{"include_subgroups": {"true"}, "with_shared": {"false"}, "archived": {"false"}, "order_by": {"id"}, "sort": {"asc"}}
			ids, err := l.c.restProjects(ctx, "groups/"+escaped(group)+"/projects", "group "+quote(group), rightProjects, query)
			if err != nil {
				return err
			}
			projects = append(projects, ids...)
		}
	case Instance:
		if err := l.c.proveAdmin(ctx); err != nil {
			return err
		}
		query := url.Values{"archived": {"false"}, "order_by": {"id"}, "sort": {"asc"}, "pagination": {"keyset"}}
		ids, err := l.c.restProjects(ctx, "projects", "the instance", rightAdmin, query)
		if err != nil {
			return err
		}
		projects = ids
	}
	for _, project := range unique(projects) {
		if err := l.restProject(ctx, project, scope.Kind != Projects); err != nil {
			return err
		}
	}
	return nil
}

// restProject reads a project's jobs, by keyset: a job that ends meanwhile shifts no
// other one over the edge of a page (doc/api/rest, "Keyset-based pagination").
func (l *lister) restProject(ctx context.Context, project string, mayBeGone bool) error {
	k := call{
		what: "list the jobs of project " + quote(project), right: rightJobs,
		method: http.MethodGet, path: "api/v4/projects/" + project + "/jobs",
		query: url.Values{"scope[]": l.statuses, "per_page": {"100"}, "pagination": {"keyset"}, "order_by": {"id"}, "sort": {"desc"}},
	}
	err := readList(ctx, l.c, k, func(page []restJob) error {
		l.page = l.page[:0]
		now := l.c.now()
		for i := range page {
			if page[i].ID <= 0 {
				return fmt.Errorf("%s: %w: a job has no id", k.what, ErrProtocol)
			}
			l.page = append(l.page, page[i].job(now))
		}
		return l.give(ctx)
	})
	if mayBeGone && errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// unique drops repeated texts: groups may be named with their own subgroups.
func unique(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	var out []string
	for _, t := range texts {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}
