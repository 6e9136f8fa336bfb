package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spillway-ci/spillway"
)

// Limits on a runner.
const (
	// maxManagers bounds the machines of one runner token [machines].
	maxManagers = 20_000
	// maxRunnerProjects bounds the projects of a project runner [projects].
	maxRunnerProjects = spillway.MaxScopeEntries
)

const rightRunner = "it needs the role Maintainer in the runner's project or group (doc/api/runners.md, \"Get runner's details\")"

// Runner is a runner as GitLab has it: what a capability is made of, and its machines.
type Runner struct {
	ID          int64
	Type        spillway.RunnerType
	Tags        []string
	RunUntagged bool
	Protected   bool // takes jobs of protected refs only (access_level ref_protected)
	Paused      bool
	Locked      bool
	// Groups and Projects are the scope of a group or project runner, as far as the token
	// sees it: GitLab leaves out the projects that it may not read.
	Groups, Projects []int64
	Managers         []Manager
}

// Manager is one machine of a runner token.
type Manager struct {
	SystemID  string
	IPAddress string
	Version   string
	Status    string // "online" means a contact within some hours: no proof of life
}

// restRunner is lib/api/entities/ci/runner_details.rb and runner.rb.
type restRunner struct {
	ID          int64    `json:"id"`
	Type        string   `json:"runner_type"` // instance_type, group_type, project_type
	Tags        []string `json:"tag_list"`
	RunUntagged bool     `json:"run_untagged"`
	AccessLevel string   `json:"access_level"` // not_protected, ref_protected
	Paused      bool     `json:"paused"`
	Locked      bool     `json:"locked"`
	Projects    *[]hasID `json:"projects"` // absent where GitLab leaves it out
	Groups      []hasID  `json:"groups"`
}

type hasID struct {
	ID int64 `json:"id"`
}

func ids(list []hasID) []int64 {
	var out []int64
	for _, x := range list {
		out = append(out, x.ID)
	}
	return out
}

var runnerTypes = map[string]spillway.RunnerType{
	"instance_type": spillway.InstanceType, "group_type": spillway.GroupType, "project_type": spillway.ProjectType,
}

// Runner reads a runner and its machines. It asks REST, which tells a runner that is
// deleted (ErrNotFound) from one that the token may not see (ErrForbidden); GraphQL
// answers null to both, and a pool is drained for the first.
func (c *Client) Runner(ctx context.Context, id int64) (Runner, error) {
	var r restRunner
	k := call{
		what: fmt.Sprintf("gitlab: read runner %d", id), right: rightRunner,
		method: http.MethodGet, path: fmt.Sprintf("api/v4/runners/%d", id),
	}
	if err := c.api(ctx, k, func(a answer) error { return a.decode(&r) }); err != nil {
		return Runner{}, err
	}
	kind, known := runnerTypes[r.Type]
	if r.ID != id || !known {
		return Runner{}, fmt.Errorf("%s: %w: it is about runner %d of type %q", k.what, ErrProtocol, r.ID, quote(r.Type))
	}
	run := Runner{
		ID: r.ID, Type: kind, Tags: r.Tags, RunUntagged: r.RunUntagged, Protected: r.AccessLevel == "ref_protected",
		Paused: r.Paused, Locked: r.Locked, Groups: ids(r.Groups),
	}
	var err error
	if kind == spillway.ProjectType {
		if run.Projects, err = c.runnerProjects(ctx, &r); err != nil {
			return Runner{}, err
		}
	}
	if run.Managers, err = c.managers(ctx, id); err != nil {
		return Runner{}, err
	}
	return run, nil
}

// runnerProjectsQuery is app/graphql/types/ci/runner_type.rb, projects.
const runnerProjectsQuery = `query($id:CiRunnerID!,$after:String){runner(id:$id){projects(first:100,after:$after){pageInfo{hasNextPage endCursor} nodes{id}}}}`

// runnerProjects are the projects of a project runner: from REST where it has them.
func (c *Client) runnerProjects(ctx context.Context, r *restRunner) ([]int64, error) {
	if r.Projects != nil {
		return ids(*r.Projects), nil
	}
	type page struct {
		PageInfo pageInfo `json:"pageInfo"`
		Nodes    []*struct {
			ID gid `json:"id"`
		} `json:"nodes"`
	}
	k := call{what: fmt.Sprintf("gitlab: list the projects of runner %d", r.ID), right: rightRunner}
	var projects []int64
	err := c.graphPages(k.what, func(after any) (pageInfo, error) {
		vars := map[string]any{"id": fmt.Sprintf("gid://gitlab/Ci::Runner/%d", r.ID), "after": after}
		data, err := graphql[struct{ Runner *struct{ Projects *page } }](ctx, c, k, runnerProjectsQuery, vars)
		switch {
		case err != nil:
			return pageInfo{}, err
		case data.Runner == nil || data.Runner.Projects == nil || slices.Contains(data.Runner.Projects.Nodes, nil):
			return pageInfo{}, fmt.Errorf("%s: %w: %s", k.what, ErrForbidden, k.right)
		}
		for _, p := range data.Runner.Projects.Nodes {
			projects = append(projects, int64(p.ID))
		}
		if len(projects) > maxRunnerProjects {
			return pageInfo{}, fmt.Errorf("%s: %w: more than %d projects", k.what, ErrTooMany, maxRunnerProjects)
		}
		return data.Runner.Projects.PageInfo, nil
	})
	return projects, err
}

// managers lists a runner's machines (doc/api/runners.md, "List all runner's managers").
func (c *Client) managers(ctx context.Context, id int64) ([]Manager, error) {
	k := call{
		what: fmt.Sprintf("gitlab: list the machines of runner %d", id), right: rightRunner,
		method: http.MethodGet, path: fmt.Sprintf("api/v4/runners/%d/managers", id), query: url.Values{"per_page": {"100"}},
	}
	type manager struct {
		SystemID string `json:"system_id"`
		IP       string `json:"ip_address"`
		Version  string `json:"version"`
		Status   string `json:"status"`
	}
	list := []Manager{}
	err := readList(ctx, c, k, func(page []manager) error {
		if len(list)+len(page) > maxManagers {
			return fmt.Errorf("%s: %w: more than %d machines", k.what, ErrTooMany, maxManagers)
		}
		for _, m := range page {
			list = append(list, Manager{m.SystemID, m.IP, m.Version, m.Status})
		}
		return nil
	})
	return list, err
}
