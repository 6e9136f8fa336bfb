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

// natsServer is a NATS JetStream work queue in the memory of a server inside this
// process, which is where Spillway's router is, too.
type natsServer struct {
	server *natsserver.Server
	dir    string
	conn   *nats.Conn
	js     jetstream.JetStream
}

// natsDispatch is a work queue and its workers.
type natsDispatch struct {
	*natsServer

	workers *workers
}

func newNATSDispatch(ctx context.Context, n int) (dispatch, error) {
	q, err := startNATS(ctx, n)
	if err != nil {
		return nil, err
	}
	w, err := startWorkers(ctx, natsRole, q.server.ClientURL(), n)
	if err != nil {
		q.close()
		return nil, err
	}
	return &natsDispatch{q, w}, nil
}

func (d *natsDispatch) close() {
	d.workers.stop()
	d.natsServer.close()
}

// startNATS starts a server with a queue that so many workers may ask.
func startNATS(ctx context.Context, n int) (_ *natsServer, err error) {
	d := &natsServer{}
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
	return d, err
}

func (d *natsServer) close() {
	if d.conn != nil {
		d.conn.Close()
	}
	if d.server != nil {
		d.server.Shutdown()
		d.server.WaitForShutdown()
	}
	_ = os.RemoveAll(d.dir)
}

// publish sends a job off, without waiting for its acknowledgement.
func (d *natsServer) publish(id int, carried string) error {
	_, err := d.js.PublishMsgAsync(&nats.Msg{
		Subject: natsSubject, Data: []byte(carried), Header: nats.Header{natsID: {strconv.Itoa(id)}},
	})
	return err
}

func (d *natsDispatch) load(ctx context.Context, first, jobs int) error {
	d.workers.first, d.workers.jobs = first, jobs
	for i := range jobs {
		if err := d.publish(first+i, payload); err != nil {
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
	queues, closeQueues, err := natsConsumers(url, n)
	defer closeQueues()
	if err != nil {
		return err
	}
	return serveWorkers(func(ctx context.Context, t *tally) (time.Duration, error) { return natsRound(ctx, queues, t) })
}

// natsConsumers connects so many workers; the caller ends all connections, also after
// an error.
func natsConsumers(url string, n int) (queues []jetstream.Consumer, closeAll func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), workerTimeout)
	defer cancel()
	var conns []*nats.Conn
	closeAll = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	for range n {
		conn, err := nats.Connect(url)
		if err != nil {
			return nil, closeAll, fmt.Errorf("nats: %w", err)
		}
		conns = append(conns, conn)
		js, err := jetstream.New(conn)
		if err != nil {
			return nil, closeAll, fmt.Errorf("nats: %w", err)
		}
		q, err := js.Consumer(ctx, natsStream, natsConsumer)
		if err != nil {
			return nil, closeAll, fmt.Errorf("nats: %w", err)
		}
		queues = append(queues, q)
	}
	return queues, closeAll, nil
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
