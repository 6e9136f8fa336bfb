package pluginsdk

import (
	"context"
	"time"
)

// ContractVersion is the version of this contract. A host speaks this one and
// [OldestContract]; so does a plugin that is built with this package.
//
// Version 2 added CompleteHook, ReportUnhealthy, Findings and Count, and what
// Status and ListInstances say of blocked groups, hooks and kept instances. A
// plugin of version 1 answers ErrUnsupported to the first and leaves the second
// empty.
const (
	ContractVersion = 2
	OldestContract  = 1
)

// Limits of one call.
const (
	MaxGroupsPerCall    = 1_000 // groups in Status and Watch
	MaxInstancesPerCall = 1_000 // ids in Remove, Protect, CompleteHook and ReportUnhealthy; the host pages
	MaxFindings         = 1_000 // of one Findings
)

// MaxNameBytes bounds a plugin's name and its version [bytes]. They are printable.
const MaxNameBytes = 64

// Provider is the promise that a plugin makes. Every implementation is held to
// it by providertest.
//
// Calls may come concurrently, for the same group too. Every method returns
// promptly when its context ends; the outcome of a write is then unknown, and
// the host lists before it asks again. Numbers are instances. An error is one of
// this package's (see [Error]); any other error is taken for [ErrTransient].
// A provider does not retry: the host does.
//
// The methods from Withdraw to Count are optional: embed [Unsupported] and write
// those that the cloud can do, and declare their [Capability].
type Provider interface {
	// Describe costs no cloud call and may come before Configure.
	Describe(ctx context.Context) (Description, error)

	// Configure is called once, first. config is a JSON object that is valid under
	// Description.ConfigSchema. ErrInvalid names every mistake at once.
	Configure(ctx context.Context, config []byte) error

	// Status answers for each of groups, in that order. A group that can't be read
	// has GroupStatus.Err; the error result is for a call that told nothing at all.
	Status(ctx context.Context, groups []string) ([]GroupStatus, error)

	// ListInstances returns every instance of the group that exists in any state
	// that bills, or an error. A list that might be incomplete is an error: nil
	// and an empty slice both mean that there is none.
	ListInstances(ctx context.Context, group string) ([]Instance, error)

	// SetDesired makes target the group's desired number and returns the number
	// after the call. If it is target already: no write. If it is not expected: a
	// [ErrConflict] with the observed number and no write (unless it is target).
	// Repeating it with the same token is harmless.
	SetDesired(ctx context.Context, r SetDesired) (desired int, err error)

	// Remove ends exactly the named instances, and desired falls by one with each
	// that was Removed. An id that is terminating or gone is AlreadyGone: desired
	// does not fall for it. One result per id, in that order; the error result is
	// for a call in which nothing was removed. Protection from the group's own
	// scale-in is never lifted first.
	Remove(ctx context.Context, group string, ids []string, token string) ([]RemoveResult, error)

	// Withdraw lowers desired by what was asked for and is not filled yet, and
	// never ends an instance that exists. A desired other than expected is an
	// [ErrConflict]. ErrUnsupported where the cloud can't do it safely.
	Withdraw(ctx context.Context, group string, expected int, token string) (WithdrawResult, error)

	// Protect switches the group's own scale-in protection of the named instances.
	// ErrUnsupported where there is none.
	Protect(ctx context.Context, group string, ids []string, protected bool) error

	// CompleteHook lets instances go on that a hook of the group holds for us
	// (Instance.Hook): a terminating one ends, a launching one enters service. An
	// instance that nothing holds any more is no error. Until it is called the
	// provider keeps the hook from running out, as long as the cloud allows and the
	// group is listed.
	CompleteHook(ctx context.Context, group string, ids []string) error

	// ReportUnhealthy tells the group that instances are broken, so that it replaces
	// them; desired does not change. The host has drained them. One that is gone is
	// no error.
	ReportUnhealthy(ctx context.Context, group string, ids []string) error

	// Findings looks for settings of the groups that work against Spillway, for a
	// person to mend. It may be slow and costs calls; nothing found is no entry.
	Findings(ctx context.Context, groups []string) ([]Finding, error)

	// Count reads the metric that the configuration calls name: a number of jobs. A
	// metric without a value is an error, never 0.
	Count(ctx context.Context, name string) (Count, error)

	// Watch calls notify for each interruption of an instance of groups until ctx
	// ends; it returns nil then. ErrUnsupported where the cloud tells nothing.
	Watch(ctx context.Context, groups []string, notify func(Interruption)) error

	// Close releases what the provider holds. Instances stay.
	Close(ctx context.Context) error
}

// Description is what a plugin says of itself.
type Description struct {
	Name         string // "ec2asg"
	Version      string // of the plugin, semver
	Capabilities []Capability
	ConfigSchema string // JSON Schema 2020-12 of the config object
	// Deviations are the promises of this contract that the cloud can't keep. They
	// are shown to whoever checks or describes the plugin; the host does not act on
	// them.
	Deviations []Deviation
}

