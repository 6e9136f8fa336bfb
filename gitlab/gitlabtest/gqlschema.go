package gitlabtest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-ci/spillway"
)

// objectType is a type of the schema; its fields are those of app/graphql/types that
// the stand-in knows. An unknown one is an error, as in GitLab.
type objectType struct {
	name   string
	of     string // of an interface: the only type that implements it
	fields map[string]fieldType
}

// fieldType is one field: a value, an object of type of, or a list of such in pages.
type fieldType struct {
	of   string
	list bool // a connection
	args []string
	// resolve returns the value: for an object anything but nil, for a connection a
	// list.
	resolve func(q *query, of any, args map[string]any) any
}

// list is what a connection is resolved to, the newest first.
type list struct {
	total int
	at    func(int) any
	id    func(int) int64
	// behind is the index of the first item after the one with an id.
	behind func(id int64) int
}

func listOf[T any](items []T, id func(T) int64) list {
	return list{
		total: len(items), at: func(i int) any { return items[i] }, id: func(i int) int64 { return id(items[i]) },
		behind: func(last int64) int { return after(items, id, last, true) },
	}
}

func scalar[T any](get func(q *query, of T) any) fieldType {
	return fieldType{resolve: func(q *query, of any, _ map[string]any) any { return get(q, of.(T)) }}
}

func object[T any](of string, get func(q *query, of T) any) fieldType {
	return fieldType{of: of, resolve: func(q *query, x any, _ map[string]any) any { return get(q, x.(T)) }}
}

func gid(kind string, id int64) string {
	return "gid://gitlab/" + kind + "/" + strconv.FormatInt(id, 10)
}

// idOf is the number in a global id of the kind; 0 = it is none.
func idOf(kind string, arg any) int64 {
	text, _ := arg.(string)
	number, found := strings.CutPrefix(text, "gid://gitlab/"+kind+"/")
	id, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil {
		return 0
	}
	return id
}

var schema = map[string]*objectType{}

func init() {
	for _, t := range []*objectType{queryType, jobType, runnerType, managerType, projectType, groupType, pipelineType, stageType, userType, metadataType} {
		schema[t.name] = t
	}
	schema["CiJobInterface"] = without("CiJobInterface", jobType, "runnerManager", "needs")
	schema["PipelineInterface"] = without("PipelineInterface", pipelineType, "status", "active", "complete")
	schema["ProjectInterface"] = without("ProjectInterface", projectType, "jobs", "archived", "jobsEnabled")
}

// without is an interface: what a type has, but for some.
func without(name string, t *objectType, fields ...string) *objectType {
	is := &objectType{name: name, of: t.name, fields: map[string]fieldType{}}
	for field, f := range t.fields {
		if !slices.Contains(fields, field) {
			is.fields[field] = f
		}
	}
	return is
}

// errNotThere is GitLab's answer for what isn't there and for what may not be seen.
const errNotThere = "The resource that you are attempting to access does not exist or you don't have permission to perform this action"

var queryType = &objectType{name: "Query", fields: map[string]fieldType{
	"currentUser": object("CurrentUser", func(q *query, _ any) any { return q.user }),
	"metadata":    object("Metadata", func(q *query, _ any) any { return q.user }),
	"project": {of: "Project", args: []string{"fullPath"}, resolve: func(q *query, _ any, args map[string]any) any {
		path, _ := args["fullPath"].(string)
		if p := q.s.projectAt(path); p != nil && q.user.seesProject(p) {
			return p
		}
		return nil
	}},
	"group": {of: "Group", args: []string{"fullPath"}, resolve: func(q *query, _ any, args map[string]any) any {
		for _, g := range q.s.mu.groups {
			if g.path == args["fullPath"] && q.user.seesGroup(g) {
				return g
			}
		}
		return nil
	}},
	"projects": {of: "Project", list: true, args: []string{"ids", "membership", "search", "archived"}, resolve: func(q *query, _ any, _ map[string]any) any {
		return listOf(q.user.visible(), projectID)
	}},
	"runner": {of: "CiRunner", args: []string{"id"}, resolve: func(q *query, _ any, args map[string]any) any {
		r := q.s.mu.runners[idOf("Ci::Runner", args["id"])]
		if r == nil || !q.user.seesRunner(r) {
			q.fail(errNotThere)
			return nil
		}
		return r
	}},
	"runners": {of: "CiRunner", list: true, args: []string{"paused", "status", "type", "tagList"}, resolve: func(q *query, _ any, _ map[string]any) any {
		if !q.user.admin() {
			q.fail(errNotThere)
			return nil
		}
		return listOf(q.s.runnersWhere(func(*runner) bool { return true }), runnerID)
	}},
	// Empty for users who are no administrators (app/graphql/types/query_type.rb).
	"jobs": {of: "CiJobInterface", list: true, args: []string{"statuses", "runnerTypes", "compatibleRunnerId"}, resolve: func(q *query, _ any, args map[string]any) any {
		wanted := q.statuses(args)
		jobs := []*job{}
		if q.user.admin() {
			jobs = q.s.list(nil, wanted)
		}
		if id, given := args["compatibleRunnerId"]; given && id != nil {
			if len(wanted) != 1 || wanted[0] != Pending {
				q.fail(`compatibleRunnerId can only be used when the ` + "`statuses`" + ` argument is set to "PENDING"`)
				return nil
			}
			fits := q.s.mu.runners[idOf("Ci::Runner", id)]
			jobs = slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return fits == nil || !fits.serves(j) })
		}
		return listOf(jobs, jobID)
	}},
}}

