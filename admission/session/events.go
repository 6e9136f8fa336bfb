package session

import (
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
)

// Events are told what happens, from several goroutines. A nil one is not told.
type Events struct {
	ControllerConnected    func(ControllerConnected)
	ControllerDisconnected func(ControllerDisconnected)
	VerdictGiven           func(admission.VerdictInfo)
	JobReviewed            func(JobReviewed)
	JobUnobserved          func(JobUnobserved)
	StoreTrouble           func(StoreTrouble)
}

func tell[T any](f func(T), x T) {
	if f != nil {
		f(x)
	}
}

// ControllerConnected is an instance of a controller that has said hello.
type ControllerConnected struct {
	Controller, Instance, Version string
}

func (e ControllerConnected) String() string {
	return fmt.Sprintf("instance %q of admission controller %s connected (version %q)", e.Instance, e.Controller, e.Version)
}

// ControllerDisconnected is the end of its stream, or of a stream that was refused.
type ControllerDisconnected struct {
	Controller, Instance string
	Connected            bool  // it had said hello, and was welcome
	Err                  error // nil: it left
}

func (e ControllerDisconnected) String() string {
	if e.Err == nil {
		return fmt.Sprintf("instance %q of admission controller %s left", e.Instance, e.Controller)
	}
	return fmt.Sprintf("instance %q of admission controller %s: %v", e.Instance, e.Controller, e.Err)
}

// JobReviewed is what admission came to for one job: admitted, rejected or timed out.
type JobReviewed struct {
	Job        spillway.JobID // as controllers know it
	Outcome    admission.Outcome
	Controller string // whose verdict or silence decided it; empty for an admitted one
	Reason     string
	DryRun     bool // it is a dry_run controller's, and nobody obeys it
	Took       time.Duration
}

func (e JobReviewed) String() string {
	s := fmt.Sprintf("admission of job %s: %s", e.Job, OutcomeName(e.Outcome))
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.DryRun {
		s += " (dry run: not obeyed)"
	}
	return s
}

// OutcomeName is an outcome in one word.
func OutcomeName(o admission.Outcome) string {
	switch o {
	case admission.Approved:
		return "approved"
	case admission.Rejected:
		return "rejected"
	case admission.TimedOut:
		return "timed_out"
	default:
		return "handed_on"
	}
}

// JobUnobserved is a job that a dry_run controller was not shown, since it is not
// connected or has too much to do.
type JobUnobserved struct {
	Controller string
}

// StoreTrouble is a call to the store that failed. It is repeated.
type StoreTrouble struct {
	Op  string
	Err error
}

func (e StoreTrouble) String() string { return fmt.Sprintf("admission: %s: %v", e.Op, e.Err) }
