package cells

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// The defaults and bounds of Timing.
const (
	// DefaultLease: shorter ends jobs for an outage of the network that would have passed;
	// with a longer one, a job of a peer that is gone waits longer.
	DefaultLease = time.Minute
	MinLease     = 3 * time.Second
	MaxLease     = 30 * time.Minute
	// DefaultEndWithin: a machine that is heard ends a job within its 10 s between SIGTERM
	// and SIGKILL. One that has lost its routers notices that within 40 s (a ping of the
	// connection), has the job go on for AloneFor (30 s), and then ends it: 80 s. A control
	// plane that comes back just before that has the job go on for Welcome (15 s) and ends
	// it then: 105 s, which is the longest way there is.
	DefaultEndWithin = 2 * time.Minute
	MinEndWithin     = 3 * time.Second
	MaxEndWithin     = 30 * time.Minute
	// maxAlone is how long a machine goes on with a handed-over job while it has no router:
	// a router's restart and a backoff fit into it.
	maxAlone = 30 * time.Second
	// maxWelcome is how long a job goes on of which its cell does not know how long it is
	// covered, since another replica knew: the origin links to the next one sooner.
	maxWelcome = 15 * time.Second
	// driftPerMille is how wrong the rate of a clock may be [‰]: ten times the worst quartz,
	// twice what NTP may slew.
	driftPerMille = 1
	// margin is for what is not measured: the time between the end of a lease and the tick
	// that sees it, on either side.
	margin = 5 * time.Second
	// MinBeat is the least time between two beats.
	MinBeat = 100 * time.Millisecond
)

// Timing is what both ends of a link go by: the origin's lease, the peer's EndWithin.
type Timing struct {
	Lease     time.Duration // how long a job goes on in the peer without a word of the origin
	EndWithin time.Duration // how long the peer may take to be sure that a job has ended
}

// WithDefaults fills in what is zero.
func (t Timing) WithDefaults() Timing {
	t.Lease = cmp.Or(t.Lease, DefaultLease)
	t.EndWithin = cmp.Or(t.EndWithin, DefaultEndWithin)
	return t
}

// Validate reports every number that is out of range, joined.
func (t Timing) Validate() error {
	var errs []error
	if t.Lease < MinLease || t.Lease > MaxLease {
		errs = append(errs, fmt.Errorf("lease %s is out of range: use %s to %s", t.Lease, MinLease, MaxLease))
	}
	if t.EndWithin < MinEndWithin || t.EndWithin > MaxEndWithin {
		errs = append(errs, fmt.Errorf("end_within %s is out of range: use %s to %s", t.EndWithin, MinEndWithin, MaxEndWithin))
	}
	return errors.Join(errs...)
}

// GiveBack is how long the origin holds a job after it last covered it: the lease, what the
// peer needs to end it, the drift of both clocks over these, and a margin.
func (t Timing) GiveBack() time.Duration {
	known := t.Lease + t.EndWithin
	return known + 2*driftPerMille*known/1000 + margin
}

// BeatEvery is how often the peer beats: three beats may be lost before a lease is over.
func (t Timing) BeatEvery() time.Duration { return max(t.Lease/4, MinBeat) }

// AloneFor is how long a machine of the peer goes on with a handed-over job while it has no
// router, and can't be told that the lease is over.
func (t Timing) AloneFor() time.Duration { return min(maxAlone, t.EndWithin/4) }

// Welcome is how long a job is covered of which its cell does not know for how long it is.
func (t Timing) Welcome() time.Duration { return min(maxWelcome, t.Lease, t.EndWithin/8) }
