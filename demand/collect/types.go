package collect

import (
	"iter"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

// JobKey names a job over all sources: an id means something to its origin only.
type JobKey struct {
	Origin string         `json:"origin"` // as spillway.Requirement.Origin
	ID     spillway.JobID `json:"id"`
}

// Sighting is what a source says of one job, and when that was true.
type Sighting struct {
	Job JobKey `json:"job"`
	// State is Pending, Running, or a terminal one: the job counts for nothing then.
	State spillway.JobState `json:"state"`
	// Requirement is what the job needs. nil: this source doesn't know, as a webhook
	// doesn't; the job counts once another source or a look has told.
	Requirement *spillway.Requirement `json:"requirement,omitempty"`
	Project     int64                 `json:"project,omitempty"`
	Since       time.Time             `json:"since,omitzero"`  // since when it waits
	Runner      int64                 `json:"runner,omitzero"` // GitLab's id of the runner that has it; 0 = none or not known
	// System is the system_id of the machine that runs it; empty = not known.
	System string    `json:"system,omitempty"`
	At     time.Time `json:"at"`
}

// Snapshot is all jobs of a source at a time.
type Snapshot struct {
	Source  string    // unique among the sources: "api"
	Began   time.Time // when the fetch began: any newer sighting overlays it
	Ended   time.Time
	Jobs    iter.Seq[Sighting] // read once; nil = there are none
	Partial bool               // a lower bound
	Why     string             // what is missing, when Partial
}

// Board is what the replica that asks GitLab shows to all of them.
type Board struct {
	At      time.Time `json:"at"`      // when the oldest part of it was true
	Partial bool      `json:"partial"` // Classes is a lower bound
	Why     string    `json:"why,omitempty"`
	// Lacks are the pools, by name, for which alone Classes is a lower bound, and why.
	// Empty where Partial: it is for any.
	Lacks   map[string]string `json:"lacks,omitempty"`
	Classes []Waiting         `json:"classes"`
	// Runners is what GitLab says of the runners that pools name, by GitLab's id.
	Runners map[int64]RunnerState `json:"runners,omitempty"`
	Stale   int                   `json:"stale"` // jobs that a list had and that turned out to be over, so far
}

// Waiting is the pending jobs of one class.
type Waiting struct {
	Requirement spillway.Requirement `json:"requirement"`
	Pending     int                  `json:"pending"`
	Oldest      time.Time            `json:"oldest"`
	// Waited says how long they have waited, for the times of Options.Ages; nil = none.
	Waited []demand.Waited  `json:"waited,omitempty"`
	Sample []spillway.JobID `json:"sample"` // at most MaxSample ids, the oldest first
}

// MaxSample bounds the ids of jobs that a board shows of each class.
const MaxSample = 20

// MaxAges bounds the times for which a board counts its jobs [times]: the jobs are gone
// through for each.
const MaxAges = router.MaxSpillTimes + 1

// RunnerState is a runner as GitLab has it, and what it runs.
type RunnerState struct {
	At      time.Time `json:"at"`                // when it was looked at; the rest was true then
	Deleted bool      `json:"deleted,omitempty"` // GitLab doesn't know it any more
	Paused  bool      `json:"paused,omitempty"`
	// Whole: every running job was listed, so that Running is exact. Otherwise nothing
	// can be proven idle by it.
	Whole    bool           `json:"whole"`
	Running  int            `json:"running"`            // jobs
	BySystem map[string]int `json:"by_system"`          // running jobs of each machine that is known by its system_id
	Systems  []string       `json:"systems,omitempty"`  // machines that GitLab lists of the runner; nil = not asked
	Problem  string         `json:"problem,omitempty"`  // why it could not be looked at
	Declares *Declared      `json:"declares,omitempty"` // what it takes
}

// Declared is the capability of a runner by GitLab's word.
type Declared struct {
	Capability spillway.Capability `json:"capability"`
}
