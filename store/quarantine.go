package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

var retryScript = mustScript("retry", "queue")

// quarantineKey is where a class has its jobs in quarantine.
func (s *Store) quarantineKey(class spillway.JobClass) string {
	keys := s.classKeys(class)
	return keys[slices.IndexFunc(keys, func(k string) bool { return strings.HasSuffix(k, "}:quarantine") })]
}

// countQuarantined counts the jobs in quarantine of the classes that have some.
func (s *Store) countQuarantined(ctx context.Context, classes []classCounts) (map[spillway.JobClass]int64, error) {
	if len(classes) == 0 {
		return map[spillway.JobClass]int64{}, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.IntCmd, len(classes))
	for i, c := range classes {
		cmds[i] = pipe.ZCard(ctx, s.quarantineKey(c.Class))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	kept := map[spillway.JobClass]int64{}
	for i, c := range classes {
		if n := cmds[i].Val(); n > 0 {
			kept[c.Class] = n
		}
	}
	return kept, nil
}

// Quarantined returns the records of jobs in quarantine, at most limit (0: DefaultPage),
// those that came there last first. An empty next token means that there are no more.
func (s *Store) Quarantined(ctx context.Context, limit int, token string) (records []spillway.JobRecord, next string, err error) {
	ctx, done := s.begin(ctx)
	defer done()
	limit = min(cmp.Or(max(limit, 0), DefaultPage), MaxPage)
	after, err := parseToken(token)
	if err != nil {
		return nil, "", fmt.Errorf("store: quarantined: %w", err)
	}
	places, err := s.inQuarantine(ctx, after, limit+1)
	if err != nil {
		return nil, "", failed("quarantined", err, reading)
	}
	if len(places) > limit {
		places = places[:limit]
		next = places[limit-1].token()
	}
	found, err := s.recordsAt(ctx, places)
	if err != nil {
		return nil, "", failed("quarantined", err, reading)
	}
	for _, r := range found {
		if r != nil && r.Quarantined { // else it has just left
			records = append(records, *r)
		}
	}
	return records, next, nil
}

// inQuarantine returns the next n places after one, over all classes; the time of a
// place is when the job came there [ms].
func (s *Store) inQuarantine(ctx context.Context, after place, n int) ([]place, error) {
	names, err := s.rdb.ZRange(ctx, s.registryKeys()[0], 0, -1).Result()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.ZSliceCmd, len(names))
	for i, name := range names {
		cmds[i] = pipe.ZRevRangeByScoreWithScores(ctx, s.quarantineKey(spillway.JobClass(name)), &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(after.micros, 10), Count: MaxQuarantined,
		})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var places []place
	for _, cmd := range cmds {
		for _, z := range cmd.Val() {
			p := place{int64(z.Score), spillway.JobID(asString(z.Member))}
			if newestFirst(after, p) < 0 {
				places = append(places, p)
			}
		}
	}
	slices.SortFunc(places, newestFirst)
	return places[:min(n, len(places))], nil
}

// Retry takes a job out of quarantine and puts it back to its place in the queue, as one
// that has lost no machine yet. A job in any other state is left as it is:
// ErrNotQuarantined, with its record. The answer is the job's record afterwards.
func (s *Store) Retry(ctx context.Context, id spillway.JobID, reason string) (spillway.JobRecord, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, err
	}
	if !r.Quarantined {
		return r, fmt.Errorf("store: retry: job %s is %s: %w", id, r.State, ErrNotQuarantined)
	}
	ctx, done := s.begin(ctx)
	defer done()
	class := r.Job.Requirement.Class()
	// First the class, so that the job is never where nobody would find it.
	full, err := s.touchClasses(ctx, []*pushed{{storedJob: storedJob{id: id, class: class}, job: &r.Job}})
	if err != nil {
		return r, failed("retry", err, writing)
	}
	if full[class] {
		return r, fmt.Errorf("store: retry: job %s: %w: the queue knows %d classes of jobs, its own is none of them", id, ErrUnavailable, MaxClasses)
	}
	list, err := s.run(ctx, []call{{retryScript, s.classKeys(class), []any{s.channels(), string(id), reasonWord(reason)}}})[0].list()
	if err != nil {
		return r, failed("retry", err, writing)
	}
	if len(list) != 3 {
		return r, fmt.Errorf("store: retry: job %s has left in this moment: %w", id, ErrNotQuarantined)
	}
	r, err = decodeRecord(asString(list[1]), asString(list[2]))
	return r, failed("retry", err, writing)
}
