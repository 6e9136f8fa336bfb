package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

// ReadView counts the last epoch that is over. expected are the replicas that were
// alive when it began; without one of them, the counts are a lower bound.
func (s *Store) ReadView(ctx context.Context, source string, interval time.Duration, expected []string) (ViewCounts, error) {
	if err := checkView(source, interval, nil); err != nil {
		return ViewCounts{}, err
	}
	ctx, done := s.begin(ctx)
	defer done()
	for {
		e, err := s.currentEpoch(ctx, source, interval)
		if err != nil {
			return ViewCounts{}, failed("read view", err, reading)
		}
		last := s.epoch(source, interval, e.number-1)
		counts, expired, err := s.countEpoch(ctx, last, expected)
		if err != nil {
			return ViewCounts{}, failed("read view", err, reading)
		}
		if expired {
			continue // a new epoch began while this one was read
		}
		counts.At = time.UnixMilli(last.number * interval.Milliseconds()).UTC()
		return counts, nil
	}
}

// countEpoch reads an epoch; expired says that it went away meanwhile.
func (s *Store) countEpoch(ctx context.Context, e epoch, expected []string) (counts ViewCounts, expired bool, err error) {
	pipe := s.rdb.Pipeline()
	signed, layouts := pipe.SMembers(ctx, e.signedKey()), pipe.HGetAll(ctx, e.layoutKey())
	if _, err := pipe.Exec(ctx); err != nil {
		return ViewCounts{}, false, err
	}
	counts = ViewCounts{Epoch: e.number, Jobs: make(map[spillway.JobClass]int, len(layouts.Val())), Missing: missing(expected, signed.Val())}
	counts.Whole = len(counts.Missing) == 0
	pipe = s.rdb.Pipeline()
	cards := make([]cardinality, 0, 4*len(layouts.Val()))
	for name, text := range layouts.Val() {
		l, err := parseLayout(text)
		if err != nil {
			return ViewCounts{}, false, err
		}
		class := spillway.JobClass(name)
		for kind, shards := range [2]int{l.numbers, l.words} {
			if shards == 0 {
				continue
			}
			prefix := e.shards(class, "nw"[kind])
			for i := range shards {
				cards = append(cards, cardinality{class, pipe.SCard(ctx, prefix.key(i))})
			}
		}
	}
	still := pipe.Exists(ctx, e.signedKey())
	if _, err := pipe.Exec(ctx); err != nil {
		return ViewCounts{}, false, err
	}
	for _, c := range cards {
		if n := int(c.ids.Val()); n > 0 {
			counts.Jobs[c.class] += n
		}
	}
	return counts, len(signed.Val()) > 0 && still.Val() == 0, nil
}

// cardinality is the size of one shard of a class.
type cardinality struct {
	class spillway.JobClass
	ids   *redis.IntCmd
}

// missing returns the expected that have not signed, sorted.
func missing(expected, signed []string) []string {
	want := map[string]bool{}
	for _, r := range expected {
		want[r] = true
	}
	for _, r := range signed {
		delete(want, r)
	}
	return slices.Sorted(maps.Keys(want))
}
