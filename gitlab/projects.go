package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ancestorsAge is how long a project's groups are believed [time]: projects are moved
// rarely, and a job's requirement may lag for as long.
const ancestorsAge = 10 * time.Minute

// maxAncestors bounds the groups above a project [groups]; GitLab allows 20 levels.
const maxAncestors = 100

// groupProjects lists a group's projects (app/graphql/resolvers/namespace_projects_resolver.rb).
// Projects that are shared with the group are not among them.
const groupProjects = `query($path:ID!,$after:String){group(fullPath:$path){projects(includeSubgroups:true,first:100,after:$after){` +
	`pageInfo{hasNextPage endCursor} nodes{fullPath archived jobsEnabled}}}}`

// graphProjects are the full paths of the projects below the groups that can have jobs.
func (c *Client) graphProjects(ctx context.Context, groups []string) ([]string, error) {
	type page struct {
		PageInfo pageInfo `json:"pageInfo"`
		Nodes    []*struct {
			FullPath    string `json:"fullPath"`
			Archived    *bool  `json:"archived"`
			JobsEnabled *bool  `json:"jobsEnabled"`
		} `json:"nodes"`
	}
	var paths []string
	for _, group := range unique(groups) {
		k := call{what: "list the projects of group " + quote(group), right: rightProjects}
		err := c.graphPages(k.what, func(after any) (pageInfo, error) {
			vars := map[string]any{"path": strings.Trim(group, "/"), "after": after}
			data, err := graphql[struct{ Group *struct{ Projects *page } }](ctx, c, k, groupProjects, vars)
			switch {
			case err != nil:
				return pageInfo{}, err
			case data.Group == nil:
				return pageInfo{}, fmt.Errorf("%s: %w", k.what, ErrNotFound)
			case data.Group.Projects == nil || slices.Contains(data.Group.Projects.Nodes, nil):
				return pageInfo{}, fmt.Errorf("%s: %w: %s", k.what, ErrForbidden, k.right)
			}
			for _, p := range data.Group.Projects.Nodes {
				if p.FullPath != "" && !isTrue(p.Archived) && !isFalse(p.JobsEnabled) {
					paths = append(paths, p.FullPath)
				}
			}
			return data.Group.Projects.PageInfo, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// restProjects are the ids of the projects of a list that can have jobs.
func (c *Client) restProjects(ctx context.Context, path, of, right string, query url.Values) ([]string, error) {
	query.Set("per_page", strconv.Itoa(PageSize))
	k := call{what: "list the projects of " + of, right: right, method: http.MethodGet, path: "api/v4/" + path, query: query}
	type project struct {
		ID      int64  `json:"id"`
		Enabled *bool  `json:"jobs_enabled"` // doc/api/projects.md
		Access  string `json:"builds_access_level"`
	}
	var ids []string
	err := readList(ctx, c, k, func(page []project) error {
		for _, p := range page {
			if !isFalse(p.Enabled) && p.Access != "disabled" {
				ids = append(ids, strconv.FormatInt(p.ID, 10))
			}
		}
		return nil
	})
	return ids, err
}

// Ancestors returns the ids of the groups above a project, which decide the group runners
// that can take its jobs: none for a project of a user. What is returned is shared and
// not to be changed. (doc/api/projects.md, "List groups": ancestor groups only, unless
// with_shared.)
func (c *Client) Ancestors(ctx context.Context, projectID int64) ([]int64, error) {
	if ids, known := c.groups.get(projectID, c.now()); known {
		return ids, nil
	}
	k := call{
		what: fmt.Sprintf("read the groups of project %d", projectID), right: "it must be a member of the project",
		method: http.MethodGet, path: fmt.Sprintf("api/v4/projects/%d/groups", projectID), query: url.Values{"per_page": {"100"}},
	}
	type group struct {
		ID int64 `json:"id"`
	}
	ids := []int64{}
	err := readList(ctx, c, k, func(page []group) error {
		if len(ids)+len(page) > maxAncestors {
			return fmt.Errorf("%s: %w: more than %d groups", k.what, ErrTooMany, maxAncestors)
		}
		for _, g := range page {
			ids = append(ids, g.ID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	slices.Sort(ids)
	c.groups.put(projectID, ids, c.now())
	return ids, nil
}
