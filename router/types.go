package router

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

// JobRef names one attempt at one job.
type JobRef struct {
	ID      spillway.JobID
	Class   spillway.JobClass
	Attempt int
}

// ClassCount is what the queue holds of one job class.
type ClassCount struct {
	Class       spillway.JobClass
	Requirement spillway.Requirement
	Priority    int       // of its most urgent pending job, 0 first
	Pending     int       // can be claimed for a machine, as far as the counter knows
	Admitted    int       // of these, every admission controller said yes
	Unadmitted  int       // wait for admission, beside Pending
	Claimed     int       // assigned or running
	Oldest      time.Time // submission of the oldest pending job; zero without one
	// Waited says how long the pending jobs have waited, for the times of
	// [Engine.Ages]; nil = not known: all are taken to be as old as the oldest.
	Waited []demand.Waited
}

// ClaimWant asks the queue for at most N jobs of a class for a pool.
type ClaimWant struct {
	Class spillway.JobClass
	Pool  string
	N     int
	// AdmittedOnly leaves jobs alone that no admission controller has approved. Whether a
	// class needs that, whoever claims knows.
	AdmittedOnly bool
}

// Claimed is a job that this replica now holds, for the pool it was wanted for.
type Claimed struct {
	Job  spillway.Job
	Ref  JobRef
	Pool string
}

// Assignment sends a claimed job to a machine.
type Assignment struct {
	Machine spillway.MachineID
	Job     spillway.Job
	Ref     JobRef
}

// Machine is one runner process as the router sees it. It is also what replicas
// share of it.
type Machine struct {
	ID         spillway.MachineID
	InstanceID string // the provider's id of its instance
	Pool       string
	Version    string
	Capacity   int // jobs at once
	Busy       int // jobs, by its own last heartbeat
	Assigned   int // jobs, by the router's own book
	Uses       int // jobs ever assigned to it

	Draining      bool      // ordered to take no more jobs
	DrainAckedAt  time.Time // when it acknowledged that; zero = not yet
	HeardAt       time.Time // last message of any kind
	HeartbeatAt   time.Time // last heartbeat
	RegisteredAt  time.Time
	LastUsedAt    time.Time // when a job last began or ended on it; RegisteredAt at first
	Connected     bool      // has a stream to some replica
	Replica       string    // that replica
	StoppingSince time.Time // it said itself that it drains (SIGTERM); zero = no

	// What the machine says of itself, and only of itself.
	InterruptedAt        time.Time // when its cloud's notice to take it away was heard; zero = none
	InterruptionKind     string    // spot|rebalance|maintenance|terminating; empty = none
	InterruptionDeadline time.Time // when it goes; zero = unknown
	Unhealthy            string    // why it says that it is broken; empty = healthy

	// Labels are what the machine says of where it is (see LabelZone and
	// LabelDistance). They are not kept with the machine's record.
	Labels map[string]string

	// What whoever looks adds, and is not kept with the machine's record. UnhealthyBy is
	// who says what Unhealthy has, where it isn't the machine. Paused: GitLab gives its
	// runner no job until somebody resumes it there.
	UnhealthyBy string
	Paused      bool
}

// InUse is the number of places that can't be given away: what the machine says
// or what the router knows, whichever is more.
func (m *Machine) InUse() int { return max(m.Busy, m.Assigned) }

// DrainOrder asks one machine to take no more jobs (On), or takes that back.
type DrainOrder struct {
	Machine   spillway.MachineID
	On        bool
	Terminate bool // leave when the last job has ended
	Reason    string
	// At is since when the order stands, by the store's clock: set by the store, and
	// kept when a standing order is given again. Zero on the way there.
	At time.Time
}
