package coordinator

import "fmt"

// Events narrates what happens; logs, metrics and tests subscribe. Any of the functions
// may be nil. They must be quick and safe for concurrent use.
type Events struct {
	WorkerAttached func(WorkerAttached)
	WorkerDetached func(WorkerDetached)
	Polled         func(PollOutcome)
	Reported       func(ReportOutcome)
	Submitted      func(SubmitOutcome)
	PoolChanged    func(PoolChanged)
	Trouble        func(Trouble)
}

// WorkerAttached tells: a worker has become a machine of this replica, or has again with
// another conversation.
type WorkerAttached struct {
	Runner, Pool string
	Workers      int // that are attached to this replica
	Carried      int // jobs that it has from another replica or conversation
}

// String prints the event for people.
func (e WorkerAttached) String() string {
	return fmt.Sprintf("worker %s of pool %s attached with %d jobs", e.Runner, e.Pool, e.Carried)
}

// WorkerDetached tells: a worker is no machine of this replica any more.
type WorkerDetached struct {
	Runner, Pool string
	Workers      int
	Silent       bool   // it has made no call for too long; otherwise it went elsewhere
	Lost         string // the job that it had, and that another one gets; empty: none
}

// String prints the event for people.
func (e WorkerDetached) String() string {
	why := "is at another replica"
	if e.Silent {
		why = "is silent"
	}
	return fmt.Sprintf("worker %s of pool %s %s, had job %q", e.Runner, e.Pool, why, e.Lost)
}

// PollOutcome is what a poll came to.
type PollOutcome string

// The outcomes of polls.
const (
	PollJob     PollOutcome = "job"
	PollNone    PollOutcome = "none"    // there was none
	PollRefused PollOutcome = "refused" // it could not be asked, or may not
)

// ReportOutcome is what a report of a result came to.
type ReportOutcome string

// The outcomes of reports.
const (
	ReportStored      ReportOutcome = "stored"
	ReportRefused     ReportOutcome = "refused"     // not the worker's job, or a bad message
	ReportUnavailable ReportOutcome = "unavailable" // not known to be stored: it comes again
)

// SubmitOutcome is what a submission came to.
type SubmitOutcome string

// The outcomes of submissions.
const (
	SubmitAccepted    SubmitOutcome = "accepted"
	SubmitDuplicate   SubmitOutcome = "duplicate"
	SubmitFull        SubmitOutcome = "full"
	SubmitRefused     SubmitOutcome = "refused"
	SubmitUnavailable SubmitOutcome = "unavailable"
)

// PoolChanged tells: a pool was registered, or is not any more.
type PoolChanged struct {
	Pool  string
	By    string
	Added bool
}

// String prints the event for people.
func (e PoolChanged) String() string {
	if e.Added {
		return fmt.Sprintf("pool %s registered by %s", e.Pool, e.By)
	}
	return fmt.Sprintf("pool %s taken away by %s", e.Pool, e.By)
}

// Trouble tells: something failed that is tried again, or that nobody waits for.
type Trouble struct {
	Op  string
	Err error
}

// String prints the event for people.
func (e Trouble) String() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

func tell[E any](f func(E), e E) {
	if f != nil {
		f(e)
	}
}
