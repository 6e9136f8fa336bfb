package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

var machinesScript = mustScript("machines", "book")

// machineKeys are the keys of a pool's machines, in the order of scripts/book.lua.
func (s *Store) machineKeys(pool string) []string {
	tag := "m:" + pool
	return []string{s.machinesKey(pool), s.key(tag, "seen"), s.drainKey(pool), s.key(tag, "book"), s.key(tag, "holders")}
}

func (s *Store) machinesKey(pool string) string { return s.opt.Prefix + ":{m:" + pool + "}:machines" }

func (s *Store) drainKey(pool string) string { return s.opt.Prefix + ":{m:" + pool + "}:drains" }

// PutMachines registers machines, or renews what is known of them, for the
// MachineTTL from now on by the server's clock.
func (s *Store) PutMachines(ctx context.Context, machines []router.Machine) error {
	ctx, done := s.begin(ctx)
	defer done()
	contents := make([]poolItem, len(machines))
	for i := range machines {
		m := &machines[i]
		if m.ID == "" || !spillway.PoolName(m.Pool) {
			return fmt.Errorf("store: put machines: machine %.40q of pool %.40q: %w", m.ID, m.Pool, spillway.ErrInvalid)
		}
		if m.InterruptionKind != "" && !router.KnownInterruption(m.InterruptionKind) {
			return fmt.Errorf("store: put machines: machine %.40q: %w: interruption %.40q", m.ID, spillway.ErrInvalid, m.InterruptionKind)
		}
		for _, text := range []string{string(m.ID), m.InstanceID, m.Version, m.Replica, m.Unhealthy} {
			if len(text) > maxMachineBytes {
				return fmt.Errorf("store: put machines: machine %.40q: %w: a string of %d bytes, at most %d are allowed", m.ID, spillway.ErrInvalid, len(text), maxMachineBytes)
			}
		}
		contents[i] = poolItem{m.Pool, string(m.ID), encodeMachine(m)}
	}
	if err := s.registerPools(ctx, contents); err != nil {
		return failed("put machines", err, writing)
	}
	return failed("put machines", s.writeMachines(ctx, contents), writing)
}

// RemoveMachines forgets machines of a pool, the orders to drain them, and the books
// of their routed jobs.
func (s *Store) RemoveMachines(ctx context.Context, pool string, ids []spillway.MachineID) error {
	ctx, done := s.begin(ctx)
	defer done()
	items := make([]poolItem, len(ids))
	for i, id := range ids {
		items[i] = poolItem{pool: pool, name: string(id)}
	}
	return failed("remove machines", s.writeMachines(ctx, items), writing)
}

// poolItem is something named in a pool.
type poolItem struct{ pool, name, content string }

func (s *Store) writeMachines(ctx context.Context, items []poolItem) error {
	for _, batch := range split(items, func(i *poolItem) int { return len(i.content) }) {
		pools, byPool := groupBy(batch, func(i *poolItem) string { return i.pool })
		calls := make([]call, len(pools))
		for i, pool := range pools {
			args := []any{s.opt.MachineTTL.Milliseconds()}
			for _, item := range byPool[pool] {
				args = append(args, item.name, item.content)
			}
			calls[i] = call{machinesScript, s.machineKeys(pool), args}
		}
		for _, r := range s.run(ctx, calls) {
			if r.err != nil {
				return r.err
			}
		}
	}
	return nil
}

// registerPools lists the pools, so that Machines finds them; pools whose machines
// must all have expired are taken off the list.
func (s *Store) registerPools(ctx context.Context, items []poolItem) error {
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	var members []redis.Z
	seen := map[string]bool{}
	for _, i := range items {
		if !seen[i.pool] {
			seen[i.pool] = true
			members = append(members, redis.Z{Score: float64(now.UnixMilli()), Member: i.pool})
		}
	}
	if len(members) == 0 {
		return nil
	}
	pools := s.key("q", "pools")
	pipe := s.rdb.Pipeline()
	pipe.ZRemRangeByScore(ctx, pools, "-inf", strconv.FormatInt(now.Add(-s.opt.MachineTTL-time.Hour).UnixMilli(), 10))
	pipe.ZAdd(ctx, pools, members...)
	_, err = pipe.Exec(ctx)
	return err
}

// Machines returns every machine that is registered, one pool's after the other: whole
// or an error. A pool's keep their order for as long as none comes and none goes, mostly.
func (s *Store) Machines(ctx context.Context) ([]router.Machine, error) {
	ctx, done := s.begin(ctx)
	defer done()
	pools, err := s.rdb.ZRange(ctx, s.key("q", "pools"), 0, -1).Result()
	if err != nil {
		return nil, failed("machines", err, reading)
	}
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	cmds := make([]*redis.StringSliceCmd, len(pools))
	for i, pool := range pools {
		cmds[i] = pipe.HVals(ctx, s.machinesKey(pool))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, failed("machines", err, reading)
	}
	n := 0
	for _, cmd := range cmds {
		n += len(cmd.Val())
	}
	machines := make([]router.Machine, 0, n)
	for i, cmd := range cmds {
		for _, text := range cmd.Val() {
			m, live, err := decodeLive(text, now.Val())
			if err != nil {
				return nil, fmt.Errorf("store: machines of pool %s: %w", pools[i], err)
			}
			if live {
				machines = append(machines, m)
			}
		}
	}
	return machines, nil
}

// decodeLive reads an entry unless it has expired.
func decodeLive(text string, now time.Time) (m router.Machine, live bool, err error) {
	expiry, content, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil {
		return m, false, fmt.Errorf("%w: an expiry", errContent)
	}
	if ms <= now.UnixMilli() {
		return m, false, nil
	}
	m, err = decodeMachine(content)
	return m, true, err
}
