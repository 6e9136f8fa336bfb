package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	natsRole     = "nats-workers"
	natsStream   = "JOBS"
	natsSubject  = "jobs"
	natsConsumer = "workers"
	natsID       = "Job-Id" // header
	// natsWindow is how many jobs are published before their acknowledgements are
	// waited for.
	natsWindow = 2_000
	// natsWait is how long a worker waits for a job before it asks again.
	natsWait = time.Second
)

// natsDispatch is a NATS JetStream work queue in the memory of a server inside this
// process, which is where Spillway's router is, too.
type natsDispatch struct {
	server  *natsserver.Server
	dir     string
	conn    *nats.Conn
	js      jetstream.JetStream
	workers *workers
}

func newNATSDispatch(ctx context.Context, n int) (_ dispatch, err error) {
	d := &natsDispatch{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.dir, err = os.MkdirTemp("", "spillway-bench-nats-"); err != nil {
		return nil, err
	}
	d.server, err = natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: d.dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	go d.server.Start()
	if !d.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server does not come up")
	}
	if d.conn, err = nats.Connect(d.server.ClientURL()); err != nil {
		return nil, err
	}
	if d.js, err = jetstream.New(d.conn); err != nil {
		return nil, err
	}
	stream, err := d.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsSubject}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return nil, err
	}
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: natsConsumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxWaiting: 2 * n,
	})
	if err != nil {
		return nil, err
	}
	d.workers, err = startWorkers(ctx, natsRole, d.server.ClientURL(), n)
	return d, err
}

func (d *natsDispatch) close() {
	if d.workers != nil {
		d.workers.stop()
	}
	if d.conn != nil {
		d.conn.Close()
	}
	if d.server != nil {
		d.server.Shutdown()
		d.server.WaitForShutdown()
	}
	_ = os.RemoveAll(d.dir)
}

func (d *natsDispatch) load(ctx context.Context, first, jobs int) error {
	d.workers.first, d.workers.jobs = first, jobs
	for i := range jobs {
		_, err := d.js.PublishMsgAsync(&nats.Msg{
			Subject: natsSubject, Data: []byte(payload), Header: nats.Header{natsID: {strconv.Itoa(first + i)}},
		})
		if err != nil {
			return err
		}
		if i%natsWindow != natsWindow-1 && i != jobs-1 {
			continue
		}
		select {
		case <-d.js.PublishAsyncComplete():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *natsDispatch) run(ctx context.Context) (time.Duration, flaws, error) {
	return d.workers.run(ctx)
}

// runNATSWorkers is the child: URL N. Each worker has a connection of its own, as
// each machine has to the router.
func runNATSWorkers(args []string) error {
	url, n, err := addrAndCount(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), workerTimeout)
	defer cancel()
	queues := make([]jetstream.Consumer, n)
	for i := range queues {
		conn, err := nats.Connect(url)
		if err != nil {
			return fmt.Errorf("nats: %w", err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			return fmt.Errorf("nats: %w", err)
		}
		if queues[i], err = js.Consumer(ctx, natsStream, natsConsumer); err != nil {
			return fmt.Errorf("nats: %w", err)
		}
	}
	return serveWorkers(func(ctx context.Context, t *tally) (time.Duration, error) { return natsRound(ctx, queues, t) })
}

// natsRound takes one job at a time and waits until its acknowledgement is confirmed.
func natsRound(ctx context.Context, queues []jetstream.Consumer, t *tally) (time.Duration, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	began := time.Now()
	for _, q := range queues {
		workers.Go(func() {
			for work.Err() == nil {
				batch, err := q.Fetch(1, jetstream.FetchMaxWait(natsWait))
				if err != nil {
					return
				}
				for m := range batch.Messages() {
					id, err := jobNumber(m.Headers().Get(natsID))
					if err == nil && m.DoubleAck(work) == nil {
						t.add(id)
					}
				}
			}
		})
	}
	err := t.wait(ctx)
	took := time.Since(began)
	stop()
	workers.Wait()
	return took, err
}
