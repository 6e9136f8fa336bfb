package jobrouter

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// maxPeers bounds the connections to other replicas [connections].
const maxPeers = 64

// peerOptions make a replica that is back be noticed soon, and one that hangs too.
func peerOptions() []grpc.DialOption {
	quick := backoff.DefaultConfig
	quick.BaseDelay, quick.MaxDelay = 100*time.Millisecond, 2*time.Second
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 25 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	}
}

// maxAnswerBytes bounds an answer of another replica [bytes]: a job and its frame.
const maxAnswerBytes = 4 << 20

// peers keeps one connection to each replica that was asked.
type peers struct {
	options []grpc.DialOption
	mu      struct {
		sync.Mutex
		conns  map[string]*grpc.ClientConn
		closed bool
	}
}

func newPeers(options []grpc.DialOption) *peers {
	p := &peers{options: append(peerOptions(), options...)}
	p.mu.conns = map[string]*grpc.ClientConn{}
	return p
}

func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn, ok := p.mu.conns[address]; ok {
		return conn, nil
	}
	if p.mu.closed {
		return nil, fmt.Errorf("relay to %s: this replica has stopped", address)
	}
	if len(p.mu.conns) >= maxPeers { // replicas that are gone
		for old, conn := range p.mu.conns {
			_ = conn.Close() // nobody reads from it any more, or is told so
			delete(p.mu.conns, old)
			break
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+address, p.options...)
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", address, err)
	}
	p.mu.conns[address] = conn
	return conn, nil
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, conn := range p.mu.conns {
		_ = conn.Close() // it is the end
	}
	clear(p.mu.conns)
}
