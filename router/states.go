package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
)

// Event is what happens to a job.
type Event string

// The events.
const (
	Claim    Event = "claim"    // a replica took it out of the queue
	Admit    Event = "admit"    // every admission controller said yes
	Reject   Event = "reject"   // one said no, or it can't be run at all
	Assign   Event = "assign"   // it was sent to a machine
	Start    Event = "start"    // the machine says that it runs
	Complete Event = "complete" // it ended with exit code 0
	Fail     Event = "fail"     // it ended otherwise
	Release  Event = "release"  // it goes back to the queue: refused, or its machine was lost
	Return   Event = "return"   // the same for a job that was admitted: nobody is asked again
	Cancel   Event = "cancel"   // somebody took it back
	Expire   Event = "expire"   // it was in its state for longer than Timeouts allows
)

// ErrTransition is wrapped by every refusal of [Next].
var ErrTransition = errors.New("illegal transition of a job")

// transitions is the whole life of a job. A terminal state has no row.
//
// An assigned job may end without Start: when the stream breaks, the machine
// sends the result again, but not that it once started.
var transitions = map[spillway.JobState]map[Event]spillway.JobState{
	spillway.Pending: {
		Claim:  spillway.Routing,
		Reject: spillway.Rejected,
		Cancel: spillway.Canceled,
		Expire: spillway.Failed, // with reason pending_timeout or unmatched
	},
	spillway.Routing: {
		Admit:   spillway.Admitted,
		Reject:  spillway.Rejected,
		Fail:    spillway.Failed, // a controller was asked and stayed silent
		Release: spillway.Pending,
		Cancel:  spillway.Canceled,
		Expire:  spillway.Pending, // its replica is gone
	},
	spillway.Admitted: { // waits for a place, as a pending job does
		Assign: spillway.Assigned,
		Reject: spillway.Rejected,
		Cancel: spillway.Canceled,
		Expire: spillway.Failed,
	},
	spillway.Assigned: {
		Start:    spillway.Running,
		Complete: spillway.Completed,
		Fail:     spillway.Failed,
		Release:  spillway.Pending,
		Return:   spillway.Admitted,
		Cancel:   spillway.Canceled,
		Expire:   spillway.Pending, // never accepted
	},
	spillway.Running: {
		Complete: spillway.Completed,
		Fail:     spillway.Failed,
		Release:  spillway.Pending, // its machine was lost
		Return:   spillway.Admitted,
		Cancel:   spillway.Canceled,
		Expire:   spillway.Failed, // with reason job_execution_timeout
	},
}

// Next returns the state that a job comes to when ev happens to it. What the
// table does not hold is refused with [ErrTransition], and leaves the job where
// it is.
func Next(from spillway.JobState, ev Event) (spillway.JobState, error) {
	if to, ok := transitions[from][ev]; ok {
		return to, nil
	}
	if from.Terminal() {
		return from, fmt.Errorf("%w: %s after it has ended as %s", ErrTransition, ev, from)
	}
	return from, fmt.Errorf("%w: %s while it is %s", ErrTransition, ev, from)
}

// Timeouts is how long a job may stay in each state, so that none can be stuck
// in any. The zero value of a field means its default.
type Timeouts struct {
	// Pending is how long a job waits for a place, admitted or not: 24h. A night's queue must
	// survive until the morning (not smaller); what is older, nobody waits for any
	// more (not larger). It counts from the submission, or from the loss of its last
	// machine; a refusal does not start it anew.
	Pending time.Duration
	// Unmatched is the same for a job that no pool can take: 1h. A pool may be
	// missing from the config for a moment (not smaller); only a change of the
	// config helps such a job (not larger).
	Unmatched time.Duration
	// Routing and Assigned are steps that take milliseconds when their replica and
	// machine are alive: 30s, which covers a stream that breaks and comes back (not
	// smaller), and is how long a job waits after a replica died (not larger). A job
	// whose admission controllers are asked is in routing for as long as they may take,
	// each for its deadline; then it fails.
	Routing, Assigned time.Duration
	// RunningGrace is on top of the job's own time limit, which its machine keeps:
	// 5m, for stopping the job and for a result that has to wait for a new stream.
	RunningGrace time.Duration
}

// DefaultTimeouts returns the defaults.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Pending:      24 * time.Hour,
		Unmatched:    time.Hour,
		Routing:      30 * time.Second,
		Assigned:     30 * time.Second,
		RunningGrace: 5 * time.Minute,
	}
}

// WithDefaults returns t with every zero replaced by its default.
func (t Timeouts) WithDefaults() Timeouts {
	d := DefaultTimeouts()
	for _, f := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&t.Pending, d.Pending},
		{&t.Unmatched, d.Unmatched},
		{&t.Routing, d.Routing},
		{&t.Assigned, d.Assigned},
		{&t.RunningGrace, d.RunningGrace},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
	}
	return t
}

// Of is how long job may stay in state before Expire happens to it; 0 for a
// terminal state. matched says whether any pool can take it.
func (t Timeouts) Of(state spillway.JobState, job *spillway.Job, matched bool) time.Duration {
	t = t.WithDefaults()
	switch state {
	case spillway.Pending, spillway.Admitted:
		if !matched {
			return min(t.Unmatched, t.Pending)
		}
		return t.Pending
	case spillway.Routing:
		return t.Routing
	case spillway.Assigned:
		return t.Assigned
	case spillway.Running:
		return job.EffectiveTimeout() + t.RunningGrace
	default:
		return 0
	}
}
