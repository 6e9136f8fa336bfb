package store

import (
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// The errors of this package, for errors.Is.
var (
	// ErrUnavailable: the store did not answer in time, and nothing was written.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknown: a write timed out; whether it happened is not known.
	ErrUnknown = errors.New("outcome of the write is unknown")
	// ErrStaleAttempt: the job has moved on to a newer attempt, or has ended.
	ErrStaleAttempt = errors.New("stale attempt")
	// ErrUnknownJob: no such job, or forgotten.
	ErrUnknownJob = errors.New("unknown job")
	// ErrQuarantined: the job has lost as many machines as it may, and is kept in
	// quarantine.
	ErrQuarantined = errors.New("job is in quarantine")
	// ErrNotQuarantined: the job is not in quarantine; nothing was changed.
	ErrNotQuarantined = errors.New("job is not in quarantine")
	// ErrStaleEpoch: somebody with a newer epoch has written.
	ErrStaleEpoch = errors.New("stale epoch")
	// ErrLeaseLost: the lease is no longer ours.
	ErrLeaseLost = errors.New("lease lost")
)

// PushOutcome says what became of one pushed job.
type PushOutcome int

// The outcomes.
const (
	Accepted  PushOutcome = iota + 1
	Duplicate             // known, same content
	Conflict              // known, other content: nothing changed
	Full                  // the queue holds MaxQueued jobs
)

// Transition moves one attempt to a new state: Running, or a terminal one.
type Transition struct {
	Ref     router.JobRef
	To      spillway.JobState
	Pool    string
	Machine spillway.MachineID
	Result  spillway.JobResult // with a terminal state
}

// Release gives one attempt back to the queue. The next claim has a higher attempt.
type Release struct {
	Ref router.JobRef
	// Lost: the machine was lost while it ran. After EffectiveMaxAttempts losses the
	// job is failed with RunnerSystemFailure instead, and kept in quarantine unless it
	// must not run twice. A refusal is not a loss.
	Lost   bool
	Detail string // its head becomes the reason of the transition
}

// Event is a change of a job that watchers may want. Its job carries neither
// script nor env.
type Event struct {
	Record spillway.JobRecord
}

// Lease is time-bounded ownership of a name.
type Lease = spillway.Lease

// ViewCounts is what a polling source's last whole epoch held.
type ViewCounts struct {
	Epoch int64 // ⌊server time ÷ interval⌋
	Jobs  map[spillway.JobClass]int
	// Whole: every replica that was expected has written. Otherwise the counts are
	// a lower bound.
	Whole   bool
	Missing []string // the replicas that did not
	At      time.Time
}
