package policy

import "time"

// Need names the rule for how many instances the jobs need.
type Need string

// The needs.
const (
	Queue Need = "queue" // ⌈(running + attributed pending) ÷ capacity per instance⌉
	Step  Need = "step"  // the alarm-and-Lambda rule, done right
)

// Policy is the rules of one pool. Counts are instances unless said otherwise.
type Policy struct {
	Need                Need // zero value: Queue
	Min, Max            int
	CapacityPerInstance int     // jobs
	IdleCount           int     // instances kept free on top of the need
	IdleFactor          float64 // the same as a ratio of the instances in use; the larger of the two counts
	IdleTime            time.Duration
	Tolerance           float64 // scale-in only: an excess of at most this ratio of the present number is left alone
	Out, In             Rules
	MaxRemovalsPerTick  int           // 0 = no limit
	InPercentBudget     int           // percent of the stabilization window's peak that is removed at most per window (at least 1 instance); 0 = no limit
	Step                int           // Need Step: instances per step
	StepWait            time.Duration // Need Step: how long below before scale-in
	Paused              bool
}

// Rules hold for one direction.
type Rules struct {
	Stabilization time.Duration // out: the lowest, in: the highest need of this window counts
	Cooldown      time.Duration // after a change in this direction
	StepLimit     int           // instances per decision; 0 = no limit
}

// Observation is all that a decision knows of the pool. Counts are instances
// unless said otherwise.
type Observation struct {
	// Jobs.
	Running    int  // on usable machines of the pool, or lost with theirs soon
	Attributed int  // pending, given to this pool by demand.Attribute
	Unplaced   int  // of Attributed: no place, free or coming, is left for them
	Counted    bool // Running and Attributed are from a count that says only how many there are: nothing tells which
	Floor      int  // by a count of the jobs that only says how many there are: nothing scales in below it
	Unsettled  int  // jobs that wait still or have begun, nobody knows yet: they launch nothing, and nothing scales in below them
	Overflow   int  // pending, that this pool could take and no pool has room for: it explains, and asks for nothing
	// Instances. An instance is in exactly one of these.
	Usable       int // registered, heard of lately, taking jobs
	Booting      int // launched or asked for, not registered yet, within register_timeout
	Draining     int // ours, can be taken back
	Leaving      int // in the group but of no more use: interrupted, used up, silent, boot-failed
	Ending       int // being ended: they still bill, but have left the group's desired number
	Absent       int // of Usable, Booting, Draining and Leaving: exists or existed, and is not in the group's last complete list
	InUse        int // of Usable: with at least one job
	Removable    int // of Usable: proven idle for at least idle_time
	Unfilled     int // of Booting: asked for, no instance exists yet; what GroupDesired exceeds the above by is added to both
	Withdrawable int // of Unfilled: the provider can take them back
	// The group; meaningless when GroupAge is Absent.
	GroupDesired       int
	GroupMin, GroupMax int
	// Reasons to hold.
	DemandAge    Freshness
	DemandWhy    string // which source says too little of the jobs, and why; empty: all do, or nobody can say
	GroupAge     Freshness
	CooledOff    time.Time // the provider refused: nothing is launched before this; zero = none
	LaunchClamp  int       // at most so many launches now (breaker probe); < 0 = no clamp
	NoScaleIn    Reason    // scale-in is forbidden for this reason; empty = allowed
	NoScaleInWhy string
	NoLaunch     Reason // launching is forbidden for this reason; empty = allowed
	NoLaunchWhy  string
	ProviderDown string // why the plugin can't be asked; empty = it can
}

// Freshness says how far a view can be trusted.
type Freshness int

// The kinds of view. A lower bound may scale out, never in.
const (
	Whole   Freshness = iota
	Partial           // a lower bound: partial or stale
	Absent            // nothing known: hold
)

// Direction of a change.
type Direction string

// The directions.
const (
	None Direction = "none"
	Out  Direction = "out"
	In   Direction = "in"
)

// Reason is why the number is what it is. The set is closed: it is a metric label.
type Reason string

// The reasons.
const (
	ReasonSteady        Reason = "steady"
	ReasonDemand        Reason = "demand"
	ReasonIdle          Reason = "idle"     // more than needed for long enough
	ReasonHeadroom      Reason = "headroom" // idle_count or idle_factor asks for more
	ReasonMin           Reason = "min"      // pool or group minimum
	ReasonMax           Reason = "max"      // our maximum limits
	ReasonProviderMax   Reason = "provider_max"
	ReasonStepLimit     Reason = "step_limit"
	ReasonTolerance     Reason = "tolerance"
	ReasonStabilization Reason = "stabilization"
	ReasonCooldown      Reason = "cooldown"
	ReasonIdleTime      Reason = "idle_time" // not idle for long enough yet
	ReasonHoldStale     Reason = "hold_stale"
	ReasonHoldPartial   Reason = "hold_partial"
	ReasonHoldPaused    Reason = "hold_paused"
	ReasonHoldCooledOff Reason = "hold_cooled_off"
	ReasonHoldProvider  Reason = "hold_provider_down"
	ReasonHoldWarmup    Reason = "hold_warmup"
	ReasonHoldUnready   Reason = "hold_unready"
	ReasonHoldBreaker   Reason = "hold_boot_failing"
	ReasonCannotDrain   Reason = "cannot_drain"
	ReasonThrottled     Reason = "throttled"        // the provider said when it may be asked again, and that is soon
	ReasonRunnerGone    Reason = "hold_runner_gone" // GitLab gives the pool's runners no job: they are deleted or paused there
	ReasonGroupHalt     Reason = "group_halt"       // the group launches or removes nothing, whoever asks
	ReasonFloor         Reason = "count_floor"      // a count of the jobs says that there are more than we know of
	ReasonDrift         Reason = "drift"            // somebody else lowered the group below what exists
	ReasonConflict      Reason = "bounds_conflict"  // the group's minimum is above our maximum
)

// Trace is one step of a decision.
type Trace struct {
	Step   string `json:"step"`
	Before int    `json:"before"`
	After  int    `json:"after"`
	Why    string `json:"why"`
}

// Decision is the answer. Counts are instances. Desired − From is always Undrain +
// Launch − Withdraw − Remove: what rules and facts don't allow is not desired, and
// the trace says which of them it was.
type Decision struct {
	From      int // usable + booting now, with all that the group was asked for
	Desired   int // usable + booting after this decision
	Direction Direction
	Reason    Reason
	Undrain   int // own drains to take back
	Launch    int // instances to ask for on top of that
	Withdraw  int // asked for, unfilled and no longer wanted
	Remove    int // instances to drain and remove
	// GroupTarget is what the group's desired number shall be raised to: SetDesired
	// is called iff it is above Observation.GroupDesired. It counts every instance
	// that is still in the group. Beyond launches it differs when somebody else
	// lowered the number below what exists: then it is asserted again.
	GroupTarget int
	LimitedBy   Reason  // the rule that kept it from what the jobs need; empty = none
	Trace       []Trace // each step that changed the number; each Before is the After above it
}
