package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// maxClaimBytes ends a claim early [bytes], so that an answer of large jobs can't
	// fill the memory. The wants of a claim share it, but each gets minWantBytes, and
	// up to 64 jobs beyond that.
	maxClaimBytes = 4 << 20
	minWantBytes  = 64 << 10
	// MaxWants bounds the wants of one claim [wants].
	MaxWants = 4_096
)

var (
	claimScript   = mustScript("claim", "queue")
	renewScript   = mustScript("renew", "queue")
	applyScript   = mustScript("apply", "queue")
	releaseScript = mustScript("release", "queue")
)

// Claim takes the first jobs of each wanted class, by priority, then submission.
// They are the owner's until ttl is over by the server's clock, unless renewed.
// A want may get fewer jobs than it asked for, and at most MaxBatch.
//
// Jobs that were claimed are returned also with an error. What was claimed and
// could not be returned expires, and counts as lost once.
func (s *Store) Claim(ctx context.Context, owner string, wants []router.ClaimWant, ttl time.Duration) ([]router.Claimed, error) {
	if len(wants) > MaxWants {
		return nil, fmt.Errorf("store: claim: %d wants, at most %d are allowed", len(wants), MaxWants)
	}
	ctx, done := s.begin(ctx)
	defer done()
	calls := make([]call, 0, len(wants))
	most := max(minWantBytes, maxClaimBytes/max(1, len(wants)))
	for _, w := range wants {
		calls = append(calls, call{claimScript, s.classKeys(w.Class), []any{
			s.channels(), max(0, min(w.N, MaxBatch)), ttl.Milliseconds(), toWord(owner), toWord(w.Pool), most, flag(w.AdmittedOnly),
		}})
	}
	var claimed []router.Claimed
	var errs []error
	for i, r := range s.run(ctx, calls) {
		list, err := r.list()
		if err != nil {
			errs = append(errs, failed("claim", err, writing))
			continue
		}
		claimed = slices.Grow(claimed, len(list)/2)
		for k := 0; k+1 < len(list); k += 2 {
			c, err := decodeClaimed(wants[i], asString(list[k]), asString(list[k+1]))
			if err != nil {
				errs = append(errs, fmt.Errorf("store: claim: job %.80q: %w", asString(list[k]), err))
				continue
			}
			claimed = append(claimed, c)
		}
	}
	return claimed, errors.Join(errs...)
}

// decodeClaimed reads a job that was claimed: "attempt score id" and its work.
func decodeClaimed(w router.ClaimWant, place, work string) (router.Claimed, error) {
	attempt, rest, _ := strings.Cut(place, " ")
	score, id, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(attempt, 10, 32)
	at, scoreErr := strconv.ParseInt(score, 10, 64)
	if err != nil || scoreErr != nil || n < 1 || at < 0 {
		return router.Claimed{}, fmt.Errorf("%w: an attempt or its score", errContent)
	}
	job, err := decodeJob(work)
	if err != nil {
		return router.Claimed{}, err
	}
	if string(job.ID) != id {
		return router.Claimed{}, fmt.Errorf("%w: the job of another id", errContent)
	}
	job.SubmittedAt = submittedAt(at)
	return router.Claimed{Job: job, Pool: w.Pool, Ref: router.JobRef{ID: job.ID, Class: w.Class, Attempt: int(n)}}, nil
}

// Renew extends claims and returns those that are no longer held: of a newer
// attempt, ended, or unknown. With an error, nothing is known of any of them.
func (s *Store) Renew(ctx context.Context, refs []router.JobRef, ttl time.Duration) (stale []router.JobRef, err error) {
	ctx, done := s.begin(ctx)
	defer done()
	for _, batch := range split(refs, func(*router.JobRef) int { return 0 }) {
		classes, byClass := groupBy(batch, func(r *router.JobRef) spillway.JobClass { return r.Class })
		calls := make([]call, len(classes))
		for i, class := range classes {
			args := []any{s.channels(), ttl.Milliseconds()}
			for _, r := range byClass[class] {
				args = append(args, string(r.ID), r.Attempt)
			}
			calls[i] = call{renewScript, s.classKeys(class), args}
		}
		for i, r := range s.run(ctx, calls) {
			list, err := r.list()
			if err != nil {
				return nil, failed("renew", err, writing)
			}
			for _, v := range list {
				stale = append(stale, *byClass[classes[i]][asInt(v)-1])
			}
		}
	}
	return stale, nil
}

