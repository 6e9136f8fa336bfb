package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// DefaultGrace is how long calls may take to end after a stop was asked for.
// Streams of runners never end by themselves; they are cut then, and runners
// connect to another replica.
const DefaultGrace = 10 * time.Second

// Endpoint is an address and what is served there.
type Endpoint struct {
	setting string // "listen.api": named in errors
	address string
	serve   func(net.Listener) error
	stop    func()           // gracefully; returns when all calls have ended
	kill    func()           // at once
	closed  func(error) bool // the error of serve after a stop
}

// GRPC serves s at address; setting names it in errors.
func GRPC(setting, address string, s *grpc.Server) Endpoint {
	return Endpoint{
		setting: setting, address: address,
		serve: s.Serve, stop: s.GracefulStop, kill: s.Stop,
		closed: func(err error) bool { return errors.Is(err, grpc.ErrServerStopped) },
	}
}

// HTTP serves handler at address, with TLS unless tlsConfig is nil.
func HTTP(setting, address string, handler http.Handler, tlsConfig *tls.Config) Endpoint {
	return endpointOf(setting, address, newHTTPServer(handler), tlsConfig)
}

// maxStreamHeaderBytes bounds the headers of what passes through [bytes]: GitLab's own
// front takes as much, and its cookies are long.
const maxStreamHeaderBytes = 64 << 10

// Streaming serves handler at address without a limit on how long a request or its
// answer may take: bodies of any size pass through, and tunnels stay open.
func Streaming(setting, address string, handler http.Handler, tlsConfig *tls.Config) Endpoint {
	s := newHTTPServer(handler)
	s.ReadTimeout, s.WriteTimeout, s.MaxHeaderBytes = 0, 0, maxStreamHeaderBytes
	return endpointOf(setting, address, s, tlsConfig)
}

func endpointOf(setting, address string, s *http.Server, tlsConfig *tls.Config) Endpoint {
	return Endpoint{
		setting: setting, address: address,
		serve: func(l net.Listener) error {
			if tlsConfig != nil {
				l = tls.NewListener(l, tlsConfig)
			}
			return s.Serve(l)
		},
		stop:   func() { _ = s.Shutdown(context.Background()) }, // kill ends it when the grace is over
		kill:   func() { _ = s.Close() },
		closed: func(err error) bool { return errors.Is(err, http.ErrServerClosed) },
	}
}

// Bound is endpoints whose addresses are taken and which do not serve yet.
type Bound struct {
	endpoints []Endpoint
	listeners []net.Listener
}

// Listen takes all addresses, or none: a control plane that serves half of what
// it should is worse than one that says what is wrong.
func Listen(ctx context.Context, endpoints ...Endpoint) (*Bound, error) {
	b := &Bound{endpoints: endpoints}
	var errs []error
	for _, e := range endpoints {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", e.address)
		if err != nil {
			errs = append(errs, listenError(e, err))
			continue
		}
		b.listeners = append(b.listeners, l)
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, b.Close())...)
	}
	return b, nil
}

func listenError(e Endpoint, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %s is in use by another program; stop it or set %s to another address (%w)", e.setting, e.address, e.setting, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s: %s is not an address of this machine; set %s to one of its own (%w)", e.setting, e.address, e.setting, syscall.EADDRNOTAVAIL)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: not allowed to listen on %s; set %s to a port above 1023 (%w)", e.setting, e.address, e.setting, os.ErrPermission)
	default:
		return fmt.Errorf("%s: cannot listen on %s: %w", e.setting, e.address, err)
	}
}

// Addr is the address of the endpoint with that setting, with its real port if
// 0 was asked for; nil if there is none.
func (b *Bound) Addr(setting string) net.Addr {
	for i, e := range b.endpoints {
		if e.setting == setting {
			return b.listeners[i].Addr()
		}
	}
	return nil
}

// Close gives the addresses back. Serve does so by itself.
func (b *Bound) Close() error {
	var errs []error
	for _, l := range b.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Serve serves until ctx ends or an endpoint fails, then stops all of them: calls
// have grace to end, then they are cut. It returns nil after a stop by ctx, and
// only when no goroutine of its own is left.
func (b *Bound) Serve(ctx context.Context, grace time.Duration) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for i, e := range b.endpoints {
		wg.Go(func() {
			if err := e.serve(b.listeners[i]); err != nil && !e.closed(err) {
				fail(&endpointError{e.setting, err})
			}
		})
	}
	<-ctx.Done()
	b.stop(grace)
	wg.Wait()
	var failed *endpointError
	if errors.As(context.Cause(ctx), &failed) {
		return failed
	}
	return nil
}

// stop stops all endpoints within grace.
func (b *Bound) stop(grace time.Duration) {
	late := time.AfterFunc(grace, func() {
		for _, e := range b.endpoints {
			e.kill()
		}
	})
	defer late.Stop()
	var wg sync.WaitGroup
	for _, e := range b.endpoints {
		wg.Go(e.stop)
	}
	wg.Wait()
}

type endpointError struct {
	setting string
	err     error
}

func (e *endpointError) Error() string { return e.setting + ": serving failed: " + e.err.Error() }

func (e *endpointError) Unwrap() error { return e.err }
