package ingress

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

const (
	// advertiseEvery and advertiseFor are how often a replica says where it is reached, and
	// how long that is believed.
	advertiseEvery = 20 * time.Second
	advertiseFor   = time.Minute
	// advertiseEpoch: nobody else writes a replica's board.
	advertiseEpoch = 1
	// maxPeers bounds the connections to other replicas [connections].
	maxPeers = 64
	// peerWithin bounds the connection to another replica.
	peerWithin = 5 * time.Second
	// metaReplica tells an answer of a replica from one of the way to it.
	metaReplica = "x-spillway-replica"
)

func answeredBy(replica string) metadata.MD { return metadata.Pairs(metaReplica, replica) }

// boardOf is where a replica says how it is reached.
func boardOf(replica string) string { return "debug/replica/" + hashed(replica)[:32] }

// Run tells other replicas how this one is reached, and hears of whom they let in, until
// ctx ends.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.advertise(ctx) })
	wg.Go(func() { s.hear(ctx) })
	wg.Wait()
}

func (s *Service) advertise(ctx context.Context) {
	if s.opt.Advertise == nil {
		return
	}
	address := s.opt.Advertise()
	if address == "" {
		return
	}
	again := time.NewTicker(advertiseEvery)
	defer again.Stop()
	for ctx.Err() == nil {
		if err := s.opt.Store.PutBoard(ctx, boardOf(s.opt.Replica), advertiseEpoch, []byte(address), advertiseFor); err != nil {
			s.trouble("say where this replica is reached", err)
		}
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}

// hearAgain is how long a subscription that ended is not begun again.
const hearAgain = 2 * time.Second

func (s *Service) hear(ctx context.Context) {
	for ctx.Err() == nil {
		facts, err := s.opt.Store.Facts(ctx, ticketTopic(s.opt.Replica))
		if err != nil {
			s.trouble("hear of other replicas' tickets", err)
		} else {
			for text := range facts {
				s.tickets.add(text, time.Now())
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(hearAgain):
		}
	}
}

func (s *Service) trouble(op string, err error) {
	if s.opt.Events.Trouble != nil && s.ctx.Err() == nil {
		s.opt.Events.Trouble(op, err)
	}
}

// elsewhere opens a tunnel by the replica that the job's machine is connected to.
func (s *Service) elsewhere(ctx context.Context, r request, record *spillway.JobRecord) (Tunnel, error) {
	m, known, err := s.opt.Store.Machine(ctx, record.Pool, record.Machine)
	switch {
	case err != nil:
		return nil, errStore
	case !known || m.Replica == "" || m.Replica == s.opt.Replica:
		return nil, status.Errorf(codes.Unavailable, "machine %s, which has job %s, has no connection to a router now; try again when it is back", record.Machine, r.job)
	}
	address, advertised, err := s.opt.Store.Board(ctx, boardOf(m.Replica))
	switch {
	case err != nil:
		return nil, errStore
	case !advertised:
		return nil, status.Errorf(codes.Unavailable, "job %s is on a machine of replica %s, which does not say how other replicas reach it (debug.advertise): call that replica itself", r.job, m.Replica)
	}
	return s.relay(ctx, r, m.Replica, string(address))
}

func (s *Service) relay(ctx context.Context, r request, replica, address string) (Tunnel, error) {
	conn, err := s.peers.dial(address)
	if err != nil {
		return nil, s.unreachable(r.job, replica, err)
	}
	number, err := s.issue(ctx, replica, r.job)
	if err != nil {
		return nil, err
	}
	// Not ended with the caller: that it has left is said to the other replica first.
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	out = metadata.NewOutgoingContext(out, metadata.Pairs(metaTicket, number))
	rpc, err := debugv1.NewDebugServiceClient(conn).Relay(out)
	if err == nil {
		err = rpc.Send(&debugv1.Frame{Frame: &debugv1.Frame_Open{Open: &debugv1.Open{JobId: string(r.job), Target: r.target}}})
	}
	if err != nil {
		cancel()
		return nil, s.unreachable(r.job, replica, err)
	}
	lost := func(err error) error { return s.unreachable(r.job, replica, err) }
	return &relayed{rpc: rpc, cancel: cancel, over: make(chan struct{}), lost: lost, where: Where{Replica: replica}}, nil
}

// unreachable is what a person is told; what the way there says is for the log.
func (s *Service) unreachable(job spillway.JobID, replica string, err error) error {
	if s.opt.Events.Unreachable != nil {
		s.opt.Events.Unreachable(replica, err)
	}
	return status.Errorf(codes.Unavailable, "job %s is on a machine of replica %s, which replica %s can't reach: call that one itself", job, replica, s.opt.Replica)
}

// relayed is a tunnel of another replica.
type relayed struct {
	rpc    debugv1.DebugService_RelayClient
	cancel context.CancelFunc
	lost   func(error) error // why the session is over when the way to the replica is
	where  Where

	once  sync.Once
	over  chan struct{}
	cause error // before over is closed
}

// Send implements Tunnel.
func (t *relayed) Send(f *debugv1.Frame) error {
	if t.rpc.Send(f) != nil {
		<-t.over // Recv knows why
		return cmp.Or(t.cause, io.EOF)
	}
	return nil
}

// Recv implements Tunnel.
func (t *relayed) Recv() (*debugv1.Frame, error) {
	f, err := t.rpc.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			t.finish(nil)
			return nil, io.EOF
		}
		err = t.ended(err)
		t.finish(err)
		return nil, err
	}
	if o := f.GetOpened(); o != nil {
		t.where.Machine, t.where.Pool, t.where.Attempt = o.GetMachineId(), o.GetPool(), int(o.GetAttempt())
	}
	return f, nil
}