var jobType = &objectType{name: "CiJob", fields: map[string]fieldType{
	"id":             scalar(func(_ *query, j *job) any { return gid("Ci::Build", j.id) }),
	"name":           scalar(func(_ *query, j *job) any { return j.Name }),
	"status":         scalar(func(_ *query, j *job) any { return strings.ToUpper(j.status) }),
	"tags":           scalar(func(_ *query, j *job) any { return append([]string{}, j.Tags...) }),
	"kind":           scalar(func(_ *query, _ *job) any { return "BUILD" }),
	"active":         scalar(func(_ *query, j *job) any { return !j.over() }),
	"retried":        scalar(func(_ *query, j *job) any { return j.retriedAs != nil }),
	"createdAt":      scalar(func(_ *query, j *job) any { return stamp(j.createdAt) }),
	"queuedAt":       scalar(func(_ *query, j *job) any { return stamp(j.queuedAt) }),
	"startedAt":      scalar(func(_ *query, j *job) any { return stamp(j.startedAt) }),
	"finishedAt":     scalar(func(_ *query, j *job) any { return stamp(j.finishedAt) }),
	"queuedDuration": scalar(func(q *query, j *job) any { return q.s.queuedFor(j).Seconds() }),
	"refName":        scalar(func(_ *query, j *job) any { return j.Ref }),
	"createdByTag":   scalar(func(_ *query, _ *job) any { return false }),
	"stage":          object("CiStage", func(_ *query, j *job) any { return j }),
	"project":        object("Project", func(_ *query, j *job) any { return j.project }),
	"pipeline":       object("PipelineInterface", func(_ *query, j *job) any { return j.pipeline }),
	"runner": object("CiRunner", func(_ *query, j *job) any {
		if j.runner == nil {
			return nil
		}
		return j.runner
	}),
	"runnerManager": object("CiRunnerManager", func(_ *query, j *job) any {
		if j.runner == nil || j.waiting || j.runner.managers[j.system] == nil {
			return nil
		}
		return j.runner.managers[j.system]
	}),
}}

var stageType = &objectType{name: "CiStage", fields: map[string]fieldType{
	"name": scalar(func(_ *query, j *job) any { return j.Stage }),
}}

var pipelineType = &objectType{name: "Pipeline", fields: map[string]fieldType{
	"id":       scalar(func(_ *query, p *pipeline) any { return gid("Ci::Pipeline", p.id) }),
	"iid":      scalar(func(_ *query, p *pipeline) any { return strconv.FormatInt(p.id, 10) }),
	"status":   scalar(func(_ *query, p *pipeline) any { return strings.ToUpper(p.status()) }),
	"active":   scalar(func(_ *query, p *pipeline) any { return p.status() == Pending || p.status() == Running }),
	"complete": scalar(func(_ *query, p *pipeline) any { return p.status() != Pending && p.status() != Running }),
}}

var projectType = &objectType{name: "Project", fields: map[string]fieldType{
	"id":          scalar(func(_ *query, p *project) any { return gid("Project", p.id) }),
	"name":        scalar(func(_ *query, p *project) any { return lastPart(p.path) }),
	"fullPath":    scalar(func(_ *query, p *project) any { return p.path }),
	"archived":    scalar(func(_ *query, _ *project) any { return false }),
	"jobsEnabled": scalar(func(_ *query, _ *project) any { return true }),
	"group": object("Group", func(_ *query, p *project) any {
		if p.group == nil {
			return nil
		}
		return p.group
	}),
	// Once in a query only (app/graphql/resolvers/project_jobs_resolver.rb).
	"jobs": {of: "CiJob", list: true, args: []string{"statuses", "withArtifacts", "name"}, resolve: func(q *query, of any, args map[string]any) any {
		if q.projectJobs++; q.projectJobs > 1 {
			q.fail(`"jobs" field can be requested only for 1 Project(s) at a time.`)
			return nil
		}
		return listOf(q.s.list(of.(*project), q.statuses(args)), jobID)
	}},
}}

