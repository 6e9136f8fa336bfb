package server

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// Sources are what the administration service answers from. All are needed, are
// called concurrently, and return promptly when ctx ends.
type Sources struct {
	Pools   Pools
	Demand  Demand
	Runners Runners
	Plugins Plugins
	Feeds   Feeds
	Ledger  Ledger
	WhyNot  WhyNot
	Choices Choices

	Priorities Priorities

	// SilentAfter is how long a machine that is not silent may say nothing; 0 =
	// spillway.SilentAfter.
	SilentAfter time.Duration
}

// Pools knows every pool of the configuration, in its order.
type Pools interface {
	Pools(ctx context.Context) ([]PoolStatus, error)
}

// Demand knows the demand that the last attribution was made from.
type Demand interface {
	Demand(ctx context.Context) (DemandView, error)
}

// Runners knows every machine that is registered with any replica.
type Runners interface {
	Runners(ctx context.Context) ([]router.Machine, error)
}

// Plugins knows the plugin processes of this replica.
type Plugins interface {
	Plugins(ctx context.Context) ([]PluginStatus, error)
}

// Feeds knows where the demand comes from.
type Feeds interface {
	Feeds(ctx context.Context) ([]FeedStatus, error)
}

// FeedStatus is how one source of demand or of machines' states is.
type FeedStatus struct {
	Name    string
	Every   time.Duration // how often it is asked; 0 = it tells by itself
	GoodAt  time.Time     // when it last answered; zero = never
	Error   string        // of the last try; empty = it was good
	Partial bool          // what it tells is a lower bound
	Calls   int           // so far
}

// Ledger returns at most limit decisions of the pool, newest first.
type Ledger interface {
	Ledger(ctx context.Context, pool string, limit int) ([]LedgerEntry, error)
}

// WhyNot says what keeps a job from running; store.ErrUnknownJob if there is no
// such job. [ExplainJob] makes the answer from a record and the pools.
type WhyNot interface {
	WhyNot(ctx context.Context, id spillway.JobID) (JobExplanation, error)
}

// PoolStatus is a pool as of its last tick. Counts are instances unless said
// otherwise.
type PoolStatus struct {
	Pool        spillway.Pool
	Min, Max    int
	Pending     int // jobs attributed to this pool
	Running     int // jobs
	Desired     int // the group's
	InService   int
	Idle        int // of InService: without a job
	Booting     int
	Draining    int
	Lost        int           // silent, interrupted or boot-failed
	Reason      policy.Reason // of the last decision
	Hold        policy.Reason // empty = none
	Finding     string        // what somebody should look at; empty = nothing
	DecidedAt   time.Time
	LastSuccess time.Time // of the last complete reconcile
}

// DemandView is demand as it was at a time.
type DemandView struct {
	At      time.Time
	Signals []spillway.Signal
	Classes []ClassDemand
}

// takenBy is the part of v that runners with a capability can take.
func (v DemandView) takenBy(c *spillway.Capability) DemandView {
	of := DemandView{At: v.At}
	fingerprint := c.Fingerprint()
	for _, s := range v.Signals {
		if s.Fingerprint == fingerprint {
			of.Signals = append(of.Signals, s)
		}
	}
	for i := range v.Classes {
		if router.Match(c, &v.Classes[i].Requirement).OK() {
			of.Classes = append(of.Classes, v.Classes[i])
		}
	}
	return of
}

// ClassDemand is the waiting jobs of one class and where they go. Counts are
// jobs.
type ClassDemand struct {
	Class       spillway.JobClass
	Requirement spillway.Requirement
	Pending     int
	Oldest      time.Time // submission of the oldest
	Attributed  map[string]int
	Unmatched   int    // no pool can take it
	Overflow    int    // pools could, none has room
	Reason      string // why unmatched
	Sample      []spillway.JobID
}

// PluginStatus is one plugin process.
type PluginStatus struct {
	Provider     string
	Name         string // what it calls itself
	Version      string
	Contract     int // version of the provider contract that is spoken with it
	Path         string
	SHA256       string
	State        string // starting | ready | backoff | broken | stopped
	PID          int
	Restarts     int
	LastError    string
	Capabilities []string
	StartedAt    time.Time
}

// LedgerEntry is one decision and what came of it. Counts are instances.
type LedgerEntry struct {
	At        time.Time
	Pool      string
	From, To  int
	Direction policy.Direction
	Reason    policy.Reason
	Trace     []policy.Trace
	Action    string // what was done, for people; empty = nothing
	Result    string // "ok", or what failed
	Epoch     uint64
}

// JobExplanation says, pool by pool, what keeps a job from running.
type JobExplanation struct {
	Record      spillway.JobRecord
	Fingerprint string // of the pool that has it; empty while pending
	Verdicts    []PoolVerdict
	Summary     string // one or two sentences
}

// PoolVerdict is what one pool says to one job.
type PoolVerdict struct {
	Pool      string
	CanTake   bool
	Predicate router.Predicate // the first that failed
	Detail    string           // why not, or what it waits for
}