// Apply records that attempts started or ended. The first result has one error for
// each transition: nil, ErrStaleAttempt or ErrUnknownJob. The same transition again
// is nil again.
//
// With a second error, transitions of the first result that hold the same error
// may or may not have been recorded: apply them again.
func (s *Store) Apply(ctx context.Context, transitions []Transition) ([]error, error) {
	errs := make([]error, len(transitions))
	items := make([]scripted, len(transitions))
	for i, t := range transitions {
		letter := letterOf[t.To]
		if t.To != spillway.Running && !t.To.Terminal() {
			return errs, fmt.Errorf("store: apply: job %s can't be brought to state %q: use running or a terminal state", t.Ref.ID, t.To)
		}
		result := ""
		if t.To.Terminal() {
			var err error
			if result, err = encodeResult(t.Result); err != nil {
				return errs, err
			}
		}
		items[i] = scripted{class: t.Ref.Class, err: &errs[i], bytes: len(result), args: []any{
			string(t.Ref.ID), t.Ref.Attempt, letter, toWord(t.Pool), toWord(string(t.Machine)), result,
		}}
	}
	ctx, done := s.begin(ctx)
	defer done()
	return errs, s.runBatches(ctx, "apply", applyScript, []any{s.channels(), s.opt.FinishedTTL.Milliseconds(), s.opt.MaxFinished}, items)
}

// Release gives attempts back to the queue, each to its old place. The results are
// as for Apply, except that a second release of the same attempt is stale, and that
// ErrQuarantined says that it is done and was the job's last.
func (s *Store) Release(ctx context.Context, releases []Release) ([]error, error) {
	errs := make([]error, len(releases))
	items := make([]scripted, len(releases))
	for i, r := range releases {
		result, lost := "", 0
		if r.Lost {
			var err error
			if result, err = lostResult(r.Detail); err != nil {
				return errs, err
			}
			lost = 1
		}
		items[i] = scripted{class: r.Ref.Class, err: &errs[i], bytes: len(result), args: []any{
			string(r.Ref.ID), r.Ref.Attempt, lost, reasonWord(r.Detail), result,
		}}
	}
	ctx, done := s.begin(ctx)
	defer done()
	return errs, s.runBatches(ctx, "release", releaseScript, []any{s.channels()}, items)
}

// lostResult is the end of a job that has lost as many machines as it may.
func lostResult(detail string) (string, error) {
	return encodeResult(spillway.JobResult{State: spillway.Failed, Reason: spillway.RunnerSystemFailure, Detail: detail})
}

// scripted is one item of a script that answers a code for each.
type scripted struct {
	class spillway.JobClass
	args  []any
	bytes int
	err   *error // where the answer goes
}

var codeErrors = map[int64]error{1: ErrStaleAttempt, 2: ErrUnknownJob, 3: ErrQuarantined}

// runBatches runs the script for the items, one run for each class and batch.
func (s *Store) runBatches(ctx context.Context, op string, script *script, head []any, items []scripted) error {
	var failure error
	for _, batch := range split(items, func(i *scripted) int { return i.bytes }) {
		classes, byClass := groupBy(batch, func(i *scripted) spillway.JobClass { return i.class })
		calls := make([]call, len(classes))
		for i, class := range classes {
			args := append(make([]any, 0, len(head)+6*len(byClass[class])), head...)
			for _, item := range byClass[class] {
				args = append(args, item.args...)
			}
			calls[i] = call{script, s.classKeys(class), args}
		}
		var forgotten []any
		for i, r := range s.run(ctx, calls) {
			codes, ids, err := readCodes(r, len(byClass[classes[i]]))
			if err != nil {
				failure = failed(op, err, writing)
				for _, item := range byClass[classes[i]] {
					*item.err = failure
				}
				continue
			}
			forgotten = append(forgotten, ids...)
			for k, code := range codes {
				*byClass[classes[i]][k].err = codeErrors[asInt(code)]
			}
		}
		s.dropFromIndex(ctx, forgotten)
	}
	return failure
}

// readCodes reads the codes of n items, alone or with the ids that were forgotten. Along
// with those, no codes say that all is done, as it nearly always is.
func readCodes(r reply, n int) (codes, forgotten []any, err error) {
	if codes, err = r.list(); err != nil {
		return nil, nil, err
	}
	if len(codes) == 2 {
		if _, nested := codes[0].([]any); nested {
			if codes, forgotten, err = r.pair(); err == nil && len(codes) == 0 {
				return nil, forgotten, nil
			}
		}
	}
	if err == nil && len(codes) != n {
		err = fmt.Errorf("%w: %d codes for %d items", errReply, len(codes), n)
	}
	return codes, forgotten, err
}