var groupType = &objectType{name: "Group", fields: map[string]fieldType{
	"id":       scalar(func(_ *query, g *group) any { return gid("Group", g.id) }),
	"name":     scalar(func(_ *query, g *group) any { return lastPart(g.path) }),
	"fullPath": scalar(func(_ *query, g *group) any { return g.path }),
	"projects": {of: "Project", list: true, args: []string{"includeSubgroups", "search", "sort", "ids", "includeArchived"}, resolve: func(q *query, of any, args map[string]any) any {
		return listOf(projectsIn(q.user.visible(), of.(*group), args["includeSubgroups"] == true), projectID)
	}},
}}

var runnerType = &objectType{name: "CiRunner", fields: map[string]fieldType{
	"id":          scalar(func(_ *query, r *runner) any { return gid("Ci::Runner", r.id) }),
	"description": scalar(func(_ *query, r *runner) any { return r.spec.Description }),
	"runnerType":  scalar(func(_ *query, r *runner) any { return strings.ToUpper(string(r.spec.Type)) + "_TYPE" }),
	"accessLevel": scalar(func(_ *query, r *runner) any { return strings.ToUpper(r.accessLevel()) }),
	"paused":      scalar(func(_ *query, r *runner) any { return r.paused }),
	"active":      scalar(func(_ *query, r *runner) any { return !r.paused }),
	"locked":      scalar(func(_ *query, r *runner) any { return r.spec.Locked }),
	"runUntagged": scalar(func(_ *query, r *runner) any { return r.spec.RunUntagged }),
	"tagList":     scalar(func(_ *query, r *runner) any { return append([]string{}, r.spec.Tags...) }),
	"status":      scalar(func(q *query, r *runner) any { return strings.ToUpper(q.s.online(r.contactedAt)) }),
	"contactedAt": scalar(func(_ *query, r *runner) any { return stamp(r.contactedAt) }),
	"createdAt":   scalar(func(_ *query, r *runner) any { return stamp(r.createdAt) }),
	"managers": {of: "CiRunnerManager", list: true, args: []string{"systemId", "status"}, resolve: func(_ *query, of any, _ map[string]any) any {
		return listOf(of.(*runner).machines(), func(m *manager) int64 { return m.id })
	}},
	"groups": {of: "Group", list: true, resolve: func(q *query, of any, _ map[string]any) any {
		if of.(*runner).spec.Type != spillway.GroupType {
			return nil
		}
		return listOf(q.s.groupsOf(of.(*runner), q.user), func(g *group) int64 { return g.id })
	}},
	"projects": {of: "Project", list: true, args: []string{"sort", "search"}, resolve: func(q *query, of any, _ map[string]any) any {
		if of.(*runner).spec.Type != spillway.ProjectType {
			return nil
		}
		return listOf(q.s.projectsOf(of.(*runner), q.user), projectID)
	}},
	"jobs": {of: "CiJobInterface", list: true, args: []string{"statuses"}, resolve: func(q *query, of any, args map[string]any) any {
		jobs := slices.Clone(q.s.list(nil, q.statuses(args)))
		return listOf(slices.DeleteFunc(jobs, func(j *job) bool { return j.runner != of.(*runner) || !q.user.seesProject(j.project) }), jobID)
	}},
}}

var managerType = &objectType{name: "CiRunnerManager", fields: map[string]fieldType{
	"id":                 scalar(func(_ *query, m *manager) any { return gid("Ci::RunnerManager", m.id) }),
	"systemId":           scalar(func(_ *query, m *manager) any { return m.system }),
	"ipAddress":          scalar(func(_ *query, m *manager) any { return m.ip }),
	"version":            scalar(func(_ *query, m *manager) any { return m.info.Version }),
	"revision":           scalar(func(_ *query, m *manager) any { return m.info.Revision }),
	"architectureName":   scalar(func(_ *query, m *manager) any { return m.info.Architecture }),
	"platformName":       scalar(func(_ *query, m *manager) any { return m.info.Platform }),
	"executorName":       scalar(func(_ *query, m *manager) any { return m.info.Executor }),
	"status":             scalar(func(q *query, m *manager) any { return strings.ToUpper(q.s.online(m.contactedAt)) }),
	"jobExecutionStatus": scalar(func(q *query, m *manager) any { return strings.ToUpper(q.s.executing(m)) }),
	"contactedAt":        scalar(func(_ *query, m *manager) any { return stamp(m.contactedAt) }),
	"createdAt":          scalar(func(_ *query, m *manager) any { return stamp(m.createdAt) }),
}}

var userType = &objectType{name: "CurrentUser", fields: map[string]fieldType{
	"id":       scalar(func(_ *query, _ *user) any { return gid("User", 1) }),
	"username": scalar(func(_ *query, _ *user) any { return "bot" }),
}}

var metadataType = &objectType{name: "Metadata", fields: map[string]fieldType{
	"version": scalar(func(_ *query, _ *user) any { return "19.4.0-ee" }),
}}
