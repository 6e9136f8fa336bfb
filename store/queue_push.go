package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// MaxBatch is the most jobs that one script handles [jobs]. Larger calls are
	// split. A server does nothing else while a script runs: about 3 ms for a full batch.
	MaxBatch = 512
	// maxBatchBytes is the most content that one script is sent [bytes]; a single
	// item may be larger.
	maxBatchBytes = 1 << 20
	// indexStale is the age from which on an entry of the index without a job may be
	// replaced. It is far longer than an operation, so that a push that has written
	// its entry, but not yet its job, is left alone.
	indexStale = time.Minute
)

var (
	pushScript  = mustScript("push", "queue")
	indexScript = mustScript("index")
)

// Push adds jobs to the queue; the store sets SubmittedAt. It is idempotent: the
// same job again is a Duplicate, also when it has ended, until its record is
// forgotten.
//
// With an error, outcomes of 0 are not known. Push again: what an interrupted push
// left behind is repaired by that.
func (s *Store) Push(ctx context.Context, jobs []spillway.Job) ([]PushOutcome, error) {
	ctx, done := s.begin(ctx)
	defer done()
	outcomes := make([]PushOutcome, len(jobs))
	all := make([]pushed, len(jobs))
	for i := range jobs {
		if err := checkQueueable(&jobs[i]); err != nil {
			return outcomes, err
		}
		stored, err := encodeJob(&jobs[i])
		if err != nil {
			return outcomes, err
		}
		all[i] = pushed{storedJob: stored, job: &jobs[i], outcome: &outcomes[i]}
	}
	for _, batch := range split(all, func(p *pushed) int { return len(p.public) + len(p.work) }) {
		if err := s.pushBatch(ctx, batch); err != nil {
			return outcomes, failed("push", err, writing)
		}
	}
	return outcomes, nil
}

// checkQueueable refuses what would break the order of the queue or its keys. The
// rest of a job's rules are its caller's.
func checkQueueable(j *spillway.Job) error {
	if j.ID == "" || len(j.ID) > spillway.MaxJobIDBytes {
		return fmt.Errorf("store: push: %w: a job id has 1 to %d bytes", spillway.ErrInvalid, spillway.MaxJobIDBytes)
	}
	if j.Priority < 0 || j.Priority > spillway.MaxJobPriority {
		return fmt.Errorf("store: push: %w: priority %d of job %s", spillway.ErrInvalid, j.Priority, j.ID)
	}
	return nil
}

// pushed is a job on its way into the queue.
type pushed struct {
	storedJob
	job     *spillway.Job
	outcome *PushOutcome
	micros  int64 // its place in the order of List
	indexed bool  // the index had its id before
}

// pushBatch writes the index and the list of classes first, then the jobs: a job is
// never where nobody would find it.
func (s *Store) pushBatch(ctx context.Context, batch []*pushed) error {
	batch, err := s.admitToQueue(ctx, batch)
	if err != nil || len(batch) == 0 {
		return err
	}
	full, err := s.touchClasses(ctx, batch)
	if err != nil {
		return err
	}
	var clear []*pushed
	for _, p := range batch {
		if full[p.class] {
			*p.outcome = Full
		} else {
			clear = append(clear, p)
		}
	}
	if clear, err = s.index(ctx, clear); err != nil {
		return err
	}
	return s.pushToClasses(ctx, clear)
}

// admitToQueue answers Full for the jobs that don't fit. Known ones always do.
func (s *Store) admitToQueue(ctx context.Context, batch []*pushed) ([]*pushed, error) {
	room, err := s.room(ctx, len(batch))
	if err != nil || room == len(batch) {
		return batch, err
	}
	ids := make([]spillway.JobID, len(batch))
	for i, p := range batch {
		ids[i] = p.id
	}
	classes, err := s.lookup(ctx, ids)
	if err != nil {
		return nil, err
	}
	var in []*pushed
	for i, p := range batch {
		if classes[i] == "" {
			if room == 0 {
				*p.outcome = Full
				continue
			}
			room--
		}
		in = append(in, p)
	}
	return in, nil
}

// touchClasses registers the classes of a batch, returns those without room, and
// dates the jobs.
func (s *Store) touchClasses(ctx context.Context, batch []*pushed) (map[spillway.JobClass]bool, error) {
	args := []any{MaxClasses}
	var classes []spillway.JobClass
	seen := map[spillway.JobClass]bool{}
	for _, p := range batch {
		if seen[p.class] {
			continue
		}
		seen[p.class] = true
		req, err := encodeRequirement(p.job.Requirement)
		if err != nil {
			return nil, err
		}
		classes = append(classes, p.class)
		args = append(args, string(p.class), req)
	}
	known, at, err := s.run(ctx, []call{{touchScript, s.registryKeys(), args}})[0].pair()
	if err != nil {
		return nil, err
	}
	if err := dateBatch(batch, at); err != nil {
		return nil, err
	}
	full := map[spillway.JobClass]bool{}
	for i, v := range known {
		if asInt(v) == 0 {
			full[classes[i]] = true
		}
	}
	return full, nil
}

