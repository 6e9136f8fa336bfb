package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Event is a change of a job's status.
type Event struct {
	JobID      int64
	ProjectID  int64
	PipelineID int64
	Status     string // as GitLab names it: "created", "pending", "running", "success", …
	RunnerID   int64  // 0 = none yet
	// System is the machine that runs the job. GitLab's hook does not tell it today (its
	// runner has no system_id), so it is empty; the lists of the API have it.
	System string
	Queued time.Duration // how long the job waited, or has waited so far
	// At is when that was true: for a job that runs or is over, GitLab's own time of its
	// start or end, and never later than the hook came; else when the hook came.
	At time.Time
}

// errBody is wrapped by every error about a hook's body. None quotes it.
var errBody = errors.New("not a job hook")

// hook is what is read of a body (lib/gitlab/data_builder/build.rb).
type hook struct {
	Kind       string   `json:"object_kind"`
	BuildID    int64    `json:"build_id"`
	Status     string   `json:"build_status"`
	StartedAt  hookTime `json:"build_started_at"`
	FinishedAt hookTime `json:"build_finished_at"`
	Queued     *float64 `json:"build_queued_duration"` // seconds
	PipelineID int64    `json:"pipeline_id"`
	ProjectID  int64    `json:"project_id"`
	Runner     *struct {
		ID int64 `json:"id"`
	} `json:"runner"`
}

// hookTime is a time in one of the two forms that GitLab writes, or nothing.
type hookTime struct{ time.Time }

// hookLayouts: newer versions write the first, older ones the second.
var hookLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05 MST"}

// UnmarshalJSON takes no offence at a form that it does not know: the time of arrival
// will do.
func (t *hookTime) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	for _, layout := range hookLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			t.Time = at.UTC()
			return nil
		}
	}
	return nil
}

// maxStatusBytes bounds a status [bytes].
const maxStatusBytes = 64

// parse reads a body that came at now.
func parse(body []byte, now time.Time) (Event, error) {
	var h hook
	if json.Unmarshal(body, &h) != nil {
		return Event{}, fmt.Errorf("%w: no JSON, or with other types", errBody)
	}
	switch {
	case h.Kind != "build":
		return Event{}, fmt.Errorf("%w: object_kind is not build", errBody)
	case h.BuildID <= 0 || h.ProjectID <= 0 || h.PipelineID < 0:
		return Event{}, fmt.Errorf("%w: no build_id or project_id", errBody)
	case h.Status == "" || len(h.Status) > maxStatusBytes:
		return Event{}, fmt.Errorf("%w: no build_status", errBody)
	}
	e := Event{
		JobID: h.BuildID, ProjectID: h.ProjectID, PipelineID: h.PipelineID, Status: h.Status,
		Queued: duration(h.Queued), At: h.at(now),
	}
	if h.Runner != nil && h.Runner.ID > 0 {
		e.RunnerID = h.Runner.ID
	}
	return e, nil
}

// at: a hook has no time of its own, only the job's. build_created_at would be wrong for
// a pending job, which may have been created hours before it could start.
func (h *hook) at(now time.Time) time.Time {
	at := now
	switch stage(h.Status) {
	case over:
		at = h.FinishedAt.Time
	case runs:
		at = h.StartedAt.Time
	case before, waits:
	}
	if at.IsZero() || at.After(now) { // a clock ahead of ours must not make a fact unbeatable
		return now
	}
	return at
}

func duration(seconds *float64) time.Duration {
	const most = 10 * 365 * 24 * time.Hour
	if seconds == nil || !(*seconds > 0) || math.IsInf(*seconds, 0) {
		return 0
	}
	return time.Duration(min(*seconds, most.Seconds()) * float64(time.Second))
}

// A job goes through the stages in this order and never back: what runs again has a new
// id (doc/ci/jobs/_index.md, "Retry jobs"). Within a stage, later times are later.
type jobStage int

const (
	before jobStage = iota // created, manual, scheduled, skipped, waiting for something
	waits                  // pending
	runs                   // running, canceling
	over                   // success, failed, canceled
)

func stage(status string) jobStage {
	switch status {
	case "pending":
		return waits
	case "running", "canceling":
		return runs
	case "success", "failed", "canceled":
		return over
	default:
		return before
	}
}
