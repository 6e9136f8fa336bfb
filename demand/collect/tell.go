package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/webhook"
)

const (
	// maxMessageBytes is the most that a message on Topic may take [bytes]; the store
	// takes no longer one.
	maxMessageBytes = 8 << 10
	// maxProblemBytes bounds a replica's sentence on what it can't do [bytes].
	maxProblemBytes = 512
)

// message is what a replica tells the others on Topic.
type message struct {
	Jobs []Sighting `json:"jobs,omitempty"`
	// Hook: a hook came with it. Jobs that are held are told whether one does or not.
	Hook bool `json:"hook,omitempty"`
	// Replica, Problem and Lacks: the replica keeps jobs for machines that are still to
	// come; with a problem it doesn't know whether there are any, and where it lacks
	// something it doesn't know that of some pools.
	Replica string `json:"replica,omitempty"`
	Problem string `json:"problem,omitempty"`
	Lacks   []lack `json:"lacks,omitempty"`
}

// Tell tells every replica what a hook says of jobs. It is best effort: the next list
// tells what was lost.
func Tell(ctx context.Context, p FactPublisher, jobs ...Sighting) error {
	return tell(ctx, p, message{Jobs: jobs, Hook: true})
}

// tell splits what doesn't fit into one message: what the replica says of itself goes
// first, so that no job comes without it.
func tell(ctx context.Context, p FactPublisher, m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("telling of jobs: %w", err)
	}
	if len(data) <= maxMessageBytes {
		return p.PublishFact(ctx, Topic, data)
	}
	n := len(m.Jobs)
	if n > 0 && m.Replica != "" {
		jobs := message{Jobs: m.Jobs}
		m.Jobs = nil
		return errors.Join(tell(ctx, p, m), tell(ctx, p, jobs))
	}
	if n <= 1 {
		return fmt.Errorf("telling of a job: %w: %d bytes, at most %d are allowed", spillway.ErrInvalid, len(data), maxMessageBytes)
	}
	first, rest := m, m
	first.Jobs, rest.Jobs = m.Jobs[:n/2], m.Jobs[n/2:]
	return errors.Join(tell(ctx, p, first), tell(ctx, p, rest))
}

// hear reads a message as if anybody could have written it.
func hear(data []byte) (message, bool) {
	var m message
	if len(data) > maxMessageBytes || json.Unmarshal(data, &m) != nil || len(m.Problem) > maxProblemBytes {
		return message{}, false
	}
	return m, !slices.ContainsFunc(m.Lacks, func(l lack) bool { return len(l.Why) > maxProblemBytes })
}

// stateOf is a job's state by GitLab's word for it; ok is false for one that does not
// wait for a runner yet, such as created or manual, and for words that nobody knows.
func stateOf(status string) (state spillway.JobState, ok bool) {
	switch status {
	case "pending":
		return spillway.Pending, true
	case "running", "canceling": // a job that is being canceled keeps its machine busy
		return spillway.Running, true
	case "success":
		return spillway.Completed, true
	case "failed":
		return spillway.Failed, true
	case "canceled", "skipped":
		return spillway.Canceled, true
	default:
		return "", false
	}
}

func jobID(id int64) spillway.JobID { return spillway.JobID(strconv.FormatInt(id, 10)) }

// HookSighting is what a job hook says of the job, for Tell; ok is false for one that
// means nothing for demand. received is when the hook came.
//
// GitLab's hooks tell times in whole seconds, so that the change may be as much as
// a second younger than they say. It is taken to be as young as can be: else a list
// that began within that second would overrule it.
func HookSighting(origin string, e webhook.Event, received time.Time) (s Sighting, ok bool) {
	state, ok := stateOf(e.Status)
	if !ok || e.JobID <= 0 {
		return Sighting{}, false
	}
	at := e.At
	if at.Nanosecond() == 0 {
		at = at.Add(time.Second - time.Nanosecond)
	}
	if at.After(received) || e.At.IsZero() {
		at = received
	}
	s = Sighting{
		Job: JobKey{Origin: origin, ID: jobID(e.JobID)}, State: state, Project: e.ProjectID,
		Runner: e.RunnerID, System: e.System, At: at,
	}
	if state == spillway.Pending {
		s.Since = at.Add(-max(0, e.Queued))
	}
	return s, true
}
