package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

var seatsScript = mustScript("seats")

// seatsKey is beside the machines of the pool.
func (s *Store) seatsKey(pool string) string { return s.key("m:"+pool, "seats") }

// TakeSeat gives a machine one of a pool's seats, of which there are most, until ttl is
// over by the server's clock: it has one already, or one is free. Who has one may be in
// the pool, whatever replica it is at; that is all that a seat says. taken is false if
// all are taken.
func (s *Store) TakeSeat(ctx context.Context, pool string, machine spillway.MachineID, most int, ttl time.Duration) (taken bool, err error) {
	if err := checkSeat(pool, machine); err != nil {
		return false, fmt.Errorf("store: take seat: %w", err)
	}
	if most <= 0 {
		return false, fmt.Errorf("store: take seat: %w: %d seats", spillway.ErrInvalid, most)
	}
	ctx, done := s.begin(ctx)
	defer done()
	list, err := s.run(ctx, []call{s.seatsCall(pool, most, ttl, []spillway.MachineID{machine})})[0].list()
	switch {
	case err != nil:
		return false, failed("take seat", err, writing)
	case len(list) != 1:
		return false, failed("take seat", errReply, writing)
	}
	return asInt(list[0]) == 1, nil
}

// KeepSeats renews seats, by pool. A machine that has none by now gets one, even if all
// are taken: it is in the pool, and what it runs there goes on.
func (s *Store) KeepSeats(ctx context.Context, seats map[string][]spillway.MachineID, ttl time.Duration) error {
	var calls []call
	for _, pool := range slices.Sorted(maps.Keys(seats)) {
		for batch := range slices.Chunk(seats[pool], MaxBatch) {
			for _, machine := range batch {
				if err := checkSeat(pool, machine); err != nil {
					return fmt.Errorf("store: keep seats: %w", err)
				}
			}
			calls = append(calls, s.seatsCall(pool, 0, ttl, batch))
		}
	}
	ctx, done := s.begin(ctx)
	defer done()
	for _, r := range s.run(ctx, calls) {
		if r.err != nil {
			return failed("keep seats", r.err, writing)
		}
	}
	return nil
}

func (s *Store) seatsCall(pool string, most int, ttl time.Duration, machines []spillway.MachineID) call {
	args := []any{most, ttl.Milliseconds()}
	for _, m := range machines {
		args = append(args, string(m))
	}
	return call{seatsScript, []string{s.seatsKey(pool)}, args}
}

// LeaveSeat frees a machine's seat, if it has one.
func (s *Store) LeaveSeat(ctx context.Context, pool string, machine spillway.MachineID) error {
	if err := checkSeat(pool, machine); err != nil {
		return fmt.Errorf("store: leave seat: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	return failed("leave seat", s.rdb.ZRem(ctx, s.seatsKey(pool), string(machine)).Err(), writing)
}

func checkSeat(pool string, machine spillway.MachineID) error {
	if !spillway.PoolName(pool) || !printable(string(machine), maxNameBytes) {
		return fmt.Errorf("%w: machine %.40q of pool %.40q", spillway.ErrInvalid, machine, pool)
	}
	return nil
}
