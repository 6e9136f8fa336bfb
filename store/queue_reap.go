package store

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// reapClasses is how many classes are reaped in one pipeline.
	reapClasses = 64
	// sweepPage is how many entries of the index one Reap checks [entries].
	sweepPage = 256
	// claimExpired is why a job went back that nobody renewed the claim of.
	claimExpired = "its claim expired"
)

var reapScript = mustScript("reap", "queue")

// sweepCursor is where the sweep over the index goes on.
type sweepCursor struct {
	sync.Mutex
	shard int
	from  place
}

// Reap gives back the jobs whose claims have expired: their machine or its replica
// is gone, so that each has been lost once more. It returns their records, at most
// limit; those that may not be run again have Failed.
//
// It also tidies: records that are too old or too many, classes without jobs, and
// what interrupted calls left behind. Call it every few seconds, from any number of
// replicas.
func (s *Store) Reap(ctx context.Context, limit int) ([]spillway.JobRecord, error) {
	ctx, done := s.begin(ctx)
	defer done()
	counts, err := s.countClasses(ctx)
	if err != nil {
		return nil, failed("reap", err, reading)
	}
	kept, err := s.countQuarantined(ctx, counts)
	if err != nil {
		return nil, failed("reap", err, reading)
	}
	records, err := s.reapExpired(ctx, counts, kept, limit)
	if err != nil {
		return records, failed("reap", err, writing)
	}
	if err := s.trimFinished(ctx, counts); err != nil {
		return records, failed("reap", err, writing)
	}
	if err := s.dropIdleClasses(ctx, counts, kept); err != nil {
		return records, failed("reap", err, writing)
	}
	return records, failed("reap", s.sweepIndex(ctx), writing)
}

// reapExpired shares the limit among the classes that have something to reap.
func (s *Store) reapExpired(ctx context.Context, counts []classCounts, kept map[spillway.JobClass]int64, limit int) ([]spillway.JobRecord, error) {
	records := []spillway.JobRecord{}
	var busy []classCounts
	for _, c := range counts {
		if c.Claimed+c.Unadmitted+c.finished > 0 || kept[c.Class] > 0 {
			busy = append(busy, c)
		}
	}
	for len(busy) > 0 && len(records) < limit {
		n := min(reapClasses, len(busy), limit-len(records))
		share := min(MaxBatch, (limit-len(records))/n)
		full, found, err := s.reapClasses(ctx, busy[:n], share, s.opt.MaxFinished)
		records = append(records, found...)
		if err != nil {
			return records, err
		}
		// A class that filled its share may have more.
		busy = append(slices.Clone(busy[n:]), full...)
	}
	return records, nil
}

// reapClasses runs the script for some classes and returns those with more to do.
func (s *Store) reapClasses(ctx context.Context, classes []classCounts, limit, mostFinished int) (full []classCounts, records []spillway.JobRecord, err error) {
	result, err := lostResult(claimExpired + ": the machine or its control plane is gone")
	if err != nil {
		return nil, nil, err
	}
	calls := make([]call, len(classes))
	for i, c := range classes {
		calls[i] = call{reapScript, s.classKeys(c.Class), []any{
			s.channels(), s.opt.FinishedTTL.Milliseconds(), mostFinished, limit, result,
			reasonWord(claimExpired), s.opt.QuarantineTTL.Milliseconds(), MaxQuarantined,
		}}
	}
	var forgotten []any
	for i, r := range s.run(ctx, calls) {
		list, ids, replyErr := r.pair()
		if replyErr != nil {
			err = replyErr
			continue
		}
		forgotten = append(forgotten, ids...)
		found, decodeErr := decodeRecords(list)
		records = append(records, found...)
		if decodeErr != nil {
			err = decodeErr
		}
		if len(found) >= limit && limit > 0 {
			full = append(full, classes[i])
		}
	}
	s.dropFromIndex(ctx, forgotten)
	return full, records, err
}

// trimFinished keeps the finished records of all classes together below the bound.
// A single class is held below it whenever one of its jobs ends.
func (s *Store) trimFinished(ctx context.Context, counts []classCounts) error {
	total := 0
	for _, c := range counts {
		total += c.finished
	}
	if total <= s.opt.MaxFinished {
		return nil
	}
	for _, c := range counts {
		if c.finished == 0 {
			continue
		}
		share := int(int64(c.finished) * int64(s.opt.MaxFinished) / int64(total))
		if _, _, err := s.reapClasses(ctx, []classCounts{c}, 0, share); err != nil {
			return err
		}
	}
	return nil
}

// sweepIndex checks one page of the index, and drops entries whose class does not
// know the job: a push or a removal was interrupted.
func (s *Store) sweepIndex(ctx context.Context) error {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	s.sweep.Lock()
	defer s.sweep.Unlock()
	page, err := s.sweepPage(ctx, now)
	if err != nil {
		return err
	}
	records, err := s.recordsAt(ctx, page)
	if err != nil {
		return err
	}
	var lost []any
	for i, r := range records {
		if r == nil {
			lost = append(lost, string(page[i].id))
		}
	}
	s.dropFromIndex(ctx, lost)
	return nil
}

// sweepPage moves the cursor on by one page.
func (s *Store) sweepPage(ctx context.Context, now time.Time) ([]place, error) {
	c := &s.sweep
	found, err := s.rdb.ZRangeByScoreWithScores(ctx, s.indexKeys(c.shard)[1], &redis.ZRangeBy{
		Min: strconv.FormatInt(c.from.micros, 10), Max: strconv.FormatInt(now.Add(-indexStale).UnixMicro(), 10), Count: sweepPage,
	}).Result()
	if err != nil {
		return nil, err
	}
	page := make([]place, 0, len(found))
	for _, z := range found {
		page = append(page, place{int64(z.Score), spillway.JobID(asString(z.Member))})
	}
	if len(page) < sweepPage {
		c.shard, c.from = (c.shard+1)%indexShards, place{}
	} else {
		c.from = page[len(page)-1]
	}
	return page, nil
}
