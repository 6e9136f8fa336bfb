package scenario

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// Limits of one scenario.
const (
	// MaxFileBytes bounds the scenario and its trace, each [bytes].
	MaxFileBytes = 256 << 20
	// MaxJobs bounds the jobs of a story, bursts expanded [jobs].
	MaxJobs = 1_000_000
	// MaxEvents bounds the events [entries].
	MaxEvents = 100_000
	// MaxReplicas bounds the control planes [replicas].
	MaxReplicas = 16
	// MaxDuration bounds the virtual time of a story.
	MaxDuration = 366 * 24 * time.Hour
	// MaxTimes bounds how often one fact is delivered again [deliveries].
	MaxTimes = 10_000
	// MaxControllerInstances bounds the instances of one admission controller [instances].
	MaxControllerInstances = 16
	// MaxCells bounds the other cells [cells].
	MaxCells = 8
)

// The defaults.
const (
	DefaultDuration = time.Hour
	DefaultSeed     = 1
	// DefaultFaultFor is how long a fault lasts where nothing else is said.
	DefaultFaultFor = 30 * time.Second
	// DefaultCrashFor is how long a crashed plugin is away: the host's first
	// restart comes after about a second.
	DefaultCrashFor = time.Second
)

// Mode says who hands out the jobs.
type Mode string

// The modes.
const (
	Orchestrate Mode = "orchestrate"
	Route       Mode = "route"
	Observe     Mode = "observe"
)

// Scenario is one valid story. It is a value; do not change it.
type Scenario struct {
	Path     string
	Seed     uint64
	Mode     Mode
	Duration time.Duration
	Replicas int
	Tick     time.Duration
	Config   *config.Config
	Clouds   map[string]fake.Config // one for each pool
	Jobs     []Job                  // by At, then by place in the file
	Events   []Event                // by At, then by place in the file
	Expect   []Expectation

	Controllers map[string]Controller // of the configuration's; one that is missing never connects
	Cells       map[string]*Scenario  // the other cells, by name; nil: this one is alone
}

// Controller is the instances of an admission controller. Each answers for one job after
// the other.
type Controller struct {
	Instances int
	Replica   int           // to which they connect; negative: to whichever their names fall on
	From      time.Duration // when they connect first
	Batch     int           // jobs that they are shown at a time; 0 = as configured
	Takes     time.Duration // for each job
	Refuses   Refuses
}

// Refuses is which jobs a controller refuses: each that any of these names.
type Refuses struct {
	Jobs     []string // and bursts
	Tags     []string
	Projects []int64
}

// Job is one job that is submitted at At and runs for Duration on its machine.
type Job struct {
	At       time.Duration
	Duration time.Duration
	Job      spillway.Job
	Line     int
}

// Event is something that happens at At.
type Event struct {
	At     time.Duration
	Line   int
	Action Action
}

// Action is one of the types below.
type Action interface{ action() }

// The actions.
type (
	// Cancel takes jobs back.
	Cancel struct{ Jobs []spillway.JobID }
	// Duplicate delivers the submission of jobs again.
	Duplicate struct {
		Jobs  []spillway.JobID
		Times int
	}
	// SetDesired is somebody else changing the group.
	SetDesired struct {
		Pool string
		To   int
	}
	// KillInstance is somebody else ending an instance.
	KillInstance struct {
		Pool string
		Nth  int // launch order, 0 = the oldest ever
	}
	// Interrupt is the cloud's notice about an instance. One of kind spot or
	// maintenance is taken when Notice is over; after rebalance nothing happens by
	// itself.
	Interrupt struct {
		Pool   string
		Nth    int
		Notice time.Duration
		Kind   pluginsdk.InterruptionKind
		Via    Via
	}
	// Unhealthy is an instance that is found to be broken. What it runs goes on.
	Unhealthy struct {
		Pool string
		Nth  int
		Via  Via
	}
	// Keep is somebody marking an instance as not to be touched.
	Keep struct {
		Pool string
		Nth  int
	}
	// Signal is a fault of the collected view of the jobs.
	Signal struct {
		Source string // "jobs"
		Fault  SignalFault
		For    time.Duration
	}
	// Plugin is a fault of the provider plugin of one pool.
	Plugin struct {
		Pool  string
		Fault PluginFault
		For   time.Duration
	}
	// Store is a fault of what replicas share.
	Store struct {
		Fault StoreFault
		For   time.Duration // not with StoreWiped
	}
	// Replica is a fault of one control plane.
	Replica struct {
		N            int
		Fault        ReplicaFault
		RestartAfter time.Duration // 0 = never
	}
	// Runner is what somebody does to the runner of an instance in GitLab; not in mode
	// orchestrate.
	Runner struct {
		Pool  string
		Nth   int
		Fault RunnerFault
	}
	// Reload is a new configuration, already merged and validated.
	Reload struct{ Config *config.Config }
	// Control is a fault of instances of an admission controller.
	Control struct {
		Name  string
		Nth   int // negative: all of them
		Fault ControllerFault
		Takes time.Duration // with ControllerSlow: for each job
		For   time.Duration
	}
	// Link is a fault of the way to another cell.
	Link struct {
		To    string
		Fault LinkFault
		For   time.Duration
	}
	// Offers is a cell saying something else of its free places than what is true.
	Offers struct {
		Fault OffersFault
		Free  int // with OffersLie: places, of each capability
		For   time.Duration
	}
)

