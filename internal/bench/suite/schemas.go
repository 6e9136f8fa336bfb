package suite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// schemaPipeline bounds the commands of one pipeline.
	schemaPipeline = 100
	// schemaTTL is how long a peer keeps what it was told.
	schemaTTL = time.Minute
)

// schemas are the simple ways to keep views in Redis, with the same client as
// Spillway: one set per class and epoch, and one sorted set per class.
type schemas struct {
	rdb   *redis.Client
	views *views
	epoch int
	pause func(context.Context) error // between writing and reading
}

func newSchemas(addr string, v *views) *schemas {
	return &schemas{views: v, rdb: redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
		ReadTimeout: viewTimeout, WriteTimeout: viewTimeout,
	})}
}

func (s *schemas) close() { _ = s.rdb.Close() }

// write pipelines what add says for each class of each replica's view.
func (s *schemas) write(ctx context.Context, add func(redis.Pipeliner, spillway.JobClass, []spillway.JobID)) error {
	for r := range s.views.seen {
		pipe := s.rdb.Pipeline()
		for _, class := range s.views.classes {
			add(pipe, class, s.views.seen[r][class])
			if pipe.Len() >= schemaPipeline {
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read pipelines the count of each class and adds them up.
func (s *schemas) read(ctx context.Context, count func(redis.Pipeliner, spillway.JobClass) *redis.IntCmd) error {
	pipe := s.rdb.Pipeline()
	cards := make([]*redis.IntCmd, len(s.views.classes))
	for i, class := range s.views.classes {
		cards[i] = count(pipe, class)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	sum := int64(0)
	for _, c := range cards {
		sum += c.Val()
	}
	if want := int64(s.views.jobs()); sum != want {
		return fmt.Errorf("%d jobs were counted, want %d", sum, want)
	}
	return nil
}

// timed is the figures of one turn.
func (s *schemas) timed(ctx context.Context, write, read func() error) ([]float64, error) {
	began := time.Now()
	if err := write(); err != nil {
		return nil, err
	}
	wrote := millis(time.Since(began))
	if err := s.pause(ctx); err != nil {
		return nil, err
	}
	began = time.Now()
	for range readsPerFigure {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return []float64{wrote, millis(time.Since(began)) / readsPerFigure}, nil
}

func (s *schemas) setKey(class spillway.JobClass) string {
	return "set:" + strconv.Itoa(s.epoch) + ":" + string(class)
}

func (s *schemas) setTurn(ctx context.Context) ([]float64, error) {
	s.epoch++
	return s.timed(ctx,
		func() error { return s.writeSets(ctx) },
		func() error {
			return s.read(ctx, func(p redis.Pipeliner, class spillway.JobClass) *redis.IntCmd {
				return p.SCard(ctx, s.setKey(class))
			})
		})
}

func (s *schemas) writeSets(ctx context.Context) error {
	return s.write(ctx, func(p redis.Pipeliner, class spillway.JobClass, ids []spillway.JobID) {
		key := s.setKey(class)
		eachChunk(ids, func(part []spillway.JobID) {
			members := make([]any, len(part))
			for i, id := range part {
				members[i] = string(id)
			}
			p.SAdd(ctx, key, members...)
		})
		p.Expire(ctx, key, schemaTTL)
	})
}

func (s *schemas) zsetTurn(ctx context.Context) ([]float64, error) {
	return s.timed(ctx,
		func() error { return s.writeZsets(ctx) },
		func() error {
			stale := strconv.FormatInt(time.Now().Add(-schemaTTL).UnixMilli(), 10)
			return s.read(ctx, func(p redis.Pipeliner, class spillway.JobClass) *redis.IntCmd {
				p.ZRemRangeByScore(ctx, "zset:"+string(class), "-inf", "("+stale)
				return p.ZCard(ctx, "zset:"+string(class))
			})
		})
}

func (s *schemas) writeZsets(ctx context.Context) error {
	now := float64(time.Now().UnixMilli())
	return s.write(ctx, func(p redis.Pipeliner, class spillway.JobClass, ids []spillway.JobID) {
		eachChunk(ids, func(part []spillway.JobID) {
			members := make([]redis.Z, len(part))
			for i, id := range part {
				members[i] = redis.Z{Score: now, Member: string(id)}
			}
			p.ZAdd(ctx, "zset:"+string(class), members...)
		})
	})
}
