package gitlabtest

import (
	"time"

	"github.com/spillway-ci/spillway"
)

// The states of a job that the stand-in knows, by GitLab's names.
const (
	Pending   = "pending"
	Running   = "running"
	Canceling = "canceling"
	Success   = "success"
	Failed    = "failed"
	Canceled  = "canceled"
)

// protectedBranch is the one that every project protects.
const protectedBranch = "main"

// RunnerSpec is a runner as an administrator sets it up.
type RunnerSpec struct {
	Type        spillway.RunnerType // zero value: an instance runner
	Description string
	Tags        []string
	RunUntagged bool
	Protected   bool // takes protected jobs only
	Locked      bool
	Groups      []int64 // of a group runner
	Projects    []int64 // of a project runner
}

// JobSpec is a job as a pipeline makes it.
type JobSpec struct {
	Project   int64
	Tags      []string
	Protected bool
	Name      string // "" = job
	Stage     string // "" = test
	// Pipeline is the pipeline of an earlier job of the project; 0 = one of its own.
	Pipeline  int64
	Script    []string
	Variables map[string]string
	Image     string
	Timeout   time.Duration // 0 = an hour
	// Needs are features that the runner must say it has; a runner without one fails
	// the job with runner_unsupported.
	Needs []string
	// Ref is the branch; "" = main for a protected job, work for another. Projects have
	// one rule of protection: the branch main.
	Ref string
}

// Change is one step of a job's life.
type Change struct {
	At     time.Time
	Status string
	// Why is what did it: enqueued, assigned, kept, accepted, requested (a legacy
	// runner's request), finished, cancel, unacknowledged, unsupported.
	Why string
}

// JobView is a job at one time.
type JobView struct {
	ID, Project, Pipeline int64
	Name, Status          string
	// Waiting: it was given out, and GitLab waits for its runner's word.
	Waiting bool
	// RunnerID and SystemID are of the request that got the job.
	RunnerID      int64
	SystemID      string
	Trace         string
	FailureReason string
	ExitCode      int
	ArtifactBytes int64 // uploaded
	Kept          int   // how often state=pending kept it
	// RetryOf and RetriedAs link a job that was not acknowledged with the one that
	// GitLab tried instead; 0 = none.
	RetryOf, RetriedAs int64
	History            []Change
}

type group struct {
	id     int64
	path   string
	parent *group
}

type project struct {
	id              int64
	path            string
	group           *group
	instanceRunners bool
	jobs            []*job // by id
}

type pipeline struct {
	id      int64
	project *project
	jobs    []*job
	forced  string // a status that it has against its jobs' ones
}

type runner struct {
	id          int64
	spec        RunnerSpec
	token       string
	paused      bool
	queue       string // its X-GitLab-Last-Update
	managers    map[string]*manager
	createdAt   time.Time
	contactedAt time.Time
	window      time.Time // the minute that requests are counted in
	requests    int
}

type manager struct {
	id                     int64
	system, ip             string
	info                   runnerInfo
	createdAt, contactedAt time.Time
}

type job struct {
	JobSpec
	id                  int64
	token               string
	project             *project
	pipeline            *pipeline
	status              string
	runner              *runner
	system              string
	waiting             bool
	ackBy               time.Time
	graceful            bool // its runner can cancel gracefully
	createdAt, queuedAt time.Time
	startedAt           time.Time
	finishedAt          time.Time
	trace               []byte
	failure             string
	exitCode            int
	artifactBytes       int64
	kept                int
	retryOf, retriedAs  *job
	retries             int
	gone, ghost         bool
	history             []Change
}

func (j *job) view() JobView {
	v := JobView{
		ID: j.id, Project: j.project.id, Pipeline: j.pipeline.id, Name: j.Name, Status: j.status, Waiting: j.waiting,
		SystemID: j.system, Trace: string(j.trace), FailureReason: j.failure, ExitCode: j.exitCode,
		ArtifactBytes: j.artifactBytes, Kept: j.kept, History: append([]Change(nil), j.history...),
	}
	if j.runner != nil {
		v.RunnerID = j.runner.id
	}
	if j.retryOf != nil {
		v.RetryOf = j.retryOf.id
	}
	if j.retriedAs != nil {
		v.RetriedAs = j.retriedAs.id
	}
	return v
}

// queued reports whether a runner may get it.
func (j *job) queued() bool { return j.status == Pending && j.runner == nil && !j.gone }

// executing reports whether its token is good for anything.
func (j *job) executing() bool {
	return j.waiting || j.status == Running || j.status == Canceling
}

func (j *job) over() bool {
	return j.status == Success || j.status == Failed || j.status == Canceled
}

func (p *pipeline) status() string {
	if p.forced != "" {
		return p.forced
	}
	counts := map[string]int{}
	for _, j := range p.jobs {
		if j.retriedAs == nil {
			counts[j.status]++
		}
	}
	for _, s := range []string{Running, Canceling, Pending, Failed, Canceled} {
		if counts[s] > 0 {
			return s
		}
	}
	return Success
}

// below reports whether g is top or below it.
func (g *group) below(top int64) bool {
	for ; g != nil; g = g.parent {
		if g.id == top {
			return true
		}
	}
	return false
}
