package session

import (
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
)

// onItsMachine begins the reason with which a machine is told to end a handed-over job.
// The machine says it back in its result, which tells that from a cancel in the store: of
// that nobody knows whether the machine has heard.
const onItsMachine = "ended on its machine: "

// AloneReason is what a machine says of a job that it ended since it had no router.
const AloneReason = "no router heard this machine"

// finding is what a record tells of a handed-over job.
type finding struct {
	word   cells.Word // 0: nothing is sure
	detail string
	onHand bool // it is on a machine, or may be
	queued bool // it waits in the queue
	// unsure: a machine may have it still, of which nobody hears. The word is true after
	// so long.
	unsure time.Duration
}

// judge reads a record. endWithin is what this cell may take to be sure of an end.
func judge(r *spillway.JobRecord, endWithin time.Duration) finding {
	switch r.State {
	case spillway.Completed:
		return finding{word: cells.WordEnded}
	case spillway.Failed:
		return failed(r, endWithin)
	case spillway.Canceled:
		return canceled(r, endWithin)
	case spillway.Rejected:
		return finding{word: cells.WordRefused, detail: sentence(r)}
	case spillway.Running:
		return finding{word: cells.WordRunning, onHand: true}
	case spillway.Assigned:
		return finding{word: cells.WordTaken, onHand: true}
	default:
		return finding{word: cells.WordTaken, queued: true}
	}
}

// failed tells an end of the job's own from one that its cell has brought about.
func failed(r *spillway.JobRecord, endWithin time.Duration) finding {
	switch r.Result.Reason {
	case spillway.ScriptFailure, spillway.JobExecutionTimeout:
		return finding{word: cells.WordEnded}
	case spillway.RunnerSystemFailure:
		// Its machine was given up after a silence; by itself it ends the job a little later.
		return finding{word: cells.WordLost, detail: sentence(r), unsure: endWithin / 3}
	default: // it has waited in vain, or was not admitted
		return finding{word: notRunning(r), detail: sentence(r)}
	}
}

func canceled(r *spillway.JobRecord, endWithin time.Duration) finding {
	confirmed := strings.HasPrefix(r.Result.Detail, onItsMachine) || strings.HasPrefix(r.Result.Detail, AloneReason)
	if confirmed || !wasOnMachine(r) {
		return finding{word: notRunning(r), detail: sentence(r)}
	}
	return finding{word: cells.WordLost, detail: sentence(r), unsure: endWithin}
}

// notRunning is the word on a job that has no machine: refused if it never had one.
func notRunning(r *spillway.JobRecord) cells.Word {
	begun := !r.StartedAt.IsZero() || slices.ContainsFunc(r.Transitions, func(t spillway.JobTransition) bool { return t.State == spillway.Running })
	if begun {
		return cells.WordLost
	}
	return cells.WordRefused
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
