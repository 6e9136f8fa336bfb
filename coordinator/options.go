package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Options are the numbers of a Server, and what it needs from its control plane. A zero
// number means the default.
type Options struct {
	Replica string // names this control plane; required
	// Configured returns the pools of the configuration that workers may serve.
	Configured func() []Configured
	// Replace has the router know the registered pools, all of them. An error names a pool
	// whose name another part of the control plane has; nothing is changed then.
	Replace func([]spillway.Pool) error

	// MaxWorkers bounds the workers that are attached to this replica: 10000. Each costs
	// about 20 KiB.
	MaxWorkers int
	// MaxQueued bounds the jobs that wait in the queue of one pool: 1000. Another one is
	// refused, so that whoever submits notices.
	MaxQueued int
	// PollWait is how long a poll waits for a job: 5s. Longer makes fewer calls; the
	// proxies between must bear calls that long.
	PollWait time.Duration
	// SilentAfter is how long a worker may make no call before it is given up: 45s, three
	// heartbeats.
	SilentAfter time.Duration
	// AcceptTimeout is the router's: how long a job may be offered without being fetched.
	AcceptTimeout time.Duration

	Events Events
}

// The defaults of Options.
const (
	DefaultMaxWorkers = 10_000
	DefaultMaxQueued  = 1_000
	DefaultPollWait   = 5 * time.Second
)

// The bounds of Options.
const (
	MaxWorkers  = 100_000
	MaxQueued   = 1_000_000
	MaxPollWait = 30 * time.Second
)

// Limits on what callers may say, each tested at its edge.
const (
	// MaxRunnerIDBytes bounds a runner_id and an instance_id [bytes]. With the prefix they
	// fit into a machine id.
	MaxRunnerIDBytes = 100
	// MaxTags bounds the tags of a pool [tags]: a job that asks for all of them is allowed,
	// and the pool's own tag is one more.
	MaxTags = spillway.MaxJobTags - 2
	// maxEnded bounds the jobs that a worker is told to end and does not [jobs]: it has
	// one, and each further one was given to it after it had said that it was free.
	maxEnded = 16
)

// Times inside of the server.
const (
	// sweepMost is the most time between two looks for silent workers, and for jobs that
	// were not fetched.
	sweepMost = time.Second
	// beatGapMost is how often the router hears the same of a worker again at most.
	beatGapMost = time.Second
	// beatsPerSecond and beatBurst bound what it hears of a worker that keeps changing its
	// mind [messages]: a machine that says more is cut off.
	beatsPerSecond, beatBurst = 5, 20
	// movePatience is how long a worker that was seen at another replica keeps its place at
	// this one: its calls may be spread over both.
	movePatience = 5 * time.Second
	// ackWait bounds how long a report waits for its result to be stored.
	ackWait = 20 * time.Second
	// workSpare is how long it is kept what a worker was given, beyond its time limit.
	workSpare = time.Hour
	// factTopic is where replicas tell each other which workers they see.
	factTopic = "workers"
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	o.MaxWorkers = cmp.Or(o.MaxWorkers, DefaultMaxWorkers)
	o.MaxQueued = cmp.Or(o.MaxQueued, DefaultMaxQueued)
	o.PollWait = cmp.Or(o.PollWait, DefaultPollWait)
	o.SilentAfter = cmp.Or(o.SilentAfter, spillway.SilentAfter)
	o.AcceptTimeout = cmp.Or(o.AcceptTimeout, router.DefaultTimeouts().Assigned)
	// A poll under way must not keep the router from hearing of its worker for too long.
	o.PollWait = min(o.PollWait, o.SilentAfter/3)
	return o
}

// Validate reports every mistake, joined.
func (o Options) Validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("coordinator: "+format, args...))
		}
	}
	check(o.Replica == "", "Options.Replica is empty: name the control plane")
	check(o.Configured == nil || o.Replace == nil, "Options.Configured and Options.Replace are needed")
	check(o.MaxWorkers < 0 || o.MaxWorkers > MaxWorkers, "%d workers, use 1 to %d", o.MaxWorkers, MaxWorkers)
	check(o.MaxQueued < 0 || o.MaxQueued > MaxQueued, "%d jobs queued, use 1 to %d", o.MaxQueued, MaxQueued)
	check(o.PollWait < 0 || o.PollWait > MaxPollWait, "polls wait %s, use up to %s", o.PollWait, MaxPollWait)
	return errors.Join(errs...)
}

// offerFor is how long a job stays offered: less than the router waits, so that none is
// fetched that the router has taken back.
func (o *Options) offerFor() time.Duration { return o.AcceptTimeout - o.AcceptTimeout/4 }

func (o *Options) beatGap() time.Duration { return min(beatGapMost, o.SilentAfter/10) }

func (o *Options) sweepEvery() time.Duration {
	return min(sweepMost, o.SilentAfter/8, o.AcceptTimeout/8)
}
