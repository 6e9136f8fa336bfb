package collect

import (
	"context"
	"iter"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// The names by which replicas find each other.
const (
	// Topic is where replicas tell each other what they see of jobs.
	Topic = "gitlab/jobs"
	// BoardName is the board of the replica that asks GitLab.
	BoardName = "gitlab"
	// LeaseName is the lease of that replica.
	LeaseName = "gitlab/source"
)

// API is what is asked of GitLab.
type API interface {
	// Jobs comes page by page. An error is its last word, and makes what came before
	// worth nothing.
	Jobs(ctx context.Context, scope gitlab.Scope, statuses ...string) iter.Seq2[gitlab.Job, error]
	Job(ctx context.Context, projectID, jobID int64) (gitlab.Job, error)
	Pipeline(ctx context.Context, projectID, pipelineID int64) (gitlab.PipelineRef, error)
	Runner(ctx context.Context, id int64) (gitlab.Runner, error)
	Ancestors(ctx context.Context, projectID int64) ([]int64, error)
}

var _ API = (*gitlab.Client)(nil)

// Leases is where leases live.
type Leases interface {
	// HoldLeases acquires or renews many leases at once and returns those held.
	HoldLeases(ctx context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error)
	ReleaseLease(ctx context.Context, l spillway.Lease) error
}

// Boards shows documents to every replica.
type Boards interface {
	BoardReader
	// PutBoard fails for an epoch below the newest seen.
	PutBoard(ctx context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error
}

// BoardReader reads what PutBoard has shown.
type BoardReader interface {
	Board(ctx context.Context, name string) (data []byte, found bool, err error)
}

// Facts tells every replica that listens, and keeps nothing.
type Facts interface {
	FactPublisher
	// Facts delivers what is told from now on; it is closed when ctx or the store ends.
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
	// PublishPoke wakes every replica's scaler.
	PublishPoke(ctx context.Context) error
}

// FactPublisher tells every replica that listens.
type FactPublisher interface {
	PublishFact(ctx context.Context, topic string, data []byte) error
}

// Store is what the replicas share.
type Store interface {
	Leases
	Boards
	Facts
}

// Held is the jobs that a replica keeps for machines that are still to come.
type Held interface {
	// Held returns all of them: each waits, and its requirement is told.
	Held() []HeldJob
}

// HeldJob is a job that a replica keeps.
type HeldJob struct {
	Sighting
	// Pools are the names of those whose runners GitLab gave it to: more jobs may wait
	// for them. Empty: not known, so that they may wait for any.
	Pools []string
}
