package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// maxReviewLooks is how many pending jobs of a class one claim for review looks at
	// [jobs]. Those whose controller is not here stay, and hide what is behind them until
	// their time is up.
	maxReviewLooks = 1_024
	// maxPresenceBytes bounds what one replica says of its controllers [bytes].
	maxPresenceBytes = 64 << 10
	// maxApprovers bounds the controllers that a class needs [controllers].
	maxApprovers = 64
)

var (
	reviewScript   = mustScript("review", "queue", "chain")
	admitScript    = mustScript("admit", "queue", "chain")
	absentScript   = mustScript("absent", "queue", "chain")
	presenceScript = mustScript("presence")
)

// Approver is a controller whose approval a class needs. Its name is of a-z, 0-9, - and _.
type Approver struct {
	Name string
	Here bool // an instance is connected to this replica
}

// ReviewWant asks the queue for at most N jobs of a class whose next controller is
// here.
type ReviewWant struct {
	Class     spillway.JobClass
	N         int
	Approvers []Approver // in the order in which they are asked
}

// Asked says that the controller that a job waits for has known it for some time already:
// its deadline goes on from there, whoever shows it to which instance. Zero: it has not.
type Asked struct {
	Controller string
	For        time.Duration // by the server's clock, in ms
}

// ForReview is a job that this replica now holds for review.
type ForReview struct {
	Job      spillway.Job
	Ref      router.JobRef
	Approved []string // by whom already
	Asked    Asked
}

// ClaimForReview claims pending jobs for admission, as Claim does for a machine: by
// priority, then submission, until ttl is over, unless renewed. A claim that expires is
// no loss: the job is pending again, with the approvals that it had.
//
// Jobs that were claimed are returned also with an error.
func (s *Store) ClaimForReview(ctx context.Context, wants []ReviewWant, ttl time.Duration) ([]ForReview, error) {
	if len(wants) > MaxWants {
		return nil, fmt.Errorf("store: claim for review: %d wants, at most %d are allowed", len(wants), MaxWants)
	}
	ctx, done := s.begin(ctx)
	defer done()
	calls := make([]call, 0, len(wants))
	most := max(minWantBytes, maxClaimBytes/max(1, len(wants)))
	for _, w := range wants {
		if len(w.Approvers) > maxApprovers {
			return nil, fmt.Errorf("store: claim for review: %d approvers, at most %d are allowed", len(w.Approvers), maxApprovers)
		}
		args := []any{s.channels(), max(0, min(w.N, MaxBatch)), ttl.Milliseconds(), most, maxReviewLooks, len(w.Approvers)}
		for _, a := range w.Approvers {
			args = append(args, a.Name, flag(a.Here))
		}
		calls = append(calls, call{reviewScript, s.classKeys(w.Class), args})
	}
	var claimed []ForReview
	var errs []error
	for i, r := range s.run(ctx, calls) {
		list, err := r.list()
		if err != nil {
			errs = append(errs, failed("claim for review", err, writing))
			continue
		}
		for k := 0; k+2 < len(list); k += 3 {
			want := router.ClaimWant{Class: wants[i].Class}
			c, err := decodeClaimed(want, asString(list[k]), asString(list[k+1]))
			if err != nil {
				errs = append(errs, fmt.Errorf("store: claim for review: job %.80q: %w", asString(list[k]), err))
				continue
			}
			approved, asked := readApprovals(asString(list[k+2]))
			claimed = append(claimed, ForReview{Job: c.Job, Ref: c.Ref, Approved: approved, Asked: asked})
		}
	}
	return claimed, errors.Join(errs...)
}

// flag is a truth for a script.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// askedMark begins the last word of a job's approvals where its next controller was asked:
// no controller's name does.
const askedMark = "@"

// readApprovals reads who has approved a job, and whom it was before when.
func readApprovals(words string) (approved []string, asked Asked) {
	if words == "" {
		return nil, Asked{}
	}
	for word := range strings.SplitSeq(words, ",") {
		mark, isMark := strings.CutPrefix(word, askedMark)
		if !isMark {
			approved = append(approved, word)
			continue
		}
		name, ms, _ := strings.Cut(mark, "=")
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/int64(time.Millisecond) {
			asked = Asked{Controller: name, For: time.Duration(n) * time.Millisecond}
		}
	}
	return approved, asked
}

// approvals is what readApprovals reads.
func approvals(approved []string, asked Asked) string {
	words := strings.Join(approved, ",")
	if asked.Controller == "" {
		return words
	}
	if words != "" {
		words += ","
	}
	return words + askedMark + asked.Controller + "=" + strconv.FormatInt(max(0, asked.For.Milliseconds()), 10)
}

// ReviewEnd is what a review of an attempt came to.
type ReviewEnd struct {
	Ref router.JobRef
	// To is Admitted; Rejected or Failed, with a result; or Pending: back to the queue
	// with those in Approved noted, and Asked.
	To       spillway.JobState
	Approved []string
	Asked    Asked
	Result   spillway.JobResult
	Reason   string // with Pending
}

