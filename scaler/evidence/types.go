package evidence

import (
	"time"

	"github.com/spillway-ci/spillway/router"
)

// Mode is who hands the jobs of a pool out.
type Mode string

// The modes.
const (
	Orchestrate Mode = "orchestrate" // Spillway's own router, over streams
	Observe     Mode = "observe"     // GitLab, and nothing of it passes through us
	RouteFront  Mode = "route"       // we do, and everything that a runner says to GitLab passes through us
	RouteOne    Mode = "route_one_path"
)

// Drain is how an instance can be made to take no more jobs.
type Drain string

// The ways to drain.
const (
	DrainNone    Drain = "none"    // there is none: nothing scales in
	DrainSidecar Drain = "sidecar" // an agent beside the runner stops it
	DrainHook    Drain = "hook"    // a terminating hook of the group, whose script stops the runner and waits
	DrainRouter  Drain = "router"  // no job is handed to it any more
)

// Facts is all that is known of one pool's machines from elsewhere than streams.
// Times are by one clock, the owner's.
type Facts struct {
	Pool     string
	Mode     Mode
	Capacity int // jobs per instance
	// Drain is the way that the pool is configured for; where jobs are handed out by us
	// it is DrainRouter, whatever this says. HookVerified: the plugin can complete hooks
	// and has found the terminating one.
	Drain        Drain
	HookVerified bool

	Instances []Instance // the group's last list
	ListedAt  time.Time  // when that was; zero = none yet
	// Scrapes has, by instance, the last one of each that ever answered. nil: nobody is
	// configured to ask.
	Scrapes map[string]Scrape
	Streams []router.Machine // machines of the pool with a stream: agents and sidecars
	Routed  []Routed         // machines that ask for jobs through us
	// BookSince is since when the book of handed-out jobs has all of them: jobs of
	// before may run unseen. Zero = nothing is known of the book.
	BookSince time.Time
	// Runners is what GitLab says, by runner. Empty: GitLab isn't asked. One that it
	// should be asked about and that nothing is known of is the zero Runner.
	Runners map[string]Runner
	// Drains is the orders in force, by machine id, each with when the owner first saw it
	// in force.
	Drains map[string]router.DrainOrder
	// Fresh is how old a fact may be to prove anything.
	Fresh time.Duration
}

// Instance is an instance of the group's list.
type Instance struct {
	ID         string
	LaunchedAt time.Time
	Running    bool // neither being created nor deleted
	Ending     bool // it is being deleted, or a terminating hook holds it
}

// Scrape is what the runner on an instance said by its metrics.
type Scrape struct {
	At         time.Time // when it last answered
	FirstAt    time.Time // when it first did
	Jobs       int       // that run on it: the sum of gitlab_runner_jobs; nothing exported by a runner that answers is 0
	Concurrent int       // gitlab_runner_concurrent; 0 = not exported
	Systems    []string  // system_ids that its series name
	LastBusyAt time.Time // when it was last seen with a job; zero = never
}

// Routed is a machine that asks for jobs through us.
type Routed struct {
	Machine    router.Machine // as the replica that heard it last wrote it
	Open       int            // jobs that were handed to it and have not ended, as far as passes through us
	Uses       int            // jobs ever handed to it
	LastUsedAt time.Time      // when one last began or ended; zero = never
	ReadAt     time.Time      // when the book of open jobs was read
}

// Runner is what GitLab says of a runner.
type Runner struct {
	At       time.Time
	Whole    bool // Running and BySystem are exact
	Running  int
	BySystem map[string]int
	Systems  []string // nil = not asked
	Deleted  bool
	Paused   bool
}

// Verdict is what follows for a pool.
type Verdict struct {
	Machines []router.Machine // sorted by id
	// CannotDrain is why nothing of the pool can be removed, whatever idles; empty:
	// some can.
	CannotDrain string
	// Unaccounted is why a job may run on an instance that nothing is heard of, so that
	// its silence is no proof that it never came up; empty: every job that runs is on a
	// machine that is heard.
	Unaccounted string
	// StoppedByHook: a machine takes jobs until the hook that ends its instance has stopped
	// its runner, whatever was proven before.
	StoppedByHook bool
	// Unseen is the running jobs that GitLab shows beyond those that machines tell of: their
	// own side is looked at at another time.
	Unseen int
	// CannotServe is why no instance of the pool is given jobs, old or new, so that to
	// launch one is of no use; empty: they are.
	CannotServe string
}
