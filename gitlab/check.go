package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// Check makes one cheap call for each right that listing a scope needs, and names the
// right that is missing. For groups it tries one project of each.
func (c *Client) Check(ctx context.Context, scope Scope) error {
	if err := scope.validate(); err != nil {
		return err
	}
	if scope.Kind == Instance {
		if err := c.proveAdmin(ctx); err != nil {
			return fmt.Errorf("gitlab: %w", err)
		}
		return nil
	}
	for _, path := range unique(scope.Paths) {
		project := escaped(path)
		if scope.Kind == Groups {
			var found bool
			var err error
			if project, found, err = c.someProject(ctx, path); err != nil {
				return fmt.Errorf("gitlab: %w", err)
			}
			if !found {
				continue // an empty group: nothing to read, nothing to prove
			}
		}
		if err := c.tryJobs(ctx, path, project); err != nil {
			return fmt.Errorf("gitlab: %w", err)
		}
	}
	return nil
}

// proveAdmin asks for what only administrators get, and gets an error and not an empty
// list if the token is not one's: lib/api/ci/runners.rb, GET /runners/all.
func (c *Client) proveAdmin(ctx context.Context) error {
	k := call{
		what: "look whether the token sees the whole instance", right: rightAdmin,
		method: http.MethodGet, path: "api/v4/runners/all", query: url.Values{"per_page": {"1"}},
	}
	return c.page(ctx, k, func(a answer) error {
		return elements(a, func(*struct{}) error { return nil })
	})
}

// someProject is the id of one project below a group that can have jobs.
func (c *Client) someProject(ctx context.Context, group string) (id string, found bool, err error) {
	k := call{
		what: "list the projects of group " + quote(group), right: rightProjects, method: http.MethodGet, path: "api/v4/groups/" + escaped(group) + "/projects",
		query: url.Values{"include_subgroups": {"true"}, "with_shared": {"false"}, "archived": {"false"}, "per_page": {"20"}},
	}
	err = c.page(ctx, k, func(a answer) error {
		return elements(a, func(p *struct {
			ID      int64 `json:"id"`
			Enabled *bool `json:"jobs_enabled"`
		},
		) error {
			if !found && !isFalse(p.Enabled) {
				id, found = fmt.Sprint(p.ID), true
			}
			return nil
		})
	})
	return id, found, err
}

func (c *Client) tryJobs(ctx context.Context, path, project string) error {
	k := call{
		what: "list the jobs of " + quote(path), right: rightJobs, method: http.MethodGet, path: "api/v4/projects/" + project + "/jobs",
		query: url.Values{"scope[]": {StatusPending}, "per_page": {"1"}},
	}
	return c.page(ctx, k, func(a answer) error {
		return elements(a, func(*struct{}) error { return nil })
	})
}
