package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Machine returns one machine that is registered in a pool, and whether it is.
func (s *Store) Machine(ctx context.Context, pool string, id spillway.MachineID) (m router.Machine, live bool, err error) {
	if id == "" || !spillway.PoolName(pool) {
		return m, false, fmt.Errorf("store: machine %.40q of pool %.40q: %w", id, pool, spillway.ErrInvalid)
	}
	ctx, done := s.begin(ctx)
	defer done()
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	text := pipe.HGet(ctx, s.machineKeys(pool)[0], string(id))
	_, err = pipe.Exec(ctx)
	switch {
	case errors.Is(text.Err(), redis.Nil):
		return m, false, nil
	case err != nil:
		return m, false, failed("machine", err, reading)
	}
	if m, live, err = decodeLive(text.Val(), now.Val()); err != nil {
		return m, false, fmt.Errorf("store: machine %s of pool %s: %w", id, pool, err)
	}
	return m, live, nil
}
