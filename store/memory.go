package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// LedgerEntries is how many entries of a pool's ledger are kept [entries].
	LedgerEntries = 1_000
	// MaxStateBytes bounds one pool's state [bytes]: 10,000 instances, the most that a
	// pool may have, with 300 bytes each.
	MaxStateBytes = 4 << 20
	// MaxEntryBytes bounds one entry of a ledger [bytes].
	MaxEntryBytes = 32 << 10
	// memoryTTL is how long a pool's memory is kept after its last writing: longer
	// than anybody is on holiday, but not for ever.
	memoryTTL = 30 * 24 * time.Hour
)

var memoryScript = mustScript("memory")

func (s *Store) memoryKeys(pool string) []string {
	return []string{s.key("p:"+pool, "memory"), s.key("p:"+pool, "ledger")}
}

// SavePoolState replaces what a pool's loop remembers. ErrStaleEpoch: a newer owner
// has written.
func (s *Store) SavePoolState(ctx context.Context, pool string, epoch uint64, state []byte) error {
	return s.remember(ctx, "state", pool, epoch, state, MaxStateBytes)
}

// AppendLedger adds one entry to a pool's ledger, which keeps the newest
// LedgerEntries. ErrStaleEpoch: a newer owner has written.
func (s *Store) AppendLedger(ctx context.Context, pool string, epoch uint64, entry []byte) error {
	return s.remember(ctx, "ledger", pool, epoch, entry, MaxEntryBytes)
}

func (s *Store) remember(ctx context.Context, verb, pool string, epoch uint64, content []byte, most int) error {
	if err := checkContent(pool, content, most); err != nil {
		return err
	}
	ctx, done := s.begin(ctx)
	defer done()
	v, err := s.runOne(ctx, call{memoryScript, s.memoryKeys(pool), []any{
		verb, strconv.FormatUint(epoch, 10), content, memoryTTL.Milliseconds(), LedgerEntries,
	}})
	return fenced(verb, pool, epoch, v, err)
}

func checkContent(pool string, content []byte, most int) error {
	if !spillway.PoolName(pool) {
		return fmt.Errorf("store: pool %.80q: %w", pool, spillway.ErrInvalid)
	}
	if len(content) > most {
		return fmt.Errorf("store: pool %s: %w: %d bytes, at most %d are allowed", pool, spillway.ErrInvalid, len(content), most)
	}
	return nil
}

func fenced(what, pool string, epoch uint64, v any, err error) error {
	if err != nil {
		return failed("writing the "+what+" of a pool", err, writing)
	}
	if asInt(v) != 1 {
		return fmt.Errorf("store: writing the %s of pool %s: %w: %d", what, pool, ErrStaleEpoch, epoch)
	}
	return nil
}

// LoadPoolState returns what SavePoolState kept.
func (s *Store) LoadPoolState(ctx context.Context, pool string) (state []byte, found bool, err error) {
	ctx, done := s.begin(ctx)
	defer done()
	state, err = s.rdb.HGet(ctx, s.memoryKeys(pool)[0], "state").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, failed("reading the state of a pool", err, reading)
	}
	return state, true, nil
}

// Ledger returns a pool's newest entries, newest first, at most limit.
func (s *Store) Ledger(ctx context.Context, pool string, limit int) ([][]byte, error) {
	entries := [][]byte{}
	if limit <= 0 {
		return entries, nil
	}
	ctx, done := s.begin(ctx)
	defer done()
	list, err := s.rdb.LRange(ctx, s.memoryKeys(pool)[1], 0, int64(min(limit, LedgerEntries)-1)).Result()
	if err != nil {
		return nil, failed("reading the ledger of a pool", err, reading)
	}
	for _, e := range list {
		entries = append(entries, []byte(e))
	}
	return entries, nil
}
