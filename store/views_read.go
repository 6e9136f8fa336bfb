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
	counts = ViewCounts{Epoch: e.number, Jobs: map[spillway.JobClass]int{}, Missing: missing(expected, signed.Val())}
	counts.Whole = len(counts.Missing) == 0
	pipe = s.rdb.Pipeline()
	cards := map[spillway.JobClass][]*redis.IntCmd{}
	for name, text := range layouts.Val() {
		l, err := parseLayout(text)
		if err != nil {
			return ViewCounts{}, false, err
		}
		class := spillway.JobClass(name)
		for i := range l.numbers {
			cards[class] = append(cards[class], pipe.SCard(ctx, e.shardKey(class, 'n', i)))
		}
		for i := range l.words {
			cards[class] = append(cards[class], pipe.SCard(ctx, e.shardKey(class, 'w', i)))
		}
	}
	still := pipe.Exists(ctx, e.signedKey())
	if _, err := pipe.Exec(ctx); err != nil {
		return ViewCounts{}, false, err
	}
	for class, cmds := range cards {
		if n := sum(cmds); n > 0 {
			counts.Jobs[class] = n
		}
	}
	return counts, len(signed.Val()) > 0 && still.Val() == 0, nil
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
