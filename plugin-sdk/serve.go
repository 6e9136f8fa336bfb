package pluginsdk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// How long a plugin takes to end. The host kills it 3 s after it has asked, and
// an orphan must be gone 5 s after its host.
const (
	drainTime = 2 * time.Second        // for calls in flight when the plugin is asked to end
	flushTime = 100 * time.Millisecond // for the last answers to reach the host
	closeTime = 2 * time.Second        // for Provider.Close, where the host has not called it
	// orphanTime is all that is left once the host is dead: nobody reads an answer.
	orphanTime = 2 * time.Second
)

// Serve serves p to the host that started this process, and returns when it is
// over; main should return then. It is all that a plugin's main does:
//
//	func main() { pluginsdk.Serve(ec2asg.New()) }
//
// The process ends when the host asks, at SIGTERM, and within 5 s of the death
// of its host. An interrupt from a terminal is the host's to handle and is
// ignored. Standard output carries the handshake, so whatever the provider
// prints there goes to standard error; a print before Serve breaks the start.
// A panic ends the process: the host starts it again with nothing left over.
//
// The host may run the binary from memory, so that nobody can swap it. Then
// os.Executable names no file; a plugin that starts itself starts /proc/self/exe.
// What it starts in its own process group is killed with it.
//
// Started by hand, Serve says so and exits.
func Serve(p Provider) {
	if os.Getenv(CookieKey) != CookieValue {
		fmt.Fprintf(os.Stderr, "%s is a Spillway provider plugin: the control plane starts it.\n"+
			"To try it, run: spillwayctl plugin check %s\n", filepath.Base(os.Args[0]), os.Args[0])
		os.Exit(2)
	}
	nameProcess(filepath.Base(os.Args[0]))
	guardStdout()

	life := newLife(os.Stderr)
	closer := &closeOnce{Provider: p, closed: life.end}
	go life.watchSignals()
	go life.watchParent()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake(),
		VersionedPlugins: Versions(closer),
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn, JSONFormat: true}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return life.serve(grpc.NewServer(append(opts,
				grpc.MaxRecvMsgSize(MaxMessageBytes),
				grpc.MaxSendMsgSize(MaxMessageBytes),
				grpc.UnaryInterceptor(life.count),
			)...))
		},
	})
	// A host that was killed, or a SIGTERM, never called Close.
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := closer.Close(ctx); err != nil {
		fmt.Fprintf(life.stderr, "closing the provider: %v\n", err)
	}
}

// life is how long a served process goes on.
type life struct {
	stderr *os.File     // the real one
	calls  atomic.Int64 // unary calls in flight
	server atomic.Pointer[grpc.Server]
	output sync.Once
	ending sync.Once
}

func newLife(stderr *os.File) *life { return &life{stderr: stderr} }

func (l *life) serve(s *grpc.Server) *grpc.Server {
	l.server.Store(s)
	return s
}

// count is the interceptor that knows what is in flight. It comes before the
// provider's code, and so it also takes back what go-plugin did after the
// handshake: it sends both outputs through the connection, where the last words
// of a plugin that is ending are lost.
func (l *life) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	l.output.Do(func() { os.Stdout, os.Stderr = l.stderr, l.stderr })
	l.calls.Add(1)
	defer l.calls.Add(-1)
	return handle(ctx, req)
}

// end lets the calls in flight finish and then stops the server, upon which
// Serve returns. It returns at once.
func (l *life) end() {
	l.ending.Do(func() {
		go func() {
			l.drain(drainTime)
			l.stop()
		}()
	})
}

// orphaned ends the process without waiting for anything: the host is dead, and
// a write that it did not live to see is the worst that could happen now.
func (l *life) orphaned(why string) {
	fmt.Fprintf(l.stderr, "plugin ends: %s\n", why)
	time.AfterFunc(orphanTime, func() { os.Exit(1) })
	if s := l.server.Load(); s != nil {
		s.Stop() // ends the context of every call
	}
}

// drain waits until no call is in flight, at most d.
func (l *life) drain(d time.Duration) {
	const poll = 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for l.calls.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stop gives the last answers time to leave: go-plugin's own streams never end,
// so that GracefulStop alone would wait for ever.
func (l *life) stop() {
	s := l.server.Load()
	if s == nil {
		os.Exit(0) // asked to end before there was anything to serve
	}
	hard := time.AfterFunc(flushTime, s.Stop)
	defer hard.Stop()
	s.GracefulStop()
}

// closeOnce closes the provider once, whoever asks first, and says when.
type closeOnce struct {
	Provider
	once   sync.Once
	closed func()
	err    error
}

func (c *closeOnce) Close(ctx context.Context) error {
	c.once.Do(func() {
		c.err = c.Provider.Close(ctx)
		c.closed()
	})
	return c.err
}
