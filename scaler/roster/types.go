package roster

import (
	"time"
)

// DefaultRemoveRetry is when an instance that is still there is removed again. A
// cloud needs most of a minute to end an instance; asking sooner asks twice.
const DefaultRemoveRetry = time.Minute

// Rules are the times and limits of a pool's instances.
type Rules struct {
	Capacity        int           // jobs per instance
	Max             int           // instances; paces the removal of silent ones
	MaxUses         int           // jobs that an instance takes in its life; 0 = no limit
	IdleTime        time.Duration // an instance idle for less is kept
	RegisterTimeout time.Duration // from launch to registration
	SilentAfter     time.Duration // three heartbeats: not usable after this
	SilentTimeout   time.Duration // silent for this long and a second source agrees: removed
	SecondLook      time.Duration // from the drain's acknowledgement to the second look
	AckTimeout      time.Duration // a drain that nobody acknowledges for this long is taken back
	RemoveRetry     time.Duration // an instance still there this long after Remove is removed again
	DrainTimeout    time.Duration // an instance that a terminating hook holds is let go after this, jobs or none; 0 = as long as the hook allows
	MaxAge          time.Duration // an instance this long after its launch takes no more jobs; 0 = no limit
}

// Phase is where an instance is in its life. An instance is in exactly one.
type Phase string

// The phases.
const (
	Booting     Phase = "booting"     // launched, not registered, within register_timeout
	Usable      Phase = "usable"      // registered, heard lately, takes jobs
	Draining    Phase = "draining"    // our order, can be taken back
	UsedUp      Phase = "used_up"     // drained for good: max_uses or max_age reached, or it said itself that it leaves
	Interrupted Phase = "interrupted" // will be taken from us; drained for good
	Broken      Phase = "unhealthy"   // it or the provider says that it is broken; drained for good
	Silent      Phase = "silent"      // registered, not heard for silent_after
	BootFailed  Phase = "boot_failed" // never registered within register_timeout
	Paused      Phase = "paused"      // GitLab gives its runner no job, until somebody resumes it: of no use, and left alone
	Removing    Phase = "removing"    // removal asked for, or the provider says that it goes
	Zombie      Phase = "zombie"      // its machine is the pool's, and no list has it: drained for good, and not counted
)

// Hook is what of the group holds an instance until we let it go.
type Hook string

// The hooks.
const (
	NoHook          Hook = ""
	LaunchHook      Hook = "launch"      // it is not in service before its machine has registered
	TerminationHook Hook = "termination" // it is being ended, and may finish its jobs
)

// Listed is an instance as the provider lists it.
type Listed struct {
	ID         string
	Creating   bool
	Deleting   bool
	LaunchedAt time.Time // zero = not known
	Protected  bool
	Unhealthy  bool
	Hook       Hook
	Kept       bool // somebody has marked it as not to be touched
}