// dateBatch gives the jobs of a batch, which has one time, places in their order.
func dateBatch(batch []*pushed, at []any) error {
	if len(at) != 1 {
		return errReply
	}
	micros, err := strconv.ParseInt(asString(at[0]), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: a time", errReply)
	}
	for i, p := range batch {
		p.micros = micros + int64(i)
	}
	return nil
}

// index writes id → class, and returns the jobs whose id is not another class's.
func (s *Store) index(ctx context.Context, batch []*pushed) ([]*pushed, error) {
	there, err := s.writeIndex(ctx, batch, make([]spillway.JobClass, len(batch)))
	if err != nil {
		return nil, err
	}
	var clear, taken []*pushed
	var owners []spillway.JobClass
	for i, p := range batch {
		if there[i] == p.class {
			clear = append(clear, p)
			continue
		}
		taken, owners = append(taken, p), append(owners, there[i])
	}
	if len(taken) == 0 {
		return clear, nil
	}
	freed, err := s.takeOver(ctx, taken, owners)
	return append(clear, freed...), err
}

// takeOver answers Conflict for jobs whose id another class really has, and returns
// the others: their entries were left over, and old enough to be replaced.
func (s *Store) takeOver(ctx context.Context, taken []*pushed, owners []spillway.JobClass) ([]*pushed, error) {
	entries := make([]indexed, len(taken))
	for i, p := range taken {
		entries[i] = indexed{p.id, owners[i]}
	}
	records, err := s.recordsOf(ctx, entries)
	if err != nil {
		return nil, err
	}
	var left, freed []*pushed
	var old []spillway.JobClass
	for i, p := range taken {
		*p.outcome = Conflict
		if records[i] == nil {
			left, old = append(left, p), append(old, owners[i])
		}
	}
	there, err := s.writeIndex(ctx, left, old)
	if err != nil {
		return nil, err
	}
	for i, p := range left {
		if there[i] == p.class {
			*p.outcome = 0
			freed = append(freed, p)
		}
	}
	return freed, nil
}

// writeIndex returns the class that the index has for each job afterwards.
func (s *Store) writeIndex(ctx context.Context, batch []*pushed, replaces []spillway.JobClass) ([]spillway.JobClass, error) {
	var positions [indexShards][]int
	for i, p := range batch {
		shard := indexShard(p.id)
		positions[shard] = append(positions[shard], i)
	}
	var calls []call
	var shards []int
	for shard, at := range positions {
		if len(at) == 0 {
			continue
		}
		args := append(make([]any, 0, 1+4*len(at)), indexStale.Milliseconds())
		for _, i := range at {
			args = append(args, string(batch[i].id), string(batch[i].class), strconv.FormatInt(batch[i].micros, 10), string(replaces[i]))
		}
		calls = append(calls, call{indexScript, s.indexKeys(shard), args})
		shards = append(shards, shard)
	}
	classes := make([]spillway.JobClass, len(batch))
	for n, r := range s.run(ctx, calls) {
		list, err := r.list()
		if err != nil {
			return nil, err
		}
		at := positions[shards[n]]
		if len(list) != 2*len(at) {
			return nil, errReply
		}
		for k, i := range at {
			classes[i] = spillway.JobClass(asString(list[2*k]))
			batch[i].indexed = asInt(list[2*k+1]) == 1
		}
	}
	return classes, nil
}

// pushToClasses runs the script of each class.
func (s *Store) pushToClasses(ctx context.Context, batch []*pushed) error {
	classes, byClass := groupBy(batch, func(p *pushed) spillway.JobClass { return p.class })
	calls := make([]call, len(classes))
	for i, class := range classes {
		args := append(make([]any, 0, 1+4*len(byClass[class])), s.channels())
		for _, p := range byClass[class] {
			args = append(args, string(p.id), p.public, p.work, p.job.Priority)
		}
		calls[i] = call{pushScript, s.classKeys(class), args}
	}
	var firstErr error
	var revived []*pushed
	accepted := 0
	for i, r := range s.run(ctx, calls) {
		codes, err := r.list()
		if err != nil {
			firstErr = err
			continue
		}
		for k, p := range byClass[classes[i]] {
			*p.outcome = PushOutcome(asInt(codes[k])) // the script knows the first three
			if *p.outcome == Accepted {
				accepted++
				if p.indexed {
					revived = append(revived, p)
				}
			}
		}
	}
	s.queued.accepted(accepted)
	if firstErr != nil || len(revived) == 0 {
		return firstErr
	}
	// The entry was there and the job was not: somebody may just be tidying it away.
	_, err := s.writeIndex(ctx, revived, make([]spillway.JobClass, len(revived)))
	return err
}
