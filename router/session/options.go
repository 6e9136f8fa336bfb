package session

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Options are the numbers of a Dispatcher, and whom it tells. A zero means the
// default.
type Options struct {
	// Replica names this control plane in machine records; required.
	Replica string
	// Pools are the configured pools. They may be replaced with SetPools.
	Pools []spillway.Pool
	// Timeouts: Pending and Unmatched are carried out here, Assigned is how long a
	// machine has to accept a job.
	Timeouts router.Timeouts

	// Admission is asked which jobs first need approval; nil: none does.
	Admission Admission

	// Weights are how the criteria of the choice of a machine count; nil: the defaults.
	Weights *router.Weights

	// MaxMachines bounds the machines that are connected to this replica: 20000, which
	// is about 1 GiB of connections.
	MaxMachines int

	// HeartbeatEvery is told to the machines: 15s.
	HeartbeatEvery time.Duration
	// SilentAfter is how long a connected machine may say nothing before its stream
	// is ended: 45s, three heartbeats.
	SilentAfter time.Duration
	// Grace is how long a machine without a stream keeps its jobs: 30s. Not smaller: a
	// replica's restart and a runner's backoff fit into it; not larger: the job waits
	// that long when its machine is gone.
	Grace time.Duration
	// RegisterTimeout is how long a new stream may take to say who it is: 10s.
	RegisterTimeout time.Duration

	// ClaimTTL is how long a claim holds without being renewed: 60s, longer than any
	// silence that is forgiven. RenewEvery is a third of it: 20s.
	ClaimTTL   time.Duration
	RenewEvery time.Duration
	// ReapEvery is how often expired claims of any replica are put back: 10s.
	ReapEvery time.Duration
	// CountsEvery is how often the queue is counted when nobody pokes: 1s.
	CountsEvery time.Duration
	// RecordsDelay is how long a change of a machine waits for others before it is
	// written: 5ms. RecordsEvery is the same for what changes with each job, when it
	// changes all the time: 250ms.
	RecordsDelay time.Duration
	RecordsEvery time.Duration

	// AloneFor is how long a machine may go on with a job of another cell while it has no
	// router: 30s. See cells.Timing.
	AloneFor time.Duration

	// AckDelay is how long the acknowledgement of a result waits for another message to
	// the same machine: 200ms, longer than a busy machine waits for its next job. Nobody
	// waits for it: a machine only forgets a result then.
	AckDelay time.Duration

	// Events is told what happens.
	Events Events
}

// The defaults of Options.
const (
	DefaultMaxMachines     = 20_000
	DefaultGrace           = 30 * time.Second
	DefaultRegisterTimeout = 10 * time.Second
	DefaultClaimTTL        = 60 * time.Second
	DefaultReapEvery       = 10 * time.Second
	DefaultCountsEvery     = time.Second
	DefaultRecordsDelay    = 5 * time.Millisecond
	DefaultRecordsEvery    = 250 * time.Millisecond
	DefaultAckDelay        = 200 * time.Millisecond
	DefaultAloneFor        = 30 * time.Second
)

// Bounds inside of the dispatcher.
const (
	// inboxEvents bounds what streams have said and the dispatcher has not read
	// [events]; a stream that finds it full waits, and with it its runner.
	inboxEvents = 4096
	// turnEvents bounds how much is read before the dispatcher acts [events].
	turnEvents = 4096
	// maxClaimJobs bounds one claim [jobs]: a script blocks the store's server while
	// it runs.
	maxClaimJobs = 512
	// maxWriteJobs bounds one write of outcomes [jobs]. A result may carry 64 KiB.
	maxWriteJobs = 512
	// minCountsGap keeps a storm of pokes from counting the queue all the time.
	minCountsGap = 10 * time.Millisecond
	// retryFirst and retryMost bound the wait before a write is repeated.
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
	// sweepEvery is how often the dispatcher looks for what time has done.
	sweepEvery = time.Second
	// waitEvery is the least time between two Wait messages to one machine.
	waitEvery = time.Minute
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	o.Timeouts = o.Timeouts.WithDefaults()
	o.MaxMachines = cmp.Or(o.MaxMachines, DefaultMaxMachines)
	o.HeartbeatEvery = cmp.Or(o.HeartbeatEvery, spillway.DefaultHeartbeatEvery)
	o.SilentAfter = cmp.Or(o.SilentAfter, spillway.SilentAfter)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.RegisterTimeout = cmp.Or(o.RegisterTimeout, DefaultRegisterTimeout)
	o.ClaimTTL = cmp.Or(o.ClaimTTL, DefaultClaimTTL)
	o.RenewEvery = cmp.Or(o.RenewEvery, o.ClaimTTL/3)
	o.ReapEvery = cmp.Or(o.ReapEvery, DefaultReapEvery)
	o.CountsEvery = cmp.Or(o.CountsEvery, DefaultCountsEvery)
	o.RecordsDelay = cmp.Or(o.RecordsDelay, DefaultRecordsDelay)
	o.RecordsEvery = cmp.Or(o.RecordsEvery, DefaultRecordsEvery)
	o.AckDelay = cmp.Or(o.AckDelay, DefaultAckDelay)
	o.AloneFor = cmp.Or(o.AloneFor, DefaultAloneFor)
	return o
}

// Validate reports every mistake, joined.
func (o Options) Validate() error {
	var errs []error
	if o.Replica == "" {
		errs = append(errs, errors.New("session: Options.Replica is empty: name the control plane"))
	}
	for i := range o.Pools {
		if err := o.Pools[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("pool %q: %w", o.Pools[i].Name, err))
		}
	}
	d := o.withDefaults()
	if d.RenewEvery >= d.ClaimTTL {
		errs = append(errs, fmt.Errorf("session: claims are renewed every %s and end after %s: renew at least twice in that time", d.RenewEvery, d.ClaimTTL))
	}
	if d.HeartbeatEvery >= d.SilentAfter {
		errs = append(errs, fmt.Errorf("session: a heartbeat every %s and silence after %s: a healthy machine would be silent", d.HeartbeatEvery, d.SilentAfter))
	}
	return errors.Join(errs...)
}
