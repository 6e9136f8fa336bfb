package watch

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/evidence"
	"github.com/spillway-ci/spillway/store"
)

// Registry is what replicas share of machines and of the jobs that were handed to them.
type Registry interface {
	scaler.Machines
	// Drains returns the orders in force for a pool's machines.
	Drains(ctx context.Context, pool string) (map[spillway.MachineID]router.DrainOrder, error)
	// Routed returns the book of a pool. Read after an order has been seen in force, it has
	// every job that the machine was handed since the book began and that has not ended.
	Routed(ctx context.Context, pool string, whole bool) (store.RoutedBook, error)
}

// Boards shows documents to every replica. A write with an epoch below the newest seen
// for its name fails.
type Boards interface {
	PutBoard(ctx context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error
	Board(ctx context.Context, name string) (data []byte, found bool, err error)
}

// GitLab says how GitLab has the runners of pools.
type GitLab interface {
	// Runners returns what is known, by GitLab's id; it may be old, which each state says.
	Runners(ctx context.Context) (map[int64]collect.RunnerState, error)
}

// Metrics is the runners' own metrics.
type Metrics interface {
	// Scrapes returns the last scrape of each of a pool's instances that ever answered.
	Scrapes(pool string) map[string]evidence.Scrape
}

// Pool is a pool to be watched.
type Pool struct {
	Name     string
	Mode     evidence.Mode // not Orchestrate: streams need nobody to watch
	Capacity int           // jobs per instance
	Drain    evidence.Drain
	Scraped  bool    // its runners' metrics are read
	Hooked   bool    // a webhook tells of each job that begins, as it does
	Runners  []int64 // GitLab's ids of its runners; empty = GitLab isn't asked about them
}
