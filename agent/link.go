package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

const (
	// registerWithin is how long the router may take from the first byte to
	// Registered. Longer than any healthy answer, short enough that a router that
	// accepts and says nothing is left before its machine counts as silent.
	registerWithin = 10 * time.Second
	// leaveWithin is how long the router may take to end the stream after we did.
	leaveWithin = 2 * time.Second
	// outQueueMessages bounds what waits to be written. All results and an answer
	// to every job fit; more means that the router does not read, and a new stream
	// tells it all again.
	outQueueMessages = 2 * MaxUnacked
	// keepaliveEvery finds a connection that died without a word. Routers must
	// allow it.
	keepaliveEvery   = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

var (
	errNotRegistered = fmt.Errorf("the router did not answer the registration within %s", registerWithin)
	errSlowRouter    = fmt.Errorf("the router left %d messages unread", outQueueMessages)
	errOutOfOrder    = errors.New("the router's first message was not Registered")
	errRouterClosed  = errors.New("the router ended the stream")
	errUnread        = fmt.Errorf("the router did not read the last messages within %s", partWithin)
)

// link is one stream to the router, from dialling to its end. The owner alone
// sends to out; it closes out to leave, and cancels to give the link up.
type link struct {
	out    chan *runnerv1.RunnerMessage
	cancel context.CancelCauseFunc
	conn   atomic.Pointer[grpc.ClientConn] // nil while there is none
}

// connection is what the stream is on, for other calls; nil while there is none.
func (l *link) connection() *grpc.ClientConn {
	if l == nil {
		return nil
	}
	return l.conn.Load()
}

// startLink connects in the background and sends register first. What the router
// says comes to inbox; ended gets one error, never nil, after that.
func startLink(ctx context.Context, o *Options, register *runnerv1.RunnerMessage, inbox chan<- *runnerv1.RouterMessage, ended chan<- error) *link {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &link{out: make(chan *runnerv1.RunnerMessage, outQueueMessages), cancel: cancel}
	l.out <- register
	go func() {
		err := l.run(ctx, o, inbox)
		if cause := context.Cause(ctx); cause != nil {
			err = cause // what gRPC makes of it is only "canceled"
		}
		cancel(nil)
		ended <- err
	}()
	return l
}

func (l *link) run(ctx context.Context, o *Options, inbox chan<- *runnerv1.RouterMessage) error {
	token, err := o.Token()
	if err != nil {
		return err
	}
	// A connection for each stream: then there is one backoff, ours, and each
	// attempt asks the name service again.
	conn, err := grpc.NewClient(o.Router, dialOptions(o)...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", o.Router, err)
	}
	defer conn.Close()
	l.conn.Store(conn)

	registering := time.AfterFunc(registerWithin, func() { l.cancel(errNotRegistered) })
	defer registering.Stop()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	streamCtx, endStream := context.WithCancel(ctx)
	defer endStream()
	stream, err := runnerv1.NewRunnerServiceClient(conn).Connect(streamCtx)
	if err != nil {
		return streamError(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write(streamCtx, stream)
	}()
	err = read(ctx, stream, inbox, registering)
	endStream()
	<-written
	return err
}

func dialOptions(o *Options) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS())
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
	}
	if o.Dial != nil {
		options = append(options, grpc.WithContextDialer(o.Dial))
	}
	return options
}

// write sends until the owner closes out or the stream ends. Its own errors tell
// nothing: the reader gets the stream's status.
func (l *link) write(ctx context.Context, stream runnerv1.RunnerService_ConnectClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case m, more := <-l.out:
			if !more {
				_ = stream.CloseSend()
				time.AfterFunc(leaveWithin, func() { l.cancel(errRouterClosed) })
				return
			}
			if stream.Send(m) != nil {
				return
			}
		}
	}
}

// read hands on what the router says, Registered first, until the stream ends.
func read(ctx context.Context, stream runnerv1.RunnerService_ConnectClient, inbox chan<- *runnerv1.RouterMessage, registering *time.Timer) error {
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return streamError(err)
		}
		if first {
			if m.GetRegistered() == nil {
				return errOutOfOrder
			}
			registering.Stop()
		}
		select {
		case inbox <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// streamError says what the end of a stream means.
func streamError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errRouterClosed
	case status.Code(err) == codes.Unauthenticated:
		return fmt.Errorf("%w: %s", ErrUnauthenticated, status.Convert(err).Message())
	default:
		return fmt.Errorf("stream to the router: %w", err)
	}
}
