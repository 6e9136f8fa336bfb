package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// MaxBoardBytes bounds a board [bytes]: 10,000 classes with a requirement of 400.
	MaxBoardBytes = 4 << 20
	// MaxBoardTTL bounds how long a board is shown. The newest epoch is remembered as
	// long as a lease's, so that an old writer is refused after the board has gone, too.
	MaxBoardTTL = leaseMemory
	// maxNameBytes bounds the name of a board and the topic of a fact [bytes].
	maxNameBytes = 128
)

var boardScript = mustScript("board")

func (s *Store) boardKeys(name string) []string {
	tag := "b:" + name
	return []string{s.key(tag, "epoch"), s.key(tag, "board")}
}

// sharedName reports whether a board or a topic may be called so.
func sharedName(name string) bool {
	return printable(name, maxNameBytes) && !strings.ContainsAny(name, "{}")
}

// PutBoard shows a document to every replica until ttl has passed. ErrStaleEpoch: a
// newer holder of the lease that epoch is of has written.
func (s *Store) PutBoard(ctx context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error {
	switch {
	case !sharedName(name):
		return fmt.Errorf("store: put board: %w: name %.40q", spillway.ErrInvalid, name)
	case len(data) > MaxBoardBytes:
		return fmt.Errorf("store: put board %s: %w: %d bytes, at most %d are allowed", name, spillway.ErrInvalid, len(data), MaxBoardBytes)
	case ttl < time.Millisecond || ttl > MaxBoardTTL:
		return fmt.Errorf("store: put board %s: %w: shown for %s, use 1ms to %s", name, spillway.ErrInvalid, ttl, MaxBoardTTL)
	}
	ctx, done := s.begin(ctx)
	defer done()
	written, err := s.runOne(ctx, call{boardScript, s.boardKeys(name), []any{
		strconv.FormatUint(epoch, 10), data, ttl.Milliseconds(), leaseMemory.Milliseconds(),
	}})
	if err != nil {
		return failed("put board", err, writing)
	}
	if asInt(written) != 1 {
		return fmt.Errorf("store: put board %s: %w: %d", name, ErrStaleEpoch, epoch)
	}
	return nil
}

// Board returns what PutBoard last showed, unless its ttl has passed.
func (s *Store) Board(ctx context.Context, name string) (data []byte, found bool, err error) {
	if !sharedName(name) {
		return nil, false, fmt.Errorf("store: board: %w: name %.40q", spillway.ErrInvalid, name)
	}
	ctx, done := s.begin(ctx)
	defer done()
	data, err = s.rdb.Get(ctx, s.boardKeys(name)[1]).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, failed("board", err, reading)
	}
	return data, true, nil
}
