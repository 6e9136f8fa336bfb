package suite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

const (
	asynqRole = "asynq-workers"
	asynqTask = "job"
	// asynqProducers enqueue at the same time: a call carries one job only.
	asynqProducers = 16
)

// asynqDispatch is hibiken/asynq: one queue in Redis, workers that fetch and
// acknowledge each job by itself.
type asynqDispatch struct {
	redis   *redisd.Server
	client  *asynq.Client
	workers *workers
}

func newAsynqDispatch(ctx context.Context, n int) (dispatch, error) {
	server, err := redisd.Start(ctx)
	if err != nil {
		return nil, err
	}
	w, err := startWorkers(ctx, asynqRole, server.Addr, n)
	if err != nil {
		server.Stop()
		return nil, err
	}
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr, PoolSize: asynqProducers})
	return &asynqDispatch{redis: server, client: client, workers: w}, nil
}

func (a *asynqDispatch) close() {
	a.workers.stop()
	_ = a.client.Close()
	a.redis.Stop()
}

func (a *asynqDispatch) load(ctx context.Context, first, jobs int) error {
	a.workers.first, a.workers.jobs = first, jobs
	g, ctx := errgroup.WithContext(ctx)
	for k := range asynqProducers {
		g.Go(func() error {
			for id := first + k; id < first+jobs; id += asynqProducers {
				task := asynq.NewTask(asynqTask, []byte(strconv.Itoa(id)+" "+payload))
				if _, err := a.client.EnqueueContext(ctx, task); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (a *asynqDispatch) run(ctx context.Context) (time.Duration, flaws, error) {
	return a.workers.run(ctx)
}

// runAsynqWorkers is the child: ADDR N.
func runAsynqWorkers(args []string) error {
	addr, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	return serveWorkers(func(ctx context.Context, t *tally) (time.Duration, error) {
		server := asynq.NewServer(asynq.RedisClientOpt{Addr: addr, PoolSize: n}, asynq.Config{Concurrency: n, LogLevel: asynq.FatalLevel})
		began := time.Now()
		err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			word, _, _ := strings.Cut(string(task.Payload()), " ")
			id, err := jobNumber(word)
			if err != nil {
				return err
			}
			t.add(id)
			return nil
		}))
		if err != nil {
			return 0, fmt.Errorf("asynq: %w", err)
		}
		defer server.Shutdown()
		// The last handler has returned; its acknowledgement is one call more, which is
		// the peer's gain.
		err = t.wait(ctx)
		return time.Since(began), err
	})
}
