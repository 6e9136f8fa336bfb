package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
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
	last, err := s.lastEpoch(ctx, source, interval)
	if err != nil {
		return ViewCounts{}, failed("read view", err, reading)
	}
	for {
		head, now, err := s.readHead(ctx, last)
		if err != nil {
			return ViewCounts{}, failed("read view", err, reading)
		}
		if over := now.UnixMilli()/interval.Milliseconds() - 1; over != last.number {
			last = s.epoch(source, interval, over)
			continue
		}
		counts, expired, err := s.countEpoch(ctx, last, head, expected)
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

// lastEpoch is the epoch that is over last by our own clock, which saves asking in most
// cases: readHead has the server's, which decides. The nodes of a Cluster answer in any
// order, and an epoch must not be read before it is known to be over: there it is asked.
func (s *Store) lastEpoch(ctx context.Context, source string, interval time.Duration) (epoch, error) {
	if !s.opt.Cluster {
		return s.epoch(source, interval, s.now().UnixMilli()/interval.Milliseconds()-1), nil
	}
	e, err := s.currentEpoch(ctx, source, interval)
	return s.epoch(source, interval, e.number-1), err
}

// viewHead is what is to be known of an epoch to count it.
type viewHead struct {
	signed  []string          // replicas whose views are complete
	layouts map[string]string // by class
}

// readHead reads the server's time, and then the head of an epoch.
func (s *Store) readHead(ctx context.Context, e epoch) (viewHead, time.Time, error) {
	pipe := s.rdb.Pipeline()
	now, signed, layouts := pipe.Time(ctx), pipe.SMembers(ctx, e.signedKey()), pipe.HGetAll(ctx, e.layoutKey())
	_, err := pipe.Exec(ctx)
	return viewHead{signed.Val(), layouts.Val()}, now.Val(), err
}

// countEpoch reads an epoch; expired says that it went away meanwhile.
func (s *Store) countEpoch(ctx context.Context, e epoch, head viewHead, expected []string) (counts ViewCounts, expired bool, err error) {
	counts = ViewCounts{Epoch: e.number, Jobs: make(map[spillway.JobClass]int, len(head.layouts)), Missing: missing(expected, head.signed)}
	counts.Whole = len(counts.Missing) == 0
	sizes, err := newViewSizes(e, head.layouts)
	if err != nil {
		return ViewCounts{}, false, err
	}
	still, err := sizes.read(ctx, s.rdb, e)
	if err != nil {
		return ViewCounts{}, false, err
	}
	for i := range sizes.shards {
		if n := int(sizes.sizes[i].Val()); n > 0 {
			counts.Jobs[sizes.shards[i].class] += n
		}
	}
	return counts, len(head.signed) > 0 && !still, nil
}

// viewSizes is the sizes of the sets of an epoch. There are thousands, and as a few
// pieces of memory each they would cost more than what is asked.
type viewSizes struct {
	shards []viewShard
	names  []byte // all keys, one after the other
	sizes  []redis.IntCmd
}

// viewShard is one set of ids.
type viewShard struct {
	class spillway.JobClass
	end   int // of its key in names
	key   string
}

func newViewSizes(e epoch, layouts map[string]string) (*viewSizes, error) {
	const (
		setsPerClass = 4  // sets
		name         = 28 // bytes: a class in short, and its shard
	)
	sets := setsPerClass * len(layouts)
	v := &viewSizes{shards: make([]viewShard, 0, sets), names: make([]byte, 0, sets*(len(e.base)+name))}
	for class, text := range layouts {
		l, err := parseLayout(text)
		if err != nil {
			return nil, err
		}
		v.add(e, spillway.JobClass(class), l)
	}
	return v, nil
}

func (v *viewSizes) add(e epoch, class spillway.JobClass, l layout) {
	for kind, n := range [2]int{l.numbers, l.words} {
		if n == 0 {
			continue
		}
		begin := len(v.names)
		v.names = e.appendShards(v.names, class, "nw"[kind])
		prefix := v.names[begin:]
		for i := range n {
			if i > 0 {
				v.names = append(v.names, prefix...)
			}
			v.names = strconv.AppendInt(v.names, int64(i), 36)
			v.shards = append(v.shards, viewShard{class: class, end: len(v.names)})
		}
	}
}

// read asks for the sizes. still says that the epoch was there until the last was read.
func (v *viewSizes) read(ctx context.Context, rdb redis.UniversalClient, e epoch) (still bool, err error) {
	pipe := rdb.Pipeline()
	v.sizes = make([]redis.IntCmd, len(v.shards))
	names, begin, args := string(v.names), 0, make([]any, 0, 2*len(v.shards))
	for i := range v.shards {
		shard := &v.shards[i]
		shard.key, begin = names[begin:shard.end], shard.end
		args = append(args, "scard", &shard.key)
		v.sizes[i] = *redis.NewIntCmd(ctx, args[2*i:]...)
		_ = pipe.Process(ctx, &v.sizes[i]) // queues it; never fails
	}
	exists := pipe.Exists(ctx, e.signedKey())
	_, err = pipe.Exec(ctx)
	return exists.Val() == 1, err
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
