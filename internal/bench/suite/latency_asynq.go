package suite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

const asynqReceiversRole = "asynq-receivers"

// asynqCourier is hibiken/asynq, with workers that have nothing to do.
type asynqCourier struct {
	*receivers

	redis  *redisd.Server
	client *asynq.Client
	pushes *errgroup.Group // of the round
}

func newAsynqCourier(ctx context.Context, n int) (courier, error) {
	server, err := redisd.Start(ctx)
	if err != nil {
		return nil, err
	}
	r, err := startReceivers(ctx, asynqReceiversRole, server.Addr, n)
	if err != nil {
		server.Stop()
		return nil, err
	}
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: server.Addr, PoolSize: latencyPushers})
	return &asynqCourier{receivers: r, redis: server, client: client}, nil
}

func (c *asynqCourier) close() {
	c.stop()
	_ = c.client.Close()
	c.redis.Stop()
}

func (c *asynqCourier) begin(ctx context.Context, first, jobs int) error {
	c.pushes = new(errgroup.Group)
	c.pushes.SetLimit(latencyPushers)
	return c.receivers.begin(ctx, first, jobs)
}

func (c *asynqCourier) push(ctx context.Context, id int, sent time.Time) error {
	c.pushes.Go(func() error {
		_, err := c.client.EnqueueContext(ctx, asynq.NewTask(asynqTask, fmt.Appendf(nil, "%d %s", id, stamped(sent))))
		return err
	})
	return nil
}

func (c *asynqCourier) end(ctx context.Context) (arrived, error) {
	if err := c.pushes.Wait(); err != nil {
		return arrived{}, err
	}
	return c.receivers.end(ctx)
}

// runAsynqReceivers is the child: ADDR N.
func runAsynqReceivers(args []string) error {
	addr, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	return serveAwaiting(&asynqReceivers{addr: addr, n: n})
}

type asynqReceivers struct {
	addr   string
	n      int
	server *asynq.Server
}

func (r *asynqReceivers) begin(a *arrivals) error {
	r.server = asynq.NewServer(asynq.RedisClientOpt{Addr: r.addr}, asynq.Config{Concurrency: r.n, LogLevel: asynq.FatalLevel})
	return r.server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		word, carried, _ := strings.Cut(string(task.Payload()), " ")
		id, err := jobNumber(word)
		if err != nil {
			return err
		}
		return a.got(id, carried)
	}))
}

func (r *asynqReceivers) end() { r.server.Shutdown() }
