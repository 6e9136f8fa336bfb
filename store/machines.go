package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// maxReasonBytes bounds the reason kept with a drain order [bytes].
const maxReasonBytes = 512

var (
	machinesScript = mustScript("machines")
	drainScript    = mustScript("drain")
)

func (s *Store) machineKeys(pool string) []string {
	tag := "m:" + pool
	return []string{s.key(tag, "machines"), s.key(tag, "seen"), s.key(tag, "drains")}
}

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

// RemoveMachines forgets machines of a pool, and the orders to drain them.
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

// Machines returns every machine that is registered, of all pools: whole or an
// error.
func (s *Store) Machines(ctx context.Context) ([]router.Machine, error) {
	ctx, done := s.begin(ctx)
	defer done()
	pools, err := s.rdb.ZRange(ctx, s.key("q", "pools"), 0, -1).Result()
	if err != nil {
		return nil, failed("machines", err, reading)
	}
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	cmds := make([]*redis.MapStringStringCmd, len(pools))
	for i, pool := range pools {
		cmds[i] = pipe.HGetAll(ctx, s.machineKeys(pool)[0])
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, failed("machines", err, reading)
	}
	machines := []router.Machine{}
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

// OrderDrain asks for machines to take no more jobs (On), or takes that back. It
// returns when the orders are on record; DrainPokes tells the routers.
func (s *Store) OrderDrain(ctx context.Context, pool string, orders []router.DrainOrder) error {
	ctx, done := s.begin(ctx)
	defer done()
	items := make([]poolItem, len(orders))
	for i, o := range orders {
		items[i] = poolItem{pool: pool, name: string(o.Machine)}
		if !o.On {
			continue
		}
		if len(o.Reason) > maxReasonBytes {
			o.Reason = strings.ToValidUTF8(o.Reason[:maxReasonBytes], "")
		}
		content, err := json.Marshal(storedDrain{o.Terminate, o.Reason})
		if err != nil {
			return fmt.Errorf("store: order drain: %w", err)
		}
		items[i].content = string(content)
	}
	for _, batch := range split(items, func(i *poolItem) int { return len(i.content) }) {
		args := []any{s.channel("drains"), s.opt.MachineTTL.Milliseconds()}
		for _, item := range batch {
			args = append(args, item.name, item.content)
		}
		if _, err := s.runOne(ctx, call{drainScript, s.machineKeys(pool)[2:], args}); err != nil {
			return failed("order drain", err, writing)
		}
	}
	return nil
}

type storedDrain struct {
	Terminate bool   `json:"terminate,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Drains returns the orders in force for a pool's machines. A machine without one
// is to take jobs.
func (s *Store) Drains(ctx context.Context, pool string) (map[spillway.MachineID]router.DrainOrder, error) {
	ctx, done := s.begin(ctx)
	defer done()
	all, err := s.rdb.HGetAll(ctx, s.machineKeys(pool)[2]).Result()
	if err != nil {
		return nil, failed("drains", err, reading)
	}
	orders := make(map[spillway.MachineID]router.DrainOrder, len(all))
	for name, content := range all {
		var d storedDrain
		if err := json.Unmarshal([]byte(content), &d); err != nil {
			return nil, fmt.Errorf("store: drains of pool %s: %w: an order", pool, errContent)
		}
		id := spillway.MachineID(name)
		orders[id] = router.DrainOrder{Machine: id, On: true, Terminate: d.Terminate, Reason: d.Reason}
	}
	return orders, nil
}
