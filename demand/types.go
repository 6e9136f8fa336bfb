package demand

import (
	"time"

	"github.com/spillway-ci/spillway"
)

// Class is waiting demand of one job class. A class may come in several entries
// (for example split by age); entries are served in the order of Less.
type Class struct {
	ID          spillway.JobClass
	Requirement spillway.Requirement
	Priority    int       // of its most urgent job, 0 first
	Pending     int       // jobs
	Oldest      time.Time // when its oldest job was submitted
	// Waited says how long its jobs have waited, in ascending order of For; nil = not
	// known: no pool is waited for then (Supply.SpillAfter).
	Waited []Waited
	// Unadmitted: its jobs first need the approval of admission controllers. They hold the
	// places that there are, and launch nothing.
	Unadmitted bool
	// Share is how many jobs of its project run already: pools that share fairly
	// (Supply.Fair) serve entries of equal priority by it, the least first.
	Share int
	// Sample is some of its jobs, the oldest first, for people; nil = not known.
	Sample []spillway.JobID
}

// Waited says that Jobs of a class's pending jobs have waited for at least For.
type Waited struct {
	For  time.Duration
	Jobs int
}

// Supply is what one pool could hold, in jobs.
type Supply struct {
	Pool       string
	Capability spillway.Capability
	Priority   int // 0 first
	CostPerJob float64
	Free       int  // places on live machines that take jobs now
	Booting    int  // places on instances that are coming
	Draining   int  // places on our own drains that can be taken back
	Launchable int  // places on instances that could still be launched, up to max
	CooledOff  bool // the provider refused lately: Launchable counts for nothing
	// Alike: pools of one number are alike to the matcher; 0 = those of one fingerprint.
	Alike int
	// SpillAfter is how long a job that the pool could take waits for it, while it has
	// or could come to have a place, before a pool of lower priority may take the job.
	SpillAfter time.Duration
	// Fair: among projects, those with the fewest running jobs are served first
	// (Class.Share); otherwise the oldest class is.
	Fair bool
}

// Stage is where a job's place would come from. Lower is better.
type Stage int

// The stages, in the order in which places are added.
const (
	FreePlaces    Stage = iota // live machines
	ComingPlaces               // booting instances and drains that can be taken back
	LaunchPlaces               // instances to be launched
	numberOfStage = iota
)

// Attribution is where the waiting jobs go. It is a value; do not change it.
type Attribution struct {
	Pools     map[string]PoolShare
	Flows     []Flow // Jobs > 0 each; sorted by class entry, then pool
	Unmatched []Unmatched
	Overflow  []Overflow
}

// PoolShare is one pool's part, in jobs, by the stage of the places used.
type PoolShare struct {
	Free, Coming, Launch int
	// Beyond is the jobs that the pool could take and no pool has room for. They
	// are not attributed: each pool that could take them shows them.
	Beyond int
}

// Total is every job attributed to the pool.
func (s PoolShare) Total() int { return s.Free + s.Coming + s.Launch }

// Flow says that Jobs of a class entry go to Pool at Stage.
type Flow struct {
	Class int // index into the classes given
	Pool  string
	Stage Stage
	Jobs  int
}

// Unmatched is a class that no pool can take, and why: the verdict of the pool
// that came nearest.
type Unmatched struct {
	Class     int
	Jobs      int
	Predicate string // as router.Verdict; "no_pool" where there is none at all
	Pool      string // the pool that came nearest
	Detail    string // a sentence
}

// Overflow is a class that some pool can take, for which none has room.
type Overflow struct {
	Class int
	Jobs  int
}

// View is the waiting jobs as one look found them.
type View struct {
	Classes []Class
	At      time.Time // when the facts in it were true
	Partial bool      // a lower bound: some of it could not be read
	// Lacking says of which origins (spillway.Requirement.Origin) it is a lower bound, and
	// why; of the others it is whole. It and LackingPools empty where Partial: it may be of
	// any.
	Lacking map[string]string
	// LackingPools says the same of single pools, by name: of what else is their origin's
	// it is whole.
	LackingPools map[string]string
	// Listed is when the jobs of an origin were such, where that was before At: jobs that
	// have begun since are still among them.
	Listed map[string]time.Time
}
