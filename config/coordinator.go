package config

import "time"

// The defaults and bounds of the coordinator section.
const (
	// DefaultMaxWorkers: not smaller, since a fleet of several pools is soon that large;
	// not larger, since each costs memory (about 20 KiB).
	DefaultMaxWorkers = 10_000
	MaxWorkers        = 100_000

	// DefaultMaxQueued: a smaller queue refuses the jobs of one busy pipeline; in a larger
	// one a job waits for longer than whoever submitted it will.
	DefaultMaxQueued = 1_000
	MaxQueuedPerPool = 1_000_000

	// DefaultPollWait: shorter makes idle workers call more often; longer is cut off by
	// proxies that were not told.
	DefaultPollWait = 5 * time.Second
	MinPollWait     = 100 * time.Millisecond
	MaxPollWait     = 30 * time.Second
)

// Coordinator is about workers that ask for jobs by single calls.
type Coordinator struct {
	MaxWorkers int           `yaml:"max_workers"` // attached to one replica
	MaxQueued  int           `yaml:"max_queued"`  // jobs that wait for one pool
	PollWait   time.Duration `yaml:"poll_wait"`   // how long a poll is held
}

func defaultCoordinator() Coordinator {
	return Coordinator{MaxWorkers: DefaultMaxWorkers, MaxQueued: DefaultMaxQueued, PollWait: DefaultPollWait}
}

func (v *validator) coordinator() {
	c := &v.config.Coordinator
	v.need(c.MaxWorkers >= 1 && c.MaxWorkers <= MaxWorkers, "coordinator.max_workers", "%d is out of range; use 1 to %d", c.MaxWorkers, MaxWorkers)
	v.need(c.MaxQueued >= 1 && c.MaxQueued <= MaxQueuedPerPool, "coordinator.max_queued", "%d is out of range; use 1 to %d", c.MaxQueued, MaxQueuedPerPool)
	v.between(c.PollWait, MinPollWait, MaxPollWait, "coordinator.poll_wait")
}
