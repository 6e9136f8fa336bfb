package scaler

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
)

// Group is one provider group, as a pool's loop needs it. Errors are those of
// pluginsdk; a call that may or may not have been carried out answers
// pluginsdk.ErrTransient, and the loop lists before it asks again.
type Group interface {
	Status(ctx context.Context) (pluginsdk.GroupStatus, error)
	ListInstances(ctx context.Context) ([]pluginsdk.Instance, error)
	SetDesired(ctx context.Context, target, expected int) (int, error)
	Remove(ctx context.Context, ids []string) ([]pluginsdk.RemoveResult, error)
	Withdraw(ctx context.Context, expected int) (pluginsdk.WithdrawResult, error)
	CompleteHook(ctx context.Context, ids []string) error
	ReportUnhealthy(ctx context.Context, ids []string) error
}

// Machines is the runners of all pools and the way to have them drained.
type Machines interface {
	// Machines returns every machine that is registered, whole or an error.
	Machines(ctx context.Context) ([]router.Machine, error)
	// OrderDrain asks for machines to take no more jobs (on), or takes that back.
	// It returns when the order is on record, not when it is obeyed: the machines'
	// DrainAckedAt says that.
	OrderDrain(ctx context.Context, pool string, orders []router.DrainOrder) error
	// RemoveMachines forgets machines whose instance is gone.
	RemoveMachines(ctx context.Context, pool string, ids []spillway.MachineID) error
}

// Evidence is what Machines may say besides, as of its last call: how far what is
// known of a pool's machines goes. Machines that implement it are those of pools
// whose jobs others hand out; without it streams tell all there is.
type Evidence interface {
	// Limits returns what can't be done with a pool, and why.
	Limits(pool string) Limits
	// Begun returns how many jobs are known to have begun on a pool's machines after a
	// time, where nothing else tells of each: a list of the waiting jobs from before has
	// them still, and they need no further place.
	Begun(pool string, after time.Time) int
	// Unseen returns how many jobs run on a pool's machines that those don't tell of yet:
	// the list of the waiting jobs has them no more.
	Unseen(pool string) int
}

// Limits is what can't be done with a pool. Each sentence is for people; empty = it can
// be done.
type Limits struct {
	// StoppedByHook: a machine may be given jobs until the hook that ends its instance has
	// stopped its runner. What was proven before that lets none go.
	StoppedByHook bool

	CannotDrain string // nothing can be removed, whatever idles
	Unaccounted string // a job may run on an instance that nothing is heard of
	CannotServe string // no instance, old or new, is given jobs: to launch one is of no use
}

// Demand is the waiting jobs. An error means that nothing is known, which is not
// the same as no jobs.
type Demand interface {
	Demand(ctx context.Context) (demand.View, error)
}

// Memory is what a pool's loop persists before it acts. Writes with an epoch
// below the newest one fail.
type Memory interface {
	SavePoolState(ctx context.Context, pool string, epoch uint64, state []byte) error
	LoadPoolState(ctx context.Context, pool string) (state []byte, found bool, err error)
	AppendLedger(ctx context.Context, pool string, epoch uint64, entry []byte) error
}

// Tenure says whether this replica may write for a pool, and for how long.
type Tenure interface {
	// Hold returns the epoch and when the tenure ends; ok is false when another
	// replica has the pool or nobody can be asked.
	Hold(pool string, now time.Time) (epoch uint64, until time.Time, ok bool)
}