// Instance is all that is remembered of one instance. It is persisted.
type Instance struct {
	ID           string    `json:"id"`
	Phase        Phase     `json:"phase"`
	LaunchedAt   time.Time `json:"launched_at"` // by the provider, else when first seen
	RegisteredAt time.Time `json:"registered_at,omitzero"`
	Machine      string    `json:"machine,omitempty"`
	DrainedAt    time.Time `json:"drained_at,omitzero"` // when the drain was ordered
	DrainReason  string    `json:"drain_reason,omitempty"`
	RemovedAt    time.Time `json:"removed_at,omitzero"` // when Remove was last asked for
	SilentAt     time.Time `json:"silent_at,omitzero"`
	Missed       int       `json:"missed,omitempty"` // complete lists in a row without it
	Listed       bool      `json:"listed,omitempty"` // was in some list: the provider can remove it by name
	Unhealthy    bool      `json:"unhealthy,omitempty"`
	Kept         bool      `json:"kept,omitempty"`
	Leaves       Phase     `json:"leaves,omitempty"`     // the phase in which it is drained for good; empty = it isn't
	Notice       string    `json:"notice,omitempty"`     // kind of the gravest interruption notice
	TakenAt      time.Time `json:"taken_at,omitzero"`    // by that notice; zero = not known
	EndedFor     string    `json:"ended_for,omitempty"`  // why we removed it
	Unlisted     int       `json:"unlisted,omitempty"`   // complete lists since it was first heard, none of which had it
	UnlistedAt   time.Time `json:"unlisted_at,omitzero"` // the first of them
	Hook         Hook      `json:"hook,omitempty"`
	HeldAt       time.Time `json:"held_at,omitzero"`       // since when a terminating hook holds it
	HookAskedAt  time.Time `json:"hook_asked_at,omitzero"` // when its hook was last asked to let it go

	// From the machine's last record; not persisted, so that after a restart
	// nothing is believed that was not heard again.
	inUse       int
	uses        int
	lastUsed    time.Time
	heardAt     time.Time
	heartbeatAt time.Time
	ackedAt     time.Time
	connected   bool
	absent      bool // from the last list
	creating    bool // by the last list that had it
	stays       bool // by the last list that had it: the provider isn't ending it
	recorded    bool // there is a record of its machine
	crowded     bool // another machine that lives says that it is on it too
	beside      int  // of inUse: jobs of such machines
	drained     bool // by the machine's record
	stopping    bool
	complaint   string // why it is broken
	complainant string // whose word that is: its machine's own, or another's
	paused      bool   // by the machine's record
}

// Census counts the instances of a pool by phase.
type Census struct {
	Usable, Booting, Draining                         int
	UsedUp, Interrupted, Silent, BootFailed, Removing int
	Broken, Paused                                    int
	Zombies                                           int       // not of the group: in none of the other numbers
	Live                                              int       // every instance that bills: the sum of the above
	InUse                                             int       // of Usable: with at least one job
	Removable                                         int       // of Usable: proven idle for idle_time
	RunningJobs                                       int       // on usable instances
	DoomedJobs                                        int       // on instances that are taken with whatever runs on them
	FreePlaces                                        int       // on usable instances [jobs]
	DrainingPlaces                                    int       // on drains that can be taken back [jobs]
	Registered                                        int       // ever registered and still live
	Absent                                            int       // of Live, but for Removing: was listed, and is not in the last complete list
	Unlisted                                          int       // of Live, but for Removing: in no list so far
	NextIdle                                          time.Time // when the next usable idle instance becomes removable; zero = none
}

// Leaving is the instances in the group that are of no more use.
func (c Census) Leaving() int {
	return c.UsedUp + c.Interrupted + c.Broken + c.Paused + c.Silent + c.BootFailed + c.Removing
}

// Missing from this many complete lists in a row, an instance is gone.
const missedListsGone = 3

// Change is something that happened to an instance, for the ledger and logs.
type Change struct {
	Instance string
	Machine  string // the last that ran on it; empty = none
	Kind     ChangeKind
	Detail   string
}

// ChangeKind is a closed set.
type ChangeKind string

// The kinds of change.
const (
	Appeared     ChangeKind = "appeared"
	Registered   ChangeKind = "registered"
	WentSilent   ChangeKind = "went_silent"
	CameBack     ChangeKind = "came_back"
	NeverCame    ChangeKind = "boot_failed"
	Gone         ChangeKind = "gone"            // after we removed it, or as its cloud had announced
	GoneForeign  ChangeKind = "gone_unexpected" // somebody else ended it
	DrainAborted ChangeKind = "drain_aborted"   // the second look found work, or nobody acknowledged
	Noticed      ChangeKind = "interrupted"     // its cloud will take it, or may
	FellIll      ChangeKind = "unhealthy"       // it is drained for good
	Aged         ChangeKind = "max_age"         // it is drained for good
	ForcedEnd    ChangeKind = "forced_end"      // its hook was let go with jobs on it: drain_timeout is over
	TurnedZombie ChangeKind = "zombie"          // no list of the group has it
	WasPaused    ChangeKind = "paused"          // somebody paused its runner in GitLab
	WasResumed   ChangeKind = "resumed"
)
