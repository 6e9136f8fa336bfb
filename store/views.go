package store

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-ci/spillway"
)

// Views are what polling sources see: all jobs, again and again. Each replica adds
// its view to the sets of the current epoch; readers take the epoch before, which is
// whole. An epoch forgets by expiring as a whole, so that a job that has ended is
// gone two intervals later, and no id needs an expiry of its own.
const (
	// idsPerShard is how many ids a set is planned to hold [ids]. Redis keeps a set of
	// up to 512 numbers as a sorted array of 8 bytes each; beyond it, as a hash table
	// of 56. Ids spread by hash, so that a plan of 400 stays below 512 with room for
	// growth between two epochs.
	idsPerShard = 400
	// membersPerCommand bounds one SADD [ids].
	membersPerCommand = 500
	// viewPipeline bounds the ids sent in one pipeline [ids], and viewPipelines how many
	// are on their way: the server works on one and has the next already. Larger ones
	// let it wait for the first; more of them only hold memory.
	viewPipeline  = 10_000
	viewPipelines = 2
	// maxViewSlack is how long an epoch outlives its use, for a reader that has just
	// begun; at most an eighth of the interval, so that two epochs are alive, not three.
	maxViewSlack = 2 * time.Second
	// maxAgreeRounds bounds how often a layout is looked at [rounds]: proposed, widened
	// by the kind that the winner lacked, confirmed; and one to spare.
	maxAgreeRounds = 4
	// MaxViewJobs bounds one replica's view [jobs].
	MaxViewJobs = 5_000_000
	// MinViewInterval is the shortest epoch.
	MinViewInterval = time.Second
)

// WriteView adds what a replica sees of a source to the current epoch. Any number of
// replicas may write any number of times; an id counts once.
func (s *Store) WriteView(ctx context.Context, source, replica string, interval time.Duration, jobs map[spillway.JobClass][]spillway.JobID) error {
	if err := checkView(source, interval, jobs); err != nil {
		return err
	}
	ctx, done := s.begin(ctx)
	defer done()
	e, err := s.currentEpoch(ctx, source, interval)
	if err != nil {
		return failed("write view", err, reading)
	}
	layouts, err := s.agreeOnLayouts(ctx, e, jobs)
	if err != nil {
		return failed("write view", err, writing)
	}
	sizes, err := s.addIDs(ctx, e, jobs, layouts)
	if err != nil {
		return failed("write view", err, writing)
	}
	return failed("write view", s.signView(ctx, e, replica, sizes), writing)
}

func checkView(source string, interval time.Duration, jobs map[spillway.JobClass][]spillway.JobID) error {
	if !spillway.PoolName(source) {
		return fmt.Errorf("store: write view: source %.80q: %w: name it like a pool", source, spillway.ErrInvalid)
	}
	if interval < MinViewInterval {
		return fmt.Errorf("store: write view: %w: interval %s, at least %s", spillway.ErrInvalid, interval, MinViewInterval)
	}
	n := 0
	for _, ids := range jobs {
		n += len(ids)
	}
	if n > MaxViewJobs {
		return fmt.Errorf("store: write view: %w: %d jobs, at most %d are allowed", spillway.ErrInvalid, n, MaxViewJobs)
	}
	return nil
}

// epoch is one interval of a source.
type epoch struct {
	base    string // of its keys
	source  string // base of the keys that outlive an epoch
	number  int64
	expires time.Time // of its ids
}

func (s *Store) epoch(source string, interval time.Duration, number int64) epoch {
	base := s.opt.Prefix + ":w:" + source
	end := time.UnixMilli((number + 2) * interval.Milliseconds())
	return epoch{
		base:   base + ":" + strconv.FormatInt(number, 36),
		source: base, number: number,
		expires: end.Add(min(interval/8, maxViewSlack)),
	}
}

func (s *Store) currentEpoch(ctx context.Context, source string, interval time.Duration) (epoch, error) {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return epoch{}, err
	}
	return s.epoch(source, interval, now.UnixMilli()/interval.Milliseconds()), nil
}

// The keys of an epoch: the layout of each class, who has written, and the ids.
func (e epoch) layoutKey() string { return e.base + ":layout" }
func (e epoch) signedKey() string { return e.base + ":signed" }

// signedExpires is before the ids': a reader that still finds the signatures has
// read the ids before they went.
func (e epoch) signedExpires() time.Time { return e.expires.Add(-50 * time.Millisecond) }

// sizesKey has the number of ids that each class had lately.
func (e epoch) sizesKey() string { return e.source + ":sizes" }

// shards is what the keys of a class's shards of one kind begin with. There are
// thousands of keys and few classes, so it is made once for each class.
func (e epoch) shards(class spillway.JobClass, kind byte) shardPrefix {
	return shardPrefix(e.appendShards(make([]byte, 0, len(e.base)+len(class)+4), class, kind))
}