// Deviation is a promise that isn't kept, said openly.
type Deviation struct {
	Check  string // the name of the check of providertest that it fails
	Reason string // why, and what happens instead
}

// Has reports whether c is among the capabilities.
func (d Description) Has(c Capability) bool {
	for _, have := range d.Capabilities {
		if have == c {
			return true
		}
	}
	return false
}

// Capability is something that not every cloud can do.
type Capability string

// The capabilities.
const (
	CanWithdraw      Capability = "withdraw"
	CanProtect       Capability = "protect"
	CanWatch         Capability = "watch"
	CanCompareAndSet Capability = "compare_and_set" // expected is enforced, not advisory
	CanCompleteHook  Capability = "complete_hook"
	CanReportHealth  Capability = "report_unhealthy"
	CanFind          Capability = "findings"
	CanCount         Capability = "count"
)

// GroupStatus is the group as the cloud sees it.
type GroupStatus struct {
	Group        string
	Desired      int
	Min, Max     int
	InTransition bool           // the group says that it is still converging
	Failures     []GroupFailure // recent failures of what was accepted earlier
	LaunchHalt   string         // why SetDesired would launch nothing now; empty = it would
	RemovalHalt  string         // why Remove would be refused now, whoever is named; empty = it would not
	Err          error          // this group could not be read: the numbers mean nothing
}

// GroupFailure is a request that the cloud accepted and then failed to fulfil.
type GroupFailure struct {
	ID      string // stable, so that each is counted once
	Kind    Kind
	Message string
	At      time.Time
}

// InstanceState is reduced to what a decision needs.
type InstanceState string

// The instance states. A state that the provider can't name is StateUnknown,
// which counts as running and busy.
const (
	StateUnknown  InstanceState = "unknown"
	StateCreating InstanceState = "creating"
	StateRunning  InstanceState = "running"
	StateDeleting InstanceState = "deleting"
)

// Instance is one VM of a group.
type Instance struct {
	ID         string
	State      InstanceState
	LaunchedAt time.Time // zero = not known
	Zone       string
	// Address is where the control plane reaches the instance, for what runs on it to
	// be asked: a host, or host:port where the provider knows the port. Empty = not known.
	Address   string
	Spot      bool
	Protected bool // from the group's own scale-in
	Unhealthy bool
	Hook      Hook // what of the group holds it for us
	Kept      bool // somebody has marked it as not to be touched: it is never removed
}

// Hook is the kind of lifecycle hook that holds an instance until CompleteHook.
type Hook string

// The hooks.
const (
	NoHook          Hook = ""
	LaunchHook      Hook = "launch"      // it runs and is not in service yet
	TerminationHook Hook = "termination" // it is being ended and may finish its work
)

// SetDesired is the request of Provider.SetDesired.
type SetDesired struct {
	Group    string
	Target   int // absolute, ≥ 0
	Expected int // what the host believes desired to be now
	Token    string
}

// RemoveOutcome says what became of one id.
type RemoveOutcome string

// The outcomes.
const (
	Removed     RemoveOutcome = "removed"
	AlreadyGone RemoveOutcome = "already_gone"
	NotRemoved  RemoveOutcome = "failed" // still there; Err says why
)

// RemoveResult is the answer for one id.
type RemoveResult struct {
	ID      string
	Outcome RemoveOutcome
	Err     error // with NotRemoved
}

// WithdrawResult is the answer of Provider.Withdraw.
type WithdrawResult struct {
	Desired   int // after the call
	Withdrawn int // ≥ 0
}

// InterruptionKind says what will happen to an instance.
type InterruptionKind string

// The kinds of interruption.
const (
	SpotInterruption InterruptionKind = "spot"        // taken at the deadline
	Rebalance        InterruptionKind = "rebalance"   // may be taken soon
	Maintenance      InterruptionKind = "maintenance" //
	Terminating      InterruptionKind = "terminating" // somebody else is ending it
)

// Interruption is a notice about one instance.
type Interruption struct {
	Group      string
	InstanceID string
	Kind       InterruptionKind
	Deadline   time.Time // zero = not known
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	FindingError   Severity = "error"   // nothing works until somebody changes it
	FindingWarning Severity = "warning" // it will kill jobs, fight with Spillway or waste money
	FindingInfo    Severity = "info"    // nothing to mend: what it names is as it should be
)

// Finding is a setting of a group that works against Spillway.
type Finding struct {
	Group    string
	Code     string // stable, in snake_case, such as "az_rebalance"
	Severity Severity
	Message  string // what is set, and what comes of it
	Fix      string // what to do
}

// Count is a number of jobs, read from a metric.
type Count struct {
	Jobs float64   // ≥ 0
	At   time.Time // when it was true
}
