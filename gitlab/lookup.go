package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Job reads one job (doc/api/jobs.md, "Get a single job"). ErrNotFound: it is deleted, or
// hidden from this token.
func (c *Client) Job(ctx context.Context, projectID, jobID int64) (Job, error) {
	var r restJob
	k := call{
		what: fmt.Sprintf("gitlab: read job %d of project %d", jobID, projectID), right: rightJobs,
		method: http.MethodGet, path: fmt.Sprintf("api/v4/projects/%d/jobs/%d", projectID, jobID),
	}
	if err := c.api(ctx, k, func(a answer) error { return a.decode(&r) }); err != nil {
		return Job{}, err
	}
	if r.ID != jobID {
		return Job{}, fmt.Errorf("%s: %w: it is about job %d", k.what, ErrProtocol, r.ID)
	}
	jobs := []Job{r.job(c.now())}
	if jobs[0].Project.ID == 0 {
		jobs[0].Project.ID = projectID
	}
	if c.learns {
		if err := c.learnProtected(ctx, jobs); err != nil {
			return Job{}, fmt.Errorf("gitlab: %w", err)
		}
	}
	return jobs[0], nil
}

// Pipeline reads the state of a pipeline (doc/api/pipelines.md, "Get a single pipeline"):
// a job that waits in one that is over never runs.
func (c *Client) Pipeline(ctx context.Context, projectID, pipelineID int64) (PipelineRef, error) {
	var p struct {
		ID     int64  `json:"id"`
		Status string `json:"status"`
	}
	k := call{
		what: fmt.Sprintf("gitlab: read pipeline %d of project %d", pipelineID, projectID), right: rightJobs,
		method: http.MethodGet, path: fmt.Sprintf("api/v4/projects/%d/pipelines/%d", projectID, pipelineID),
	}
	if err := c.api(ctx, k, func(a answer) error { return a.decode(&p) }); err != nil {
		return PipelineRef{}, err
	}
	if p.ID != pipelineID || p.Status == "" {
		return PipelineRef{}, fmt.Errorf("%s: %w: it is about pipeline %d", k.what, ErrProtocol, p.ID)
	}
	return PipelineRef(p), nil
}

// GroupID finds a group by its full path (doc/api/groups.md, "Retrieve a group").
// ErrNotFound: there is none, or it is hidden from this token.
func (c *Client) GroupID(ctx context.Context, path string) (int64, error) {
	var g struct {
		ID       int64  `json:"id"`
		FullPath string `json:"full_path"`
	}
	k := call{
		what: "gitlab: read group " + quote(path), right: rightProjects,
		method: http.MethodGet, path: "api/v4/groups/" + escaped(path), query: url.Values{"with_projects": {"false"}},
	}
	if err := c.api(ctx, k, func(a answer) error { return a.decode(&g) }); err != nil {
		return 0, err
	}
	if g.ID <= 0 || !strings.EqualFold(g.FullPath, path) {
		return 0, fmt.Errorf("%s: %w: it is about group %s", k.what, ErrProtocol, quote(g.FullPath))
	}
	return g.ID, nil
}
