package gitlab

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Statuses of a job, as GitLab names them (doc/api/jobs.md, "scope"; the GraphQL enum
// CiJobStatus has the same in capitals). Others exist; these are asked about.
const (
	StatusPending  = "pending"
	StatusRunning  = "running"
	StatusSuccess  = "success"
	StatusFailed   = "failed"
	StatusCanceled = "canceled"
	StatusSkipped  = "skipped"
)

// Job is a CI job as GitLab's lists have it.
type Job struct {
	ID          int64
	Status      string // lower case: "pending"
	Name, Stage string
	Tags        []string
	// Protected: the job's ref is protected by the rules of now. GitLab tells it of no
	// job; see Options.ProtectedRefs. It decided when the pipeline began, so a rule that
	// was changed since shows one way too early, and jobs of merge requests, which
	// GitLab may protect as well, count as not protected.
	Protected bool
	Ref       string
	RefIsTag  bool
	Project   ProjectRef
	Pipeline  PipelineRef
	CreatedAt time.Time
	QueuedAt  time.Time // since when it waits or waited; zero before it is pending
	RunnerID  int64     // 0 = none
	SystemID  string    // of the machine that runs it; empty = none, or this token may not see it
}

// ProjectRef names a project.
type ProjectRef struct {
	ID       int64
	FullPath string
}

// PipelineRef is a pipeline and its state.
type PipelineRef struct {
	ID     int64
	Status string // lower case: "running"
}

// restJob is what we read of a job over REST (lib/api/entities/ci/job.rb and
// job_basic.rb; doc/api/jobs.md).
type restJob struct {
	ID             int64      `json:"id"`
	Status         string     `json:"status"`
	Name           string     `json:"name"`
	Stage          string     `json:"stage"`
	Ref            string     `json:"ref"`
	Tag            bool       `json:"tag"`
	TagList        []string   `json:"tag_list"`
	CreatedAt      *time.Time `json:"created_at"`
	StartedAt      *time.Time `json:"started_at"`
	QueuedDuration *float64   `json:"queued_duration"` // seconds
	Pipeline       struct {
		ID        int64  `json:"id"`
		ProjectID int64  `json:"project_id"`
		Status    string `json:"status"`
	} `json:"pipeline"`
	Runner *struct {
		ID int64 `json:"id"`
	} `json:"runner"`
	RunnerManager *struct {
		SystemID string `json:"system_id"`
	} `json:"runner_manager"`
	WebURL string `json:"web_url"`
}

func (r *restJob) job(now time.Time) Job {
	j := Job{
		ID: r.ID, Status: r.Status, Name: r.Name, Stage: r.Stage, Tags: r.TagList,
		Ref: r.Ref, RefIsTag: r.Tag,
		Project:  ProjectRef{ID: r.Pipeline.ProjectID, FullPath: projectPath(r.WebURL)},
		Pipeline: PipelineRef{ID: r.Pipeline.ID, Status: r.Pipeline.Status},
		QueuedAt: queuedAt(r.QueuedDuration, r.StartedAt, now),
	}
	if r.CreatedAt != nil {
		j.CreatedAt = r.CreatedAt.UTC()
	}
	if r.Runner != nil {
		j.RunnerID = r.Runner.ID
	}
	if r.RunnerManager != nil {
		j.SystemID = r.RunnerManager.SystemID
	}
	return j
}

// queuedAt counts back: REST has no queued_at, but how long the job was queued, until it
// started or, while it has not, until now.
func queuedAt(waited *float64, started *time.Time, now time.Time) time.Time {
	if waited == nil || !(*waited >= 0) || *waited > (100*365*24*time.Hour).Seconds() {
		return time.Time{}
	}
	until := now
	if started != nil {
		until = *started
	}
	return until.Add(-time.Duration(*waited * float64(time.Second))).UTC()
}

// projectPath takes the full path of a project out of the address of one of its jobs;
// a GitLab below a path has that path in front, which nothing here depends on.
func projectPath(webURL string) string {
	_, rest, found := strings.Cut(webURL, "://")
	_, path, _ := strings.Cut(rest, "/")
	path, _, job := strings.Cut(path, "/-/jobs/")
	if !found || !job {
		return ""
	}
	return path
}

// graphJob is what we read of a job over GraphQL (see jobFields).
type graphJob struct {
	ID           gid        `json:"id"`
	Status       string     `json:"status"`
	Name         string     `json:"name"`
	Tags         []string   `json:"tags"`
	CreatedAt    *time.Time `json:"createdAt"`
	QueuedAt     *time.Time `json:"queuedAt"`
	RefName      string     `json:"refName"`
	CreatedByTag bool       `json:"createdByTag"`
	Stage        *struct {
		Name string `json:"name"`
	} `json:"stage"`
	Project *struct {
		ID       gid    `json:"id"`
		FullPath string `json:"fullPath"`
	} `json:"project"`
	Pipeline *struct {
		ID     gid    `json:"id"`
		Status string `json:"status"`
	} `json:"pipeline"`
	Runner *struct {
		ID gid `json:"id"`
	} `json:"runner"`
	RunnerManager *struct {
		SystemID string `json:"systemId"`
	} `json:"runnerManager"`
}

// jobFields are the fields of a job in a query (app/graphql/types/ci/job_interface.rb
// and job_type.rb). All jobs of the instance are CiJobInterface, which has no
// runnerManager, and their pipeline a PipelineInterface, which has no status: hence the
// two inline fragments, which are right where the plain types are used, too.
const jobFields = `id status name tags createdAt queuedAt refName createdByTag stage{name} project{id fullPath} ` +
	`pipeline{id ...on Pipeline{status}} runner{id} ...on CiJob{runnerManager{systemId}}`

func (g *graphJob) job() Job {
	j := Job{
		ID: int64(g.ID), Status: strings.ToLower(g.Status), Name: g.Name, Tags: g.Tags,
		Ref: g.RefName, RefIsTag: g.CreatedByTag,
	}
	if g.Stage != nil {
		j.Stage = g.Stage.Name
	}
	if g.Project != nil {
		j.Project = ProjectRef{int64(g.Project.ID), g.Project.FullPath}
	}
	if g.Pipeline != nil {
		j.Pipeline = PipelineRef{int64(g.Pipeline.ID), strings.ToLower(g.Pipeline.Status)}
	}
	if g.CreatedAt != nil {
		j.CreatedAt = g.CreatedAt.UTC()
	}
	if g.QueuedAt != nil {
		j.QueuedAt = g.QueuedAt.UTC()
	}
	if g.Runner != nil {
		j.RunnerID = int64(g.Runner.ID)
	}
	if g.RunnerManager != nil {
		j.SystemID = g.RunnerManager.SystemID
	}
	return j
}

// gid is the number at the end of a global id: "gid://gitlab/Ci::Build/42".
type gid int64

// UnmarshalJSON reads a global id; anything else is 0, which no thing in GitLab has.
func (g *gid) UnmarshalJSON(data []byte) error {
	text, quoted := bytes.CutPrefix(data, []byte(`"`))
	if text = bytes.TrimSuffix(text, []byte(`"`)); !quoted || bytes.IndexByte(text, '\\') >= 0 {
		var unusual string
		if err := json.Unmarshal(data, &unusual); err != nil {
			return err
		}
		text = []byte(unusual)
	}
	n, err := strconv.ParseInt(string(text[bytes.LastIndexByte(text, '/')+1:]), 10, 64)
	if err != nil || !bytes.HasPrefix(text, []byte("gid://")) || n < 0 {
		n = 0
	}
	*g = gid(n)
	return nil
}
