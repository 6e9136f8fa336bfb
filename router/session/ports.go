package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Queue is the jobs that wait, and the claims on them.
type Queue interface {
	// Counts returns the queue by class, whole or an error.
	Counts(ctx context.Context) ([]router.ClassCount, error)
	// Claim takes up to the wanted jobs for owner until ttl has passed. What was
	// claimed is returned also with an error.
	Claim(ctx context.Context, owner string, wants []router.ClaimWant, ttl time.Duration) ([]router.Claimed, error)
	// Renew extends claims and returns those that are no longer held.
	Renew(ctx context.Context, refs []router.JobRef, ttl time.Duration) (stale []router.JobRef, err error)
	// Reap puts jobs back whose claim has expired, at most limit of them.
	Reap(ctx context.Context, limit int) ([]spillway.JobRecord, error)
}

// Outcomes is where the ends of attempts are kept. Apply and Release answer for
// each item; with a whole error, or one that is neither store.ErrStaleAttempt nor
// store.ErrUnknownJob (nor, of Release, store.ErrQuarantined), the item is not known to be written, and is sent again.
type Outcomes interface {
	Apply(ctx context.Context, transitions []store.Transition) ([]error, error)
	Release(ctx context.Context, releases []store.Release) ([]error, error)
	// Reject ends pending jobs of a class that have waited for so long.
	Reject(ctx context.Context, class spillway.JobClass, waited time.Duration, limit int, result spillway.JobResult) ([]spillway.JobRecord, error)
}

// Machines is what replicas share of their machines, and the orders to drain.
type Machines interface {
	PutMachines(ctx context.Context, machines []router.Machine) error
	Machines(ctx context.Context) ([]router.Machine, error)
	// Drains returns the orders in force for a pool's machines.
	Drains(ctx context.Context, pool string) (map[spillway.MachineID]router.DrainOrder, error)
	// DrainsOf is Drains for many pools. With an error, only those are in the answer that
	// were read.
	DrainsOf(ctx context.Context, pools []string) (map[string]map[spillway.MachineID]router.DrainOrder, error)
}

// Records answers for single jobs.
type Records interface {
	// GetMany returns the records of jobs in the order of ids, nil where one is
	// unknown.
	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
}

// Store is all that a Dispatcher uses.
type Store interface {
	Queue
	Outcomes
	Machines
	Records
	Pokes
}

// Pokes wakes a dispatcher. The channels are closed when ctx or the store ends.
type Pokes interface {
	// Pokes fires when the queue may have grown.
	Pokes(ctx context.Context) (<-chan struct{}, error)
	// DrainPokes fires when there are new orders to drain.
	DrainPokes(ctx context.Context) (<-chan struct{}, error)
	// Canceled delivers the ids of claimed jobs that were canceled; nil when some may have
	// been missed.
	Canceled(ctx context.Context) (<-chan []spillway.JobID, error)
}
