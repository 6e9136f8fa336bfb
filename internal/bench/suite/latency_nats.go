package suite

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	natsReceiversRole = "nats-receivers"
	// natsLongWait is how long an idle worker waits before it asks again: the longest
	// without heartbeats, so that thousands that wait have little to do.
	natsLongWait = 9 * time.Second
)

// natsCourier is a NATS JetStream work queue, asked by workers that wait.
type natsCourier struct {
	*natsServer
	*receivers
}

func newNATSCourier(ctx context.Context, n int) (courier, error) {
	q, err := startNATS(ctx, n)
	if err != nil {
		return nil, err
	}
	r, err := startReceivers(ctx, natsReceiversRole, q.server.ClientURL(), n)
	if err != nil {
		q.close()
		return nil, err
	}
	return &natsCourier{q, r}, nil
}

func (c *natsCourier) close() {
	c.stop()
	c.natsServer.close()
}

func (c *natsCourier) push(_ context.Context, id int, sent time.Time) error {
	return c.publish(id, stamped(sent))
}

func (c *natsCourier) end(ctx context.Context) (arrived, error) {
	select {
	case <-c.js.PublishAsyncComplete():
	case <-ctx.Done():
		return arrived{}, context.Cause(ctx)
	}
	return c.receivers.end(ctx)
}

// runNATSReceivers is the child: URL N.
func runNATSReceivers(args []string) error {
	url, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	queues, closeQueues, err := natsConsumers(url, n)
	defer closeQueues()
	if err != nil {
		return err
	}
	return serveAwaiting(&natsReceivers{queues: queues})
}

type natsReceivers struct {
	queues  []jetstream.Consumer
	stop    context.CancelFunc
	working sync.WaitGroup
}

// begin has each take one job at a time, and acknowledge it once it has it.
func (r *natsReceivers) begin(a *arrivals) error {
	var work context.Context
	work, r.stop = context.WithCancel(context.Background())
	for _, q := range r.queues {
		r.working.Go(func() {
			for work.Err() == nil {
				ctx, cancel := context.WithTimeout(work, natsLongWait)
				m, err := q.Next(jetstream.FetchContext(ctx))
				cancel()
				if err != nil {
					continue // nothing came, or the round has ended
				}
				if id, err := jobNumber(m.Headers().Get(natsID)); err == nil && a.got(id, string(m.Data())) == nil {
					_ = m.Ack() // else it comes again, which is counted
				}
			}
		})
	}
	return nil
}

func (r *natsReceivers) end() {
	r.stop()
	r.working.Wait()
}