// EndReviews records them. The first result has one error for each: nil,
// ErrStaleAttempt or ErrUnknownJob. The same end again is nil again, but for Pending.
// With a second error, those of the first that hold the same error may or may not have
// been recorded: end them again.
func (s *Store) EndReviews(ctx context.Context, ends []ReviewEnd) ([]error, error) {
	errs := make([]error, len(ends))
	items := make([]scripted, len(ends))
	for i, e := range ends {
		result := ""
		switch e.To {
		case spillway.Admitted, spillway.Pending:
		case spillway.Rejected, spillway.Failed:
			var err error
			if result, err = encodeResult(e.Result); err != nil {
				return errs, err
			}
		default:
			return errs, fmt.Errorf("store: end reviews: job %s can't be brought to state %q by a review", e.Ref.ID, e.To)
		}
		items[i] = scripted{class: e.Ref.Class, err: &errs[i], bytes: len(result), args: []any{
			string(e.Ref.ID), e.Ref.Attempt, letterOf[e.To], approvals(e.Approved, e.Asked), result, reasonWord(e.Reason),
		}}
	}
	ctx, done := s.begin(ctx)
	defer done()
	return errs, s.runBatches(ctx, "end reviews", admitScript, []any{s.channels()}, items)
}

// FailAbsent fails pending jobs of a class whose next controller is the named one and
// that were submitted, or lost their last machine, so long ago, by the server's clock: at
// most limit of them.
func (s *Store) FailAbsent(ctx context.Context, class spillway.JobClass, approvers []string, absent string, waited time.Duration, limit int, result spillway.JobResult) ([]spillway.JobRecord, error) {
	encoded, err := encodeResult(result)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || len(approvers) > maxApprovers {
		return []spillway.JobRecord{}, nil
	}
	args := []any{s.channels(), min(limit, MaxBatch), max(0, waited.Microseconds()), encoded, maxReviewLooks, absent}
	for _, name := range approvers {
		args = append(args, name)
	}
	ctx, done := s.begin(ctx)
	defer done()
	list, err := s.run(ctx, []call{{absentScript, s.classKeys(class), args}})[0].list()
	if err != nil {
		return nil, failed("fail absent", err, writing)
	}
	records, err := decodeRecords(list)
	return records, failed("fail absent", err, writing)
}

// ControllerAt is what one replica knows of one controller.
type ControllerAt struct {
	Replica    string        `json:"-"`
	Controller string        `json:"controller"`
	Instances  int           `json:"instances"`
	Waiting    int           `json:"waiting"` // jobs that wait to be shown to it there
	Asked      int           `json:"asked"`   // jobs that it was shown and has not answered
	Silent     time.Duration `json:"silent"`  // how long ago it was last known to do its work
	// At is when the replica said so, as a time of this process.
	At time.Time `json:"-"`
}

// AnnounceControllers says what is connected to a replica, and returns what every
// replica has said within ttl, this one's included. Nothing to say takes back what was
// said.
func (s *Store) AnnounceControllers(ctx context.Context, replica string, here []ControllerAt, ttl time.Duration) ([]ControllerAt, error) {
	content := ""
	if len(here) > 0 {
		b, err := json.Marshal(here)
		if err != nil {
			return nil, fmt.Errorf("store: announce controllers: %w", err)
		}
		if len(b) > maxPresenceBytes {
			return nil, fmt.Errorf("store: announce controllers: %w: %d bytes, at most %d are allowed", spillway.ErrInvalid, len(b), maxPresenceBytes)
		}
		content = string(b)
	}
	ctx, done := s.begin(ctx)
	defer done()
	r := s.run(ctx, []call{{presenceScript, []string{s.key("a", "controllers")}, []any{replica, content, ttl.Milliseconds()}}})[0]
	list, err := r.list()
	if err != nil || len(list)%3 != 1 {
		return nil, failed("announce controllers", errors.Join(err, badLength(err)), writing)
	}
	return decodeControllers(list, s.now())
}

func badLength(err error) error {
	if err == nil {
		return errReply
	}
	return nil
}

// decodeControllers reads what replicas have said. now is when the server answered, so
// that its times become times of this process.
func decodeControllers(list []any, now time.Time) ([]ControllerAt, error) {
	server, err := strconv.ParseInt(asString(list[0]), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("store: announce controllers: %w: a time", errReply)
	}
	var all []ControllerAt
	for i := 1; i < len(list); i += 3 {
		said, err := strconv.ParseInt(asString(list[i+1]), 10, 64)
		var at []ControllerAt
		if err != nil || len(asString(list[i+2])) > maxPresenceBytes || json.Unmarshal([]byte(asString(list[i+2])), &at) != nil {
			continue // of another version: who can't be read is not there
		}
		for k := range at {
			at[k].Replica = asString(list[i])
			at[k].At = now.Add(-time.Duration(max(0, server-said)) * time.Millisecond)
		}
		all = append(all, at...)
	}
	return all, nil
}
