package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

var (
	cancelScript = mustScript("cancel", "queue")
	rejectScript = mustScript("reject", "queue")
)

// CancelOutcome says what became of one job that was to be canceled.
type CancelOutcome struct {
	ID    spillway.JobID
	Found bool
	State spillway.JobState // after the call; Canceled unless it had ended before
}

// Cancel ends jobs in any state at once: a result that comes later is stale. Jobs
// that have ended stay as they are. Ids are at most MaxPage.
func (s *Store) Cancel(ctx context.Context, ids []spillway.JobID, reason string) ([]CancelOutcome, error) {
	if len(ids) > MaxPage {
		return nil, fmt.Errorf("store: cancel: %d ids, at most %d are allowed", len(ids), MaxPage)
	}
	result, err := encodeResult(spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled, Detail: reason})
	if err != nil {
		return nil, err
	}
	ctx, done := s.begin(ctx)
	defer done()
	classes, err := s.lookup(ctx, ids)
	if err != nil {
		return nil, failed("cancel", err, reading)
	}
	outcomes := make([]CancelOutcome, len(ids))
	known := map[spillway.JobClass][]*CancelOutcome{}
	for i, id := range ids {
		outcomes[i].ID = id
		if classes[i] != "" {
			known[classes[i]] = append(known[classes[i]], &outcomes[i])
		}
	}
	return outcomes, failed("cancel", s.cancelIn(ctx, known, result), writing)
}

// cancelIn cancels the jobs of each class, and writes down what became of them.
func (s *Store) cancelIn(ctx context.Context, known map[spillway.JobClass][]*CancelOutcome, result string) error {
	classes := slices.Collect(maps.Keys(known))
	calls := make([]call, len(classes))
	for i, class := range classes {
		args := []any{s.channels(), result}
		for _, o := range known[class] {
			args = append(args, string(o.ID))
		}
		calls[i] = call{cancelScript, s.classKeys(class), args}
	}
	var failure error
	for i, r := range s.run(ctx, calls) {
		letters, err := r.list()
		if err != nil {
			failure = err
			continue
		}
		for k, o := range known[classes[i]] {
			o.State, o.Found = stateLetters[asString(letters[k])]
		}
	}
	return failure
}

// Reject ends pending jobs of a class that were submitted, and lost their last machine, so
// long ago, by the server's clock: at most limit of them, the most urgent first, the
// approved ones last. The state of the result is Rejected or Failed.
func (s *Store) Reject(ctx context.Context, class spillway.JobClass, waited time.Duration, limit int, result spillway.JobResult) ([]spillway.JobRecord, error) {
	if result.State != spillway.Rejected && result.State != spillway.Failed {
		return nil, fmt.Errorf("store: reject: state %q: use rejected or failed", result.State)
	}
	encoded, err := encodeResult(result)
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		return []spillway.JobRecord{}, nil
	}
	ctx, done := s.begin(ctx)
	defer done()
	r := s.run(ctx, []call{{rejectScript, s.classKeys(class), []any{
		s.channels(), min(limit, MaxBatch), max(0, waited.Microseconds()), letterOf[result.State], encoded,
	}}})[0]
	list, err := r.list()
	if err != nil {
		return nil, failed("reject", err, writing)
	}
	records, err := decodeRecords(list)
	return records, failed("reject", err, writing)
}