// ended tells the other replica's own words from those of the way to it. Who this replica
// is to the other one is of the way, too: the person has proven who that is.
func (t *relayed) ended(err error) error {
	select {
	case <-t.over:
		if t.cause != nil {
			return t.cause
		}
		return err
	default:
	}
	if len(t.rpc.Trailer().Get(metaReplica)) == 0 || status.Code(err) == codes.Unauthenticated {
		return t.lost(err)
	}
	return err
}

func (t *relayed) finish(err error) {
	t.once.Do(func() {
		t.cause = err
		close(t.over)
	})
}

// Over implements Tunnel: what the other replica says shows in Recv.
func (t *relayed) Over() <-chan struct{} { return nil }

// Cause implements Tunnel.
func (t *relayed) Cause() error { return t.cause }

// Where implements Tunnel.
func (t *relayed) Where() Where { return t.where }

// Close implements Tunnel.
func (t *relayed) Close(err error) {
	t.finish(err)
	t.cancel()
}

// peers keeps one connection to each replica that was asked.
type peers struct {
	options []grpc.DialOption
	mu      sync.Mutex
	conns   map[string]*grpc.ClientConn
	closed  bool
}

func newPeers(options []grpc.DialOption) *peers {
	quick := backoff.DefaultConfig
	quick.BaseDelay, quick.MaxDelay = 100*time.Millisecond, 2*time.Second
	return &peers{conns: map[string]*grpc.ClientConn{}, options: append([]grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: peerWithin}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 25 * time.Second, Timeout: 5 * time.Second}),
	}, options...)}
}

func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn, ok := p.conns[address]; ok {
		return conn, nil
	}
	if p.closed {
		return nil, errShutDown
	}
	for old, conn := range p.conns { // replicas that are gone
		if len(p.conns) >= maxPeers && conn.GetState() != connectivity.Ready {
			_ = conn.Close() // there is nothing on it
			delete(p.conns, old)
		}
	}
	if len(p.conns) >= maxPeers {
		return nil, status.Errorf(codes.ResourceExhausted, "%d other replicas are connected", len(p.conns))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, p.options...)
	if err != nil {
		return nil, err
	}
	p.conns[address] = conn
	return conn, nil
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for address, conn := range p.conns {
		_ = conn.Close() // it is the end
		delete(p.conns, address)
	}
}
