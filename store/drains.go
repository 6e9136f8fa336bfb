package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// maxReasonBytes bounds the reason kept with a drain order [bytes].
const maxReasonBytes = 512

var drainScript = mustScript("drain")

// OrderDrain asks for machines to take no more jobs (On), or takes that back. It
// returns when the orders are on record; DrainPokes tells the routers. An order that
// stands already keeps the time since when it does.
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
		content, err := json.Marshal(storedDrain{Terminate: o.Terminate, Reason: o.Reason})
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
		if _, err := s.runOne(ctx, call{drainScript, []string{s.drainKey(pool)}, args}); err != nil {
			return failed("order drain", err, writing)
		}
	}
	return nil
}

// storedDrain is an order as it is kept. Terminate is always written, because the
// script puts the time before the first field.
type storedDrain struct {
	At        int64  `json:"at,omitempty"` // µs since 1970; 0 = by a replica that did not write it yet
	Terminate bool   `json:"terminate"`
	Reason    string `json:"reason,omitempty"`
}

func decodeDrain(id spillway.MachineID, content string) (router.DrainOrder, error) {
	var d storedDrain
	if err := json.Unmarshal([]byte(content), &d); err != nil {
		return router.DrainOrder{}, fmt.Errorf("%w: an order to drain", errContent)
	}
	o := router.DrainOrder{Machine: id, On: true, Terminate: d.Terminate, Reason: d.Reason}
	if d.At != 0 {
		o.At = time.UnixMicro(d.At).UTC()
	}
	return o, nil
}

// Drains returns the orders in force for a pool's machines. A machine without one
// is to take jobs.
func (s *Store) Drains(ctx context.Context, pool string) (map[spillway.MachineID]router.DrainOrder, error) {
	all, err := s.DrainsOf(ctx, []string{pool})
	return all[pool], err
}

// drainsPipeline bounds the pools that one pipeline asks for [pools].
const drainsPipeline = 1_000

// DrainsOf is Drains for many pools, with an entry for each of them. With an error, those
// that were read are returned; of the others nothing is known.
func (s *Store) DrainsOf(ctx context.Context, pools []string) (map[string]map[spillway.MachineID]router.DrainOrder, error) {
	ctx, done := s.begin(ctx)
	defer done()
	drains := make(map[string]map[spillway.MachineID]router.DrainOrder, len(pools))
	var failure error
	for part := range slices.Chunk(pools, drainsPipeline) {
		pipe := s.rdb.Pipeline()
		cmds := make([]*redis.MapStringStringCmd, len(part))
		for i, pool := range part {
			cmds[i] = pipe.HGetAll(ctx, s.drainKey(pool))
		}
		_, sent := pipe.Exec(ctx)
		for i, pool := range part {
			orders, err := readDrains(cmds[i], sent)
			if err != nil {
				failure = fmt.Errorf("pool %s: %w", pool, err)
				continue
			}
			drains[pool] = orders
		}
	}
	return drains, failed("drains", failure, reading)
}

// readDrains reads one pool's answer; sent is what came of the pipeline that it was in.
func readDrains(cmd *redis.MapStringStringCmd, sent error) (map[spillway.MachineID]router.DrainOrder, error) {
	all, err := cmd.Result()
	if err == nil && all == nil {
		err = sent // a pipeline that never began leaves its commands without an error
	}
	if err != nil {
		return nil, err
	}
	orders := make(map[spillway.MachineID]router.DrainOrder, len(all))
	for name, content := range all {
		id := spillway.MachineID(name)
		if orders[id], err = decodeDrain(id, content); err != nil {
			return nil, err
		}
	}
	return orders, nil
}

// Ordered returns the drain order of one machine, if it is under one.
func (s *Store) Ordered(ctx context.Context, pool string, id spillway.MachineID) (router.DrainOrder, bool, error) {
	ctx, done := s.begin(ctx)
	defer done()
	content, err := s.rdb.HGet(ctx, s.drainKey(pool), string(id)).Result()
	if errors.Is(err, redis.Nil) {
		return router.DrainOrder{}, false, nil
	}
	if err != nil {
		return router.DrainOrder{}, false, failed("ordered", err, reading)
	}
	o, err := decodeDrain(id, content)
	if err != nil {
		return router.DrainOrder{}, false, fmt.Errorf("store: machine %.40q of pool %s: %w", id, pool, err)
	}
	return o, true, nil
}
