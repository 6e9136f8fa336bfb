package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Store is the shared state. It is safe for concurrent use.
type Store struct {
	rdb      redis.UniversalClient
	opt      Options
	now      func() time.Time // local time; the embedded server's clock as well
	embedded *embeddedServer  // nil with a real Redis

	closing    context.Context // done when Close begins
	close      context.CancelFunc
	background sync.WaitGroup // the goroutines of subscriptions

	requirements requirementCache
	queued       queuedEstimate
	ages         atomic.Pointer[countedAges]
	sweep        sweepCursor
}

// Open connects to Redis and fails if none answers.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := newStore(connect(o), o, time.Now)
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("store: no usable Redis at %s: %w (start it, correct the address, the user or the TLS settings, or use the embedded store)",
			strings.Join(o.Addrs, ", "), err), s.Close())
	}
	return s, nil
}

func newStore(rdb redis.UniversalClient, o Options, now func() time.Time) *Store {
	closing, stop := context.WithCancel(context.Background())
	return &Store{rdb: rdb, opt: o, now: now, closing: closing, close: stop}
}

// noMaintenance turns off a feature of a vendor's servers, for which the client would
// look up the name of the server on its own.
var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// The client writes what it meets to stderr, past the program's own log, once for
// each attempt. Here every failure comes back as an error, so nothing is hidden.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect makes the client. Nothing is sent twice by it: a repeated write is the
// caller's decision, who knows what may be repeated.
func connect(o Options) redis.UniversalClient {
	u := &redis.UniversalOptions{
		Addrs: o.Addrs, MasterName: o.MasterName, DB: o.Database,
		Username: o.Username, Password: o.Password,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		Dialer:                dialer(o),
		Protocol:              2, // RESP3 buys nothing here
		DisableIdentity:       true,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		// Dialing gets half of the time: when it fails, that is known, and known to
		// have written nothing, before the operation's own deadline blurs it.
		DialTimeout:   o.Timeout / 2,
		DialerRetries: 1,
		PoolTimeout:   o.Timeout / 2,
		ReadTimeout:   o.Timeout,
		WriteTimeout:  o.Timeout,
		PoolSize:      o.PoolSize,
		// Pipelines carry nearly everything; a second pool for them would only
		// double the connections.
		PipelinePoolSize:         -1,
		ReadBufferSize:           64 << 10,
		WriteBufferSize:          64 << 10,
		MaintNotificationsConfig: noMaintenance,
	}
	switch {
	case o.MasterName != "":
		return redis.NewFailoverClient(u.Failover())
	case o.Cluster:
		return redis.NewClusterClient(u.Cluster())
	default:
		return redis.NewClient(u.Simple())
	}
}

// dialer makes the connections, with TLS as it is at that time; nil: the client's own.
func dialer(o Options) func(ctx context.Context, network, address string) (net.Conn, error) {
	if o.TLS == nil {
		return nil
	}
	plain := &net.Dialer{Timeout: o.Timeout / 2, KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&tls.Dialer{NetDialer: plain, Config: o.TLS()}).DialContext(ctx, network, address)
	}
}

// Ping asks whether the store answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, done := s.begin(ctx)
	defer done()
	return failed("ping", s.rdb.Ping(ctx).Err(), reading)
}

// Close ends the subscriptions and the connections. An embedded store is gone
// with all that it held.
func (s *Store) Close() error {
	s.close()
	s.background.Wait()
	err := s.rdb.Close()
	if s.embedded != nil {
		s.embedded.server.Close()
	}
	if err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("store: closing: %w", err)
	}
	return nil
}

// begin gives an operation its deadline.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.embedded != nil {
		s.embedded.follow()
	}
	return context.WithTimeout(ctx, s.opt.Timeout)
}
