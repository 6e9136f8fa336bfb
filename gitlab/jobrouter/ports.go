package jobrouter

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Leases decides which replica polls a token.
type Leases interface {
	// Acquire takes or renews a lease; *store.HeldError names another holder.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (spillway.Lease, error)
	ReleaseLease(ctx context.Context, l spillway.Lease) error
}

// Book is where jobs are booked on machines, and where machines are ordered to drain.
type Book interface {
	BeginRouted(ctx context.Context, j store.RoutedJob) (begun bool, err error)
	EndRouted(ctx context.Context, id spillway.JobID) (ended bool, err error)
	Ordered(ctx context.Context, pool string, id spillway.MachineID) (router.DrainOrder, bool, error)
}

// GitLab is what we ask of GitLab, as a runner would.
type GitLab interface {
	RequestJob(ctx context.Context, body []byte, header http.Header) (gitlab.JobAnswer, error)
	KeepPending(ctx context.Context, jobID int64, jobToken string) error
	FailJob(ctx context.Context, jobID int64, jobToken, reason, trace string) error
}

// Contacts is the registry of machines that ask.
type Contacts interface {
	// Admit notes a contact and tells why the machine must not be given a job, if so.
	Admit(who route.Caller, at time.Time) error
	// Waiting notes that a question is open, until done is called.
	Waiting(who route.Caller) (done func())
}

// Admit is asked before a job goes to a machine. A job that is refused fails in GitLab
// with the reason in its log. The payload must not be kept.
type Admit func(ctx context.Context, job gitlab.Payload, who route.Caller) (ok bool, reason string)
