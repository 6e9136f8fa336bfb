package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

var recordsScript = mustScript("records", "queue")

// indexed is an entry of the index.
type indexed struct {
	id    spillway.JobID
	class spillway.JobClass
}

// lookup returns the class of each id, empty where it is unknown.
func (s *Store) lookup(ctx context.Context, ids []spillway.JobID) ([]spillway.JobClass, error) {
	var positions [indexShards][]int
	for i, id := range ids {
		shard := indexShard(id)
		positions[shard] = append(positions[shard], i)
	}
	pipe := s.rdb.Pipeline()
	var cmds [indexShards]*redis.SliceCmd
	for shard, at := range positions {
		if len(at) == 0 {
			continue
		}
		fields := make([]string, len(at))
		for k, i := range at {
			fields[k] = string(ids[i])
		}
		cmds[shard] = pipe.HMGet(ctx, s.indexKeys(shard)[0], fields...)
	}
	classes := make([]spillway.JobClass, len(ids))
	if pipe.Len() == 0 {
		return classes, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for shard, at := range positions {
		if len(at) == 0 {
			continue
		}
		values, err := cmds[shard].Result()
		if err != nil {
			return nil, err
		}
		for k, i := range at {
			classes[i] = spillway.JobClass(asString(values[k]))
		}
	}
	return classes, nil
}

// recordsOf reads the records of the entries; nil where the class has no such job.
func (s *Store) recordsOf(ctx context.Context, entries []indexed) ([]*spillway.JobRecord, error) {
	records := make([]*spillway.JobRecord, len(entries))
	at := map[spillway.JobClass][]int{}
	var classes []spillway.JobClass
	for i, e := range entries {
		if e.class == "" {
			continue
		}
		if _, ok := at[e.class]; !ok {
			classes = append(classes, e.class)
		}
		at[e.class] = append(at[e.class], i)
	}
	calls := make([]call, len(classes))
	for n, class := range classes {
		args := []any{s.channels()}
		for _, i := range at[class] {
			args = append(args, string(entries[i].id))
		}
		calls[n] = call{recordsScript, s.classKeys(class), args}
	}
	for n, r := range s.run(ctx, calls) {
		list, err := r.list()
		if err != nil {
			return nil, err
		}
		for k, i := range at[classes[n]] {
			stateText := asString(list[2*k])
			if stateText == "" {
				continue
			}
			record, err := decodeRecord(stateText, asString(list[2*k+1]))
			if err != nil {
				return nil, err
			}
			records[i] = &record
		}
	}
	return records, nil
}

// dropFromIndex removes forgotten jobs. What is left behind when it fails is found
// by the sweep, so that its error is nobody's concern.
func (s *Store) dropFromIndex(ctx context.Context, ids []any) {
	if len(ids) == 0 {
		return
	}
	var shards [indexShards][]any
	for _, v := range ids {
		shard := indexShard(spillway.JobID(asString(v)))
		shards[shard] = append(shards[shard], v)
	}
	pipe := s.rdb.Pipeline()
	for shard, members := range shards {
		if len(members) == 0 {
			continue
		}
		keys := s.indexKeys(shard)
		fields := make([]string, len(members))
		for i, m := range members {
			fields[i] = asString(m)
		}
		pipe.HDel(ctx, keys[0], fields...)
		pipe.ZRem(ctx, keys[1], members...)
	}
	_, _ = pipe.Exec(ctx)
}
