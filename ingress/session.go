package ingress

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

const (
	// MaxPieceBytes bounds the data of one frame [bytes].
	MaxPieceBytes = 64 << 10
	// maxSignalBytes bounds the name of a signal [bytes]: signals are not counted.
	maxSignalBytes = 16
)

// caller is the person's end of a session. Send and Recv are called from one goroutine
// each, and may go on for a moment after the session has ended.
type caller interface {
	Send(*debugv1.Frame) error
	Recv() (*debugv1.Frame, error) // io.EOF: it says nothing more
}

var (
	errCallerFrame  = status.Error(codes.InvalidArgument, "after its open, a caller sends data, end, size and signal")
	errSignal       = status.Errorf(codes.InvalidArgument, "a signal's name has at most %d bytes", maxSignalBytes)
	errMachineFrame = status.Error(codes.Internal, "the machine of the job has broken the rules of a session")
	errCallerLeft   = status.Error(codes.Canceled, "the caller has left")
	errShutDown     = status.Error(codes.Unavailable, "this replica is going away; try another one, or again in a moment")
)

// carry joins the two ends until one of them has ended, or a limit is reached. It returns
// nil when all was said, and otherwise why the session was ended; both ends are left to
// the one who called.
type carry struct {
	limits Limits
	caller caller
	tunnel Tunnel

	up, down atomic.Int64 // bytes that were passed on to the tunnel and to the caller
	total    atomic.Int64 // with those that were not any more
	passed   atomic.Int64 // when the last of them did [ns of the session's age]
	began    time.Time
}

// run is called once.
func (c *carry) run(ctx context.Context) error {
	c.began = time.Now()
	ends := make(chan error, 2)
	go func() { ends <- c.upward() }()
	go func() { ends <- c.downward() }()
	whole := time.NewTimer(c.limits.MaxDuration)
	defer whole.Stop()
	idle := time.NewTimer(c.limits.IdleTimeout)
	defer idle.Stop()
	over := c.tunnel.Over()
	for said := 0; ; {
		select {
		case err := <-ends:
			if said++; err != nil || said == 2 {
				return c.why(err)
			}
		case <-over:
			if err := c.tunnel.Cause(); err != nil {
				return err
			}
			over = nil // what it said before may still be on its way to the caller
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-whole.C:
			return status.Errorf(codes.DeadlineExceeded, "the session was open for %s, which is as long as it may (debug.max_duration)", c.limits.MaxDuration)
		case <-idle.C:
			left := c.limits.IdleTimeout - (time.Since(c.began) - time.Duration(c.passed.Load()))
			if left <= 0 {
				return status.Errorf(codes.DeadlineExceeded, "nothing has passed for %s (debug.idle_timeout)", c.limits.IdleTimeout)
			}
			idle.Reset(left)
		}
	}
}

// errOver ends a direction after which nothing can come in the other one.
var errOver = errors.New("all was said")

func (c *carry) why(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// upward carries what the caller says. nil: it has said all.
func (c *carry) upward() error {
	for {
		f, err := c.caller.Recv()
		if errors.Is(err, io.EOF) {
			f = &debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}}
		} else if err != nil {
			return errCallerLeft
		}
		switch f := f.GetFrame().(type) {
		case *debugv1.Frame_Data:
			if err := c.count(&c.up, len(f.Data)); err != nil {
				return err
			}
		case *debugv1.Frame_End, *debugv1.Frame_Size, *debugv1.Frame_Signal:
		default:
			return errCallerFrame
		}
		if more, err := c.pass(f); !more {
			return err
		}
		if f.GetEnd() != nil {
			return c.awaitLeave(err != nil)
		}
	}
}

// pass gives the tunnel what the caller says. more: it takes more of that. Otherwise err
// is why; nil: it may still say something itself.
func (c *carry) pass(f *debugv1.Frame) (more bool, err error) {
	if len(f.GetSignal().GetName()) > maxSignalBytes {
		return false, errSignal
	}
	if err = c.tunnel.Send(f); errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// awaitLeave goes on listening to a caller that has said its end: that it leaves shows
// nowhere else. One whose stream has ended is heard no more.
func (c *carry) awaitLeave(ended bool) error {
	if ended {
		return nil
	}
	for {
		f, err := c.caller.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errCallerLeft
		case f.GetData() != nil:
			return errCallerFrame
		case f.GetSize() != nil, f.GetSignal() != nil:
			if more, err := c.pass(f); !more {
				return err
			}
		}
	}
}

// downward carries what the job says. It ends with errOver when that was all.
func (c *carry) downward() error {
	for {
		f, err := c.tunnel.Recv()
		if errors.Is(err, io.EOF) {
			return errOver
		} else if err != nil {
			return err
		}
		switch f := f.GetFrame().(type) {
		case *debugv1.Frame_Data:
			err = c.count(&c.down, len(f.Data))
		case *debugv1.Frame_Stderr:
			err = c.count(&c.down, len(f.Stderr))
		case *debugv1.Frame_End, *debugv1.Frame_Exit:
		default:
			err = errMachineFrame
		}
		if err != nil {
			return err
		}
		if c.caller.Send(f) != nil {
			return errCallerLeft
		}
		if f.GetExit() != nil {
			return errOver
		}
	}
}

// count notes bytes that are about to be passed on, unless they are too many.
func (c *carry) count(way *atomic.Int64, n int) error {
	switch {
	case n > MaxPieceBytes:
		return status.Errorf(codes.InvalidArgument, "%d bytes in one frame, at most %d are allowed", n, MaxPieceBytes)
	case c.total.Add(int64(n)) > c.limits.MaxBytes:
		return status.Errorf(codes.ResourceExhausted, "the session has carried the %d bytes that it may (debug.max_bytes)", c.limits.MaxBytes)
	}
	way.Add(int64(n))
	c.passed.Store(int64(time.Since(c.began)))
	return nil
}
