package gitlabtest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// payload is the body of a 201, as the entities under
// lib/api/entities/ci/job_request have it.
type payload struct {
	ID            int64           `json:"id"`
	Token         string          `json:"token"`
	AllowGitFetch bool            `json:"allow_git_fetch"`
	JobInfo       jobInfo         `json:"job_info"`
	GitInfo       gitInfo         `json:"git_info"`
	RunnerInfo    jobRunnerInfo   `json:"runner_info"`
	Variables     []variable      `json:"variables"`
	Steps         []step          `json:"steps"`
	Image         *image          `json:"image"`
	Services      []image         `json:"services"`
	Artifacts     []any           `json:"artifacts"`
	Cache         []any           `json:"cache"`
	Credentials   []any           `json:"credentials"`
	Features      payloadFeatures `json:"features"`
	Dependencies  []any           `json:"dependencies"`
	Inputs        []any           `json:"inputs"`
	Hooks         []any           `json:"hooks"`
}

type jobInfo struct {
	ID                 int64   `json:"id"`
	Name               string  `json:"name"`
	Stage              string  `json:"stage"`
	PipelineID         int64   `json:"pipeline_id"`
	ProjectID          int64   `json:"project_id"`
	ProjectName        string  `json:"project_name"`
	ProjectFullPath    string  `json:"project_full_path"`
	NamespaceID        int64   `json:"namespace_id"`
	RootNamespaceID    int64   `json:"root_namespace_id"`
	OrganizationID     int64   `json:"organization_id"`
	TimeInQueueSeconds float64 `json:"time_in_queue_seconds"`
	JobsOnInstance     string  `json:"project_jobs_running_on_instance_runners_count"`
	QueueSize          int     `json:"queue_size"`
	QueueDepth         int     `json:"queue_depth"`
}

type gitInfo struct {
	RepoURL   string   `json:"repo_url"`
	Ref       string   `json:"ref"`
	SHA       string   `json:"sha"`
	BeforeSHA string   `json:"before_sha"`
	RefType   string   `json:"ref_type"`
	Refspecs  []string `json:"refspecs"`
	Depth     int      `json:"depth"`
	Protected bool     `json:"protected"`
}

type jobRunnerInfo struct {
	Timeout int64 `json:"timeout"` // seconds
}

type variable struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Public bool   `json:"public"`
	Masked bool   `json:"masked"`
}

type step struct {
	Name         string   `json:"name"`
	Script       []string `json:"script"`
	Timeout      int64    `json:"timeout"`
	When         string   `json:"when"`
	AllowFailure bool     `json:"allow_failure"`
}

type image struct {
	Name string `json:"name"`
}

type payloadFeatures struct {
	TraceSections     bool     `json:"trace_sections"`
	TokenMaskPrefixes []string `json:"token_mask_prefixes"`
	FailureReasons    []string `json:"failure_reasons"`
}

// failureReasons are those that runners may give.
var failureReasons = []string{
	"unknown_failure", "script_failure", "runner_system_failure", "job_execution_timeout",
	"image_pull_failure", "runner_configuration_error", "runner_interrupted", "job_canceled",
}

// payload describes a job to its runner. The lock is held.
func (s *Server) payload(j *job, queueSize, depth int) *payload {
	seconds := int64(j.Timeout.Seconds())
	p := &payload{
		ID: j.id, Token: j.token, AllowGitFetch: true,
		JobInfo: jobInfo{
			ID: j.id, Name: j.Name, Stage: j.Stage, PipelineID: j.pipeline.id, ProjectID: j.project.id,
			ProjectName: lastPart(j.project.path), ProjectFullPath: j.project.path, OrganizationID: 1,
			TimeInQueueSeconds: s.clock().Sub(j.queuedAt).Seconds(), JobsOnInstance: "+Inf",
			QueueSize: queueSize, QueueDepth: depth,
		},
		GitInfo: gitInfo{
			RepoURL: "http://gitlab.invalid/" + j.project.path + ".git", Ref: j.Ref, RefType: "branch",
			SHA: strings.Repeat("0", 40), BeforeSHA: strings.Repeat("0", 40), Refspecs: []string{}, Protected: j.Protected,
		},
		RunnerInfo: jobRunnerInfo{Timeout: seconds},
		Variables:  j.variables(),
		Steps:      []step{{Name: "script", Script: append([]string{}, j.Script...), Timeout: seconds, When: "on_success"}},
		Services:   []image{}, Artifacts: []any{}, Cache: []any{}, Credentials: []any{}, Dependencies: []any{}, Inputs: []any{}, Hooks: []any{},
		Features: payloadFeatures{TraceSections: true, TokenMaskPrefixes: []string{}, FailureReasons: failureReasons},
	}
	for g := j.project.group; g != nil; g = g.parent {
		if p.JobInfo.NamespaceID == 0 {
			p.JobInfo.NamespaceID = g.id
		}
		p.JobInfo.RootNamespaceID = g.id
	}
	if j.Image != "" {
		p.Image = &image{Name: j.Image}
	}
	return p
}

// variables are GitLab's own, of which a runner needs some, and the job's.
func (j *job) variables() []variable {
	vars := []variable{
		{Key: "CI_JOB_ID", Value: strconv.FormatInt(j.id, 10), Public: true},
		{Key: "CI_JOB_NAME", Value: j.Name, Public: true},
		{Key: "CI_JOB_TOKEN", Value: j.token, Masked: true},
		{Key: "CI_PIPELINE_ID", Value: strconv.FormatInt(j.pipeline.id, 10), Public: true},
		{Key: "CI_PROJECT_ID", Value: strconv.FormatInt(j.project.id, 10), Public: true},
		{Key: "CI_PROJECT_PATH", Value: j.project.path, Public: true},
		// There is no repository behind it.
		{Key: "GIT_STRATEGY", Value: "none", Public: true},
	}
	for _, key := range slices.Sorted(maps.Keys(j.Variables)) {
		vars = append(vars, variable{Key: key, Value: j.Variables[key]})
	}
	return vars
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
