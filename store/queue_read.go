package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// DefaultPage is the size of a page of List that was not asked for [records].
	DefaultPage = 100
	// MaxPage bounds a page of List, and the ids of one call [records].
	MaxPage = 1_000
	// maxScanned is how many records List looks at for one page [records]. A page
	// for rare states may be short, or empty, though more pages follow.
	maxScanned = 10_000
	// tieSlack is how many ids of one shard may have been pushed in the same µs.
	tieSlack = 64
)

// ErrPageToken is wrapped when a page token was not made by List.
var ErrPageToken = errors.New("invalid page token")

// Get returns the record of a job, without script and env, or ErrUnknownJob.
func (s *Store) Get(ctx context.Context, id spillway.JobID) (spillway.JobRecord, error) {
	records, err := s.GetMany(ctx, []spillway.JobID{id})
	if err != nil {
		return spillway.JobRecord{}, err
	}
	if records[0] == nil {
		return spillway.JobRecord{}, fmt.Errorf("store: get: %w", ErrUnknownJob)
	}
	return *records[0], nil
}

// GetMany returns the records of at most MaxPage jobs, nil where one is unknown.
func (s *Store) GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error) {
	if len(ids) > MaxPage {
		return nil, fmt.Errorf("store: get: %d ids, at most %d are allowed", len(ids), MaxPage)
	}
	ctx, done := s.begin(ctx)
	defer done()
	classes, err := s.lookup(ctx, ids)
	if err != nil {
		return nil, failed("get", err, reading)
	}
	entries := make([]indexed, len(ids))
	for i, id := range ids {
		entries[i] = indexed{id, classes[i]}
	}
	records, err := s.recordsOf(ctx, entries)
	return records, failed("get", err, reading)
}

// List returns records, newest first, of jobs in one of the states (none: all). An
// empty next token means that there are no more.
func (s *Store) List(ctx context.Context, states []spillway.JobState, limit int, token string) (records []spillway.JobRecord, next string, err error) {
	ctx, done := s.begin(ctx)
	defer done()
	limit = min(cmp.Or(max(limit, 0), DefaultPage), MaxPage)
	after, err := parseToken(token)
	if err != nil {
		return nil, "", fmt.Errorf("store: list: %w", err)
	}
	for scanned := 0; scanned < maxScanned; {
		page, err := s.newest(ctx, after, limit)
		if err != nil {
			return nil, "", failed("list", err, reading)
		}
		found, err := s.recordsAt(ctx, page)
		if err != nil {
			return nil, "", failed("list", err, reading)
		}
		for i, r := range found {
			after = page[i]
			if r == nil || (len(states) > 0 && !slices.Contains(states, r.State)) {
				continue
			}
			if records = append(records, *r); len(records) == limit {
				return records, after.token(), nil
			}
		}
		if len(page) < limit {
			return records, "", nil
		}
		scanned += len(page)
	}
	return records, after.token(), nil
}

// place is a job's place in the order of first pushes.
type place struct {
	micros int64
	id     spillway.JobID
}

// newestFirst is the order of List, and of a shard read backwards.
func newestFirst(a, b place) int {
	return cmp.Or(cmp.Compare(b.micros, a.micros), cmp.Compare(b.id, a.id))
}

func (p place) token() string { return strconv.FormatInt(p.micros, 36) + "." + string(p.id) }

func parseToken(token string) (place, error) {
	if token == "" {
		return place{micros: 1 << 53}, nil
	}
	micros, id, ok := strings.Cut(token, ".")
	n, err := strconv.ParseInt(micros, 36, 64)
	if !ok || err != nil || n < 0 || len(id) > spillway.MaxJobIDBytes {
		return place{}, ErrPageToken
	}
	return place{n, spillway.JobID(id)}, nil
}

// newest returns the next n places after one, over all shards.
func (s *Store) newest(ctx context.Context, after place, n int) ([]place, error) {
	pipe := s.rdb.Pipeline()
	var cmds [indexShards]*redis.ZSliceCmd
	for shard := range cmds {
		cmds[shard] = pipe.ZRevRangeByScoreWithScores(ctx, s.indexKeys(shard)[1], &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(after.micros, 10), Count: int64(n + tieSlack),
		})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var places []place
	for _, cmd := range cmds {
		found, err := cmd.Result()
		if err != nil {
			return nil, err
		}
		for _, z := range found {
			p := place{int64(z.Score), spillway.JobID(asString(z.Member))}
			if newestFirst(after, p) < 0 {
				places = append(places, p)
			}
		}
	}
	slices.SortFunc(places, newestFirst)
	return places[:min(n, len(places))], nil
}

func (s *Store) recordsAt(ctx context.Context, places []place) ([]*spillway.JobRecord, error) {
	ids := make([]spillway.JobID, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	classes, err := s.lookup(ctx, ids)
	if err != nil {
		return nil, err
	}
	entries := make([]indexed, len(ids))
	for i, id := range ids {
		entries[i] = indexed{id, classes[i]}
	}
	return s.recordsOf(ctx, entries)
}
