package suite

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-ci/spillway/internal/bench/child"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const (
	// idleRunnersRole is a process of runners that have a connection each, and wait.
	idleRunnersRole = "idle-runners"
	// maxHandshakes bounds the connections that one process begins at the same time: the
	// runners of a fleet come back with jitter.
	maxHandshakes = 32
	// connectTimeout bounds one connection until its runner is registered.
	connectTimeout = time.Minute
)

// How an idle runner is connected.
const (
	overTCP  = "tcp"  // and nothing else
	overTLS  = "tls"  // mutual, and nothing in it
	overGRPC = "grpc" // registered at a control plane, by mutual TLS
)

// idleRunners is the parent's end of some processes of runners.
type idleRunners []*child.Process

// startIdleRunners shares the runners out over some processes, each with a source
// address of its own: so that there are ports enough, also while old ones cool off.
// instances has those of each pool.
func startIdleRunners(dir string, processes int, instances [][]string) (all idleRunners, err error) {
	defer func() {
		if err != nil {
			all.stop()
		}
	}()
	for i := range processes {
		p, err := child.Start(idleRunnersRole, dir, fmt.Sprintf("127.0.0.%d", i+2))
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	next := 0
	for pool, ids := range instances {
		for _, id := range ids {
			if err := all[next%processes].Say("runner", pool, id); err != nil {
				return all, err
			}
			next++
		}
	}
	return all, nil
}

// connect has all connect, and returns how long that took.
func (r idleRunners) connect(ctx context.Context, how, addr string) (time.Duration, error) {
	if err := r.each(ctx, "ready", "prepare"); err != nil {
		return 0, err
	}
	began := time.Now()
	err := r.each(ctx, "connected", "connect", how, addr)
	return time.Since(began), err
}

// drop ends all connections from the runners' side.
func (r idleRunners) drop(ctx context.Context) error { return r.each(ctx, "dropped", "drop") }

// each says something to all of the processes, and waits for all answers.
func (r idleRunners) each(ctx context.Context, answer string, words ...any) error {
	for _, p := range r {
		if err := p.Say(words...); err != nil {
			return err
		}
	}
	for _, p := range r {
		if _, err := p.Hear(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// alive is how many are connected now.
func (r idleRunners) alive(ctx context.Context) (sum int, err error) {
	for _, p := range r {
		if err := p.Say("look"); err != nil {
			return 0, err
		}
		text, err := p.Hear(ctx, "alive")
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (r idleRunners) stop() {
	for _, p := range r {
		p.Stop()
	}
}

// runIdleRunners is the child: DIR SOURCE.
func runIdleRunners(args []string) error {
	if len(args) != 2 || net.ParseIP(args[1]) == nil {
		return fmt.Errorf("a child needs a folder and an address, got %q", args)
	}
	a, err := openAuthority(args[0])
	if err != nil {
		return err
	}
	h := &idleHost{authority: a, trust: a.pool(), source: &net.TCPAddr{IP: net.ParseIP(args[1])}}
	return child.Orders(h.obey)
}

// idleHost is the child's runners.
type idleHost struct {
	authority *authority
	trust     *x509.CertPool
	source    *net.TCPAddr
	runners   []idleRunner
	alive     atomic.Int64
	end       context.CancelFunc // of the connections; nil = there are none
	running   sync.WaitGroup
}

// idleRunner is one of them.
type idleRunner struct {
	pool     int
	instance string
	tls      *tls.Config
}

func (h *idleHost) obey(order string, words []string) error {
	switch {
	case order == "runner" && len(words) == 2:
		return h.add(words[0], words[1])
	case order == "prepare": // all that was said before has been done
		child.Answer("ready")
	case order == "connect" && len(words) == 2:
		h.drop() // what the other end has ended already
		if err := h.connect(words[0], words[1]); err != nil {
			return err
		}
		child.Answer("connected")
	case order == "look":
		child.Answer("alive", h.alive.Load())
	case order == "drop":
		h.drop()
		child.Answer("dropped")
	default:
		return fmt.Errorf("unknown order %s %q", order, words)
	}
	return nil
}

func (h *idleHost) add(pool, instance string) error {
	n, err := strconv.Atoi(pool)
	if err != nil {
		return err
	}
	cert, err := h.authority.issue(int64(len(h.runners)+10), instance)
	if err != nil {
		return err
	}
	h.runners = append(h.runners, idleRunner{n, instance, &tls.Config{
		RootCAs: h.trust, Certificates: []tls.Certificate{cert}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
	}})
	return nil
}

// connect returns once all are connected.
func (h *idleHost) connect(how, addr string) error {
	ctx, end := context.WithCancel(context.Background())
	h.end = end
	turns := make(chan struct{}, maxHandshakes)
	failed := make(chan error, len(h.runners))
	var connected sync.WaitGroup
	connected.Add(len(h.runners))
	go func() {
		for i := range h.runners {
			turns <- struct{}{}
			h.running.Go(func() {
				failed <- h.hold(ctx, &h.runners[i], how, addr, func() {
					h.alive.Add(1)
					<-turns
					connected.Done()
				})
				h.alive.Add(-1)
			})
		}
	}()
	all := make(chan struct{})
	go func() { connected.Wait(); close(all) }()
	select {
	case <-all:
		return nil
	case err := <-failed:
		return fmt.Errorf("connecting over %s: %w", how, err)
	}
}

func (h *idleHost) drop() {
	if h.end != nil {
		h.end()
		h.running.Wait()
		h.end = nil
	}
}

// hold connects a runner, says so, and returns when the connection has ended.
func (h *idleHost) hold(ctx context.Context, r *idleRunner, how, addr string, connected func()) error {
	if how == overGRPC {
		return h.register(ctx, r, addr, connected)
	}
	conn, err := h.dial(ctx, addr)
	if err != nil {
		return err
	}
	if how == overTLS {
		secured := tls.Client(conn, r.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return errors.Join(err, conn.Close())
		}
		conn = secured
	}
	connected()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, err = conn.Read(make([]byte, 1))
	return errors.Join(err, conn.Close())
}

func (h *idleHost) dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: h.source, Timeout: connectTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// register is hold at a control plane.
func (h *idleHost) register(ctx context.Context, r *idleRunner, addr string, connected func()) error {
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(credentials.NewTLS(r.tls)), grpc.WithContextDialer(h.dial),
		grpc.WithDisableServiceConfig(), grpc.WithReadBufferSize(0),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	m := &steadyMachine{pool: r.pool, instance: r.instance, registered: connected, assigned: make(chan *runnerv1.Assign, maxWaitingAssigns)}
	return errors.Join(m.serve(conn), conn.Close())
}
