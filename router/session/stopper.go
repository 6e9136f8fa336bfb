package session

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stopper ends a stream from outside of its handler. gRPC has no call for that: a
// handler that waits in Recv comes back when its stream ends, and the stream ends
// when the handler returns. The way out is to write the stream's status from here,
// which wakes the handler too. The alternative would be a second goroutine for each
// of thousands of idle streams.
type stopper struct {
	stream statusWriter
	cause  atomic.Pointer[error]
}

// statusWriter ends a stream with a status: gRPC's transport, or Attached.
type statusWriter interface {
	WriteStatus(st *status.Status) error
}

var errForeignTransport = status.Error(codes.Internal, "this server's transport can't end a stream")

// newStopper returns the stopper of the stream that ctx belongs to. It fails on a
// transport other than gRPC's own.
func newStopper(ctx context.Context) (*stopper, error) {
	s := &stopper{}
	var ok bool
	if s.stream, ok = grpc.ServerTransportStreamFromContext(ctx).(statusWriter); !ok {
		return nil, errForeignTransport
	}
	return s, nil
}

// stop ends the stream; err becomes its status. Only the first call counts. It
// does not wait.
func (s *stopper) stop(err error) {
	if s.cause.CompareAndSwap(nil, &err) {
		// It fails only when the connection is gone, which ends the stream too.
		_ = s.stream.WriteStatus(status.Convert(err))
	}
}

// ended is the status of a stream whose handler returns with err: the reason for
// which it was stopped comes before what that did to a Recv or Send.
func (s *stopper) ended(err error) error {
	if cause := s.cause.Load(); cause != nil {
		return *cause
	}
	return endedWith(err)
}

// endedWith is the status for what ended a Recv or Send.
func endedWith(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled:
		return status.Error(codes.Canceled, "the caller left")
	}
	if _, isStatus := status.FromError(err); isStatus {
		return err
	}
	return status.Error(codes.Unavailable, "the stream broke")
}