func (Cancel) action()       {}
func (Duplicate) action()    {}
func (SetDesired) action()   {}
func (KillInstance) action() {}
func (Interrupt) action()    {}
func (Unhealthy) action()    {}
func (Keep) action()         {}
func (Signal) action()       {}
func (Plugin) action()       {}
func (Store) action()        {}
func (Replica) action()      {}
func (Reload) action()       {}
func (Runner) action()       {}
func (Control) action()      {}
func (Link) action()         {}
func (Offers) action()       {}

// Via is who says something of an instance.
type Via string

// Whose word it is.
const (
	ViaProvider Via = "provider"
	ViaMachine  Via = "machine" // what the instance's own metadata say
)

// SignalFault is what is wrong with the view of the jobs.
type SignalFault string

// The faults of a signal.
const (
	SignalError   SignalFault = "error"   // the read fails
	SignalTimeout SignalFault = "timeout" // the read fails late
	SignalEmpty   SignalFault = "empty"   // it says that there are no jobs
	SignalStale   SignalFault = "stale"   // it stays as it was when the fault began
	SignalPartial SignalFault = "partial" // half of it is there, and it says so
)

// PluginFault is what is wrong with a plugin.
type PluginFault string

// The faults of a plugin.
const (
	PluginCrash PluginFault = "crash" // calls fail at once
	PluginHang  PluginFault = "hang"  // calls fail at their deadline
)

// RunnerFault is what somebody did to a runner in GitLab.
type RunnerFault string

// What can be done to a runner.
const (
	RunnerDeleted RunnerFault = "deleted"
	RunnerPaused  RunnerFault = "paused" // GitLab gives it no job
	RunnerResumed RunnerFault = "resumed"
)

// StoreFault is what is wrong with the store.
type StoreFault string

// The faults of the store.
const (
	StoreDown     StoreFault = "down"
	StoreWiped    StoreFault = "wiped"
	StoreReadonly StoreFault = "readonly"
)

// ReplicaFault is what happens to a control plane.
type ReplicaFault string

// The faults of a replica.
const (
	ReplicaKill  ReplicaFault = "kill"  // it forgets everything
	ReplicaPause ReplicaFault = "pause" // it stands still and then goes on
)

// ControllerFault is what is wrong with an instance of an admission controller.
type ControllerFault string

// The faults of a controller.
const (
	ControllerGone   ControllerFault = "gone"   // its connection ends, whatever it was asked, and it comes back after that
	ControllerSilent ControllerFault = "silent" // it is connected and answers nothing
	ControllerSlow   ControllerFault = "slow"   // it takes longer for each job
	ControllerLies   ControllerFault = "lies"   // it answers what it was not asked
)

// LinkFault is what is wrong with the way to another cell.
type LinkFault string

// The faults of a link.
const (
	LinkCut     LinkFault = "cut"     // it ends, and none can be begun
	LinkStalled LinkFault = "stalled" // nothing comes through; then all of it does, late
)

// OffersFault is what is wrong with what a cell offers.
type OffersFault string

// The faults of offers.
const (
	OffersStale OffersFault = "stale" // they stay as they were when the fault began
	OffersLie   OffersFault = "lie"   // they say free, whatever there is
)
