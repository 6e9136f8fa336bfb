package cells

import (
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// EndedOnMachine begins the reason with which a machine is told to end a handed-over
	// job. The machine says it back in its result, which tells that from a cancel in the
	// store: of that nobody knows whether the machine has heard.
	EndedOnMachine = "ended on its machine: "
	// AloneReason is what a machine says of a job that it ended since it had no router.
	AloneReason = "no router heard this machine"
)

// Finding is what a record of the peer tells of a handed-over job.
type Finding struct {
	Word   Word // 0: nothing is sure
	Detail string
	OnHand bool // it is on a machine, or may be
	Queued bool // it waits in the queue
	// Unsure: a machine may have it still, of which nobody hears. The word is true after
	// so long.
	Unsure time.Duration
}

// Judge reads a record. endWithin is what its cell may take to be sure of an end.
func Judge(r *spillway.JobRecord, endWithin time.Duration) Finding {
	switch r.State {
	case spillway.Completed:
		return Finding{Word: WordEnded}
	case spillway.Failed:
		return failed(r, endWithin)
	case spillway.Canceled:
		return canceled(r, endWithin)
	case spillway.Rejected:
		if r.Result.Reason == spillway.AdmissionRejected {
			return Finding{Word: WordDenied, Detail: sentence(r)}
		}
		return Finding{Word: WordRefused, Detail: sentence(r)}
	case spillway.Running:
		return Finding{Word: WordRunning, OnHand: true}
	case spillway.Assigned:
		return Finding{Word: WordTaken, OnHand: true}
	default:
		return Finding{Word: WordTaken, Queued: true}
	}
}

// failed tells an end of the job's own from one that its cell has brought about.
func failed(r *spillway.JobRecord, endWithin time.Duration) Finding {
	switch r.Result.Reason {
	case spillway.ScriptFailure, spillway.JobExecutionTimeout:
		return Finding{Word: WordEnded}
	case spillway.RunnerSystemFailure:
		// Its machine was given up after a silence; by itself it ends the job a little later.
		return Finding{Word: WordLost, Detail: sentence(r), Unsure: endWithin / 3}
	case spillway.AdmissionTimeout:
		// A job is admitted once, and before it begins. Who was silent for one may be heard
		// again for another, but hardly in a moment.
		return Finding{Word: WordDenied, Detail: sentence(r)}
	default: // it has waited in vain
		return Finding{Word: notRunning(r), Detail: sentence(r)}
	}
}

func canceled(r *spillway.JobRecord, endWithin time.Duration) Finding {
	confirmed := strings.HasPrefix(r.Result.Detail, EndedOnMachine) || strings.HasPrefix(r.Result.Detail, AloneReason)
	if confirmed || !wasOnMachine(r) {
		return Finding{Word: notRunning(r), Detail: sentence(r)}
	}
	return Finding{Word: WordLost, Detail: sentence(r), Unsure: endWithin}
}

// notRunning is the word on a job that has no machine: refused if it never had one.
func notRunning(r *spillway.JobRecord) Word {
	begun := !r.StartedAt.IsZero() || slices.ContainsFunc(r.Transitions, func(t spillway.JobTransition) bool { return t.State == spillway.Running })
	if begun {
		return WordLost
	}
	return WordRefused
}

// wasOnMachine reports whether the job may have been on a machine when it ended.
func wasOnMachine(r *spillway.JobRecord) bool {
	n := len(r.Transitions)
	if n < 2 {
		return r.Attempt > 0
	}
	before := r.Transitions[n-2].State
	return before == spillway.Assigned || before == spillway.Running
}

func sentence(r *spillway.JobRecord) string {
	text := string(r.Result.Reason)
	if r.Result.Detail != "" {
		text += ": " + r.Result.Detail
	}
	return text
}
