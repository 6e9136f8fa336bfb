package store

import (
	"cmp"
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// embeddedTimeout is how long one operation may take by default. The server can't be
// away; it can only be slow on a busy machine, and giving up would not make it faster.
const embeddedTimeout = 30 * time.Second

// embeddedServer is the in-process Redis of an embedded store.
type embeddedServer struct {
	server *miniredis.Miniredis
	clock  func() time.Time // nil: the server reads the wall clock itself
}

// follow sets the server's clock before an operation. Expiry follows it, because
// it is computed from the clock whenever a command runs.
func (e *embeddedServer) follow() {
	if e.clock != nil {
		e.server.SetTime(e.clock())
	}
}

// OpenEmbedded starts an in-process Redis that nobody else can reach: it listens
// on no port. Its TIME and its expiry follow the wall clock. It is for one
// replica; all is gone when the process ends.
//
// It is the same code on a slower server (a script costs some ten times as much):
// right for a laptop, tests and small fleets.
func OpenEmbedded() (*Store, error) { return openEmbedded(nil, Options{}) }

// OpenEmbeddedAt is OpenEmbedded with a clock that the caller moves, and bounds
// that the caller sets; what Options says about connections is not used. The clock
// must not go backwards, and may be read from any goroutine.
func OpenEmbeddedAt(clock func() time.Time, o Options) (*Store, error) {
	return openEmbedded(clock, o)
}

func openEmbedded(clock func() time.Time, o Options) (*Store, error) {
	o.Addrs, o.MasterName, o.Cluster, o.Database = []string{"127.0.0.1:0"}, "", false, 0
	o.Timeout = cmp.Or(o.Timeout, embeddedTimeout)
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := &embeddedServer{server: miniredis.NewMiniRedis(), clock: clock}
	e.follow()
	// Without this, nothing would ever expire: miniredis is made for tests that
	// move its expiry by hand.
	e.server.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{
		Addr: o.Addrs[0], Protocol: 2, DisableIdentity: true, MaxRetries: -1,
		ContextTimeoutEnabled: true, PoolSize: o.PoolSize, PipelinePoolSize: -1,
		MaintNotificationsConfig: noMaintenance, ReadTimeout: o.Timeout, PoolTimeout: o.Timeout,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := e.server.Dial()
			if err != nil {
				return nil, err
			}
			return newEagerConn(conn), nil
		},
	})
	now := clock
	if now == nil {
		now = time.Now
	}
	s := newStore(rdb, o, now)
	s.embedded = e
	return s, nil
}

// eagerConn makes writes on an in-memory connection return at once.
//
// Such a connection has no buffer: a client that writes a long pipeline before it
// reads, and a server that answers before it has read all of it, would wait for
// each other for ever. A goroutine hands on what was written; it ends when the
// connection does.
type eagerConn struct {
	net.Conn
	wake chan struct{} // 1 slot

	mu struct {
		sync.Mutex
		unsent []byte
		err    error // why no more can be sent
	}
}

func newEagerConn(conn net.Conn) *eagerConn {
	c := &eagerConn{Conn: conn, wake: make(chan struct{}, 1)}
	go c.send()
	return c
}

func (c *eagerConn) send() {
	for range c.wake {
		c.mu.Lock()
		b, err := c.mu.unsent, c.mu.err
		c.mu.unsent = nil
		c.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := c.Conn.Write(b); err != nil {
			c.fail(err)
			return
		}
	}
}

// Write keeps a copy of b for the goroutine.
func (c *eagerConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return 0, c.mu.err
	}
	c.mu.unsent = append(c.mu.unsent, b...)
	c.poke()
	return len(b), nil
}

// Close ends the goroutine too.
func (c *eagerConn) Close() error {
	c.fail(net.ErrClosed)
	return c.Conn.Close()
}

// SetWriteDeadline does nothing: a write never waits.
func (c *eagerConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the deadline of reads.
func (c *eagerConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *eagerConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.err = err
	c.poke()
}

func (c *eagerConn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
