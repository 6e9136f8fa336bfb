package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Store is what a Reviewer uses.
type Store interface {
	ClaimForReview(ctx context.Context, wants []store.ReviewWant, ttl time.Duration) ([]store.ForReview, error)
	EndReviews(ctx context.Context, ends []store.ReviewEnd) ([]error, error)
	Renew(ctx context.Context, refs []router.JobRef, ttl time.Duration) (stale []router.JobRef, err error)
	FailAbsent(ctx context.Context, class spillway.JobClass, approvers []string, absent string, waited time.Duration, limit int, result spillway.JobResult) ([]spillway.JobRecord, error)
	AnnounceControllers(ctx context.Context, replica string, here []store.ControllerAt, ttl time.Duration) ([]store.ControllerAt, error)
	PublishFact(ctx context.Context, topic string, data []byte) error
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
}

// Options are the numbers of a Reviewer, and whom it tells. A zero means the default.
type Options struct {
	Replica string // required
	Policy  admission.Policy
	Events  Events

	// ClaimTTL is how long a claim for review holds without being renewed: 60s, as the
	// router's: a job waits that long when its replica dies.
	ClaimTTL time.Duration
	// AnnounceEvery is how often a replica says what is connected to it: 5s; a change is
	// said at once. It is believed for AnnounceTTL: 15s.
	AnnounceEvery time.Duration
	AnnounceTTL   time.Duration
	// SweepEvery is how often deadlines and absences are looked at: 250ms, well below the
	// shortest deadline that makes sense.
	SweepEvery time.Duration
}

func (o Options) withDefaults() Options {
	o.ClaimTTL = cmp.Or(o.ClaimTTL, time.Minute)
	o.AnnounceEvery = cmp.Or(o.AnnounceEvery, 5*time.Second)
	o.AnnounceTTL = cmp.Or(o.AnnounceTTL, 3*o.AnnounceEvery)
	o.SweepEvery = cmp.Or(o.SweepEvery, 250*time.Millisecond)
	return o
}

func (o Options) validate() error {
	if o.Replica == "" {
		return errors.New("admission: Options.Replica is empty: name the control plane")
	}
	return nil
}

// Bounds.
const (
	// inboxEvents bounds what streams and callers have said and the reviewer has not taken
	// in [events]; who finds it full waits.
	inboxEvents = 1024
	// outboxMessages bounds what an instance was sent and has not read [messages]: it has
	// at most admission.MaxReviews without verdicts, and what is asked in between.
	outboxMessages = 64
	// maxEndsAtOnce bounds one write of decisions [jobs].
	maxEndsAtOnce = 512
	// maxFailedAtOnce bounds the jobs of a class that an absence fails at a time [jobs].
	maxFailedAtOnce = 512
	// absentEvery is how often the store is asked for jobs of absent controllers: whether
	// one has waited for long enough, its clock alone says.
	absentEvery = time.Second
	// retryFirst and retryMost bound the wait before a call to the store is repeated.
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
	// helloTimeout is how long a new stream may take to say who it is.
	helloTimeout = 10 * time.Second
	// maxInstanceBytes and maxVersionBytes bound words of a Hello [bytes].
	maxInstanceBytes = 128
	maxVersionBytes  = 64
	// askAgain is after how long a question is put again to another replica, or to
	// whoever has connected meanwhile.
	askAgain = 500 * time.Millisecond
)