func (e epoch) appendShards(b []byte, class spillway.JobClass, kind byte) []byte {
	b = append(append(b, e.base...), ':')
	return append(appendShort(b, class), ':', kind)
}

type shardPrefix string

func (p shardPrefix) key(shard int) string { return string(p) + strconv.FormatInt(int64(shard), 36) }

// appendShort writes a class in 22 characters instead of 32: a key's name is a tenth
// of what its set costs.
func appendShort(b []byte, class spillway.JobClass) []byte {
	var raw [16]byte
	if len(class) != hex.EncodedLen(len(raw)) {
		return append(b, class...)
	}
	if _, err := hex.Decode(raw[:], []byte(class)); err != nil {
		return append(b, class...)
	}
	return base64.RawURLEncoding.AppendEncode(b, raw[:])
}

// addIDs writes the ids and returns the size of each class afterwards, as a layout
// that would fit it.
func (s *Store) addIDs(ctx context.Context, e epoch, jobs map[spillway.JobClass][]spillway.JobID, layouts map[string]string) (map[string]layout, error) {
	w := s.newViewWriter(ctx, e)
	for class, ids := range jobs {
		if len(ids) == 0 {
			continue
		}
		l, err := parseLayout(layouts[string(class)])
		if err != nil {
			return nil, errors.Join(err, w.sending.Wait())
		}
		w.addClass(class, ids, l)
	}
	w.send()
	if err := w.sending.Wait(); err != nil {
		return nil, err
	}
	sizes := make(map[string]layout, len(w.cards))
	for class, cards := range w.cards {
		sizes[class] = layout{shardsFor(sum(cards[0])), shardsFor(sum(cards[1]))}
	}
	return sizes, nil
}

func sum(cmds []*redis.IntCmd) int {
	n := 0
	for _, c := range cmds {
		n += int(c.Val())
	}
	return n
}

// viewWriter sends ids in pipelines of bounded size. While some are on their way, the
// next is made: neither this side nor the server waits for the other.
type viewWriter struct {
	rdb     redis.UniversalClient
	ctx     context.Context // done after the first error
	epoch   epoch
	sending *errgroup.Group                // pipelines on their way
	pipe    redis.Pipeliner                // the one that is being made
	queued  int                            // ids in it
	cards   map[string]*[2][]*redis.IntCmd // sizes of each class's sets, numbers and words
}

func (s *Store) newViewWriter(ctx context.Context, e epoch) *viewWriter {
	w := &viewWriter{rdb: s.rdb, epoch: e, pipe: s.rdb.Pipeline(), cards: map[string]*[2][]*redis.IntCmd{}}
	w.sending, w.ctx = errgroup.WithContext(ctx)
	w.sending.SetLimit(viewPipelines)
	return w
}

// send puts the pipeline on its way and begins another. Its error is sending's.
func (w *viewWriter) send() {
	if w.pipe.Len() == 0 {
		return
	}
	pipe := w.pipe
	w.sending.Go(func() error {
		_, err := pipe.Exec(w.ctx)
		return err
	})
	w.pipe, w.queued = w.rdb.Pipeline(), 0
}

func (w *viewWriter) addClass(class spillway.JobClass, ids []spillway.JobID, l layout) {
	cards := &[2][]*redis.IntCmd{}
	w.cards[string(class)] = cards
	numbers, words := spread(ids, l)
	for kind, shards := range [2][][]any{numbers, words} {
		prefix := w.epoch.shards(class, "nw"[kind])
		for i, members := range shards {
			if len(members) == 0 {
				continue
			}
			key := prefix.key(i)
			for part := range slices.Chunk(members, membersPerCommand) {
				w.pipe.SAdd(w.ctx, key, part...)
			}
			w.pipe.PExpireAt(w.ctx, key, w.epoch.expires)
			cards[kind] = append(cards[kind], w.pipe.SCard(w.ctx, key))
			if w.queued += len(members); w.queued >= viewPipeline {
				w.send()
			}
		}
	}
}

// signView says that a replica's view is complete in this epoch, and records the
// sizes for the layouts of the next.
func (s *Store) signView(ctx context.Context, e epoch, replica string, sizes map[string]layout) error {
	pipe := s.rdb.Pipeline()
	if len(sizes) > 0 {
		fields := make([]any, 0, 2*len(sizes))
		for class, l := range sizes {
			fields = append(fields, class, l.String())
		}
		pipe.HSet(ctx, e.sizesKey(), fields...)
		pipe.PExpireAt(ctx, e.sizesKey(), e.expires.Add(time.Hour))
	}
	pipe.SAdd(ctx, e.signedKey(), replica)
	pipe.PExpireAt(ctx, e.signedKey(), e.signedExpires())
	_, err := pipe.Exec(ctx)
	return err
}
