package jobrouter

import (
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
)

// serveRelay answers another replica that passes a runner's question on.
func (s *Service) serveRelay(_ any, stream grpc.ServerStream) (err error) {
	c := &call{stream: stream}
	defer func() {
		if v := recover(); v != nil {
			s.desk.events.panicked(v, debug.Stack())
			err = status.Error(codes.Internal, "the job router failed")
		}
	}()
	w, told := s.open(c)
	if w == nil {
		return told
	}
	leave, ok := s.desk.enter()
	if !ok {
		return status.Error(codes.ResourceExhausted, "too many questions are open")
	}
	defer leave()
	w.relayed = true
	ctx, withdraw := context.WithCancelCause(stream.Context())
	defer withdraw(nil)
	words := make(chan delivery, 1)
	go listen(stream, withdraw, words)
	return s.tellReplica(c, w, s.desk.wait(ctx, w, limitOf(stream.Context())), words)
}

// tellReplica gives the other replica its answer, and settles the job in it by what that
// says.
func (s *Service) tellReplica(c *call, w *waiter, a answer, words <-chan delivery) error {
	switch a.verdict {
	case direct:
		if s.desk.Draining() {
			return errGoing
		}
		return status.Error(codes.PermissionDenied, "GitLab does not take this token")
	case going:
		return errGoing
	case moved:
		return status.Error(codes.FailedPrecondition, "this replica does not poll this token")
	case nobody, noJob:
		a.body, a.requestID = nil, ""
		return c.send(a)
	case aJob:
	}
	if a.requestID == "" {
		a.requestID = w.requestID
	}
	if err := c.send(a); err != nil {
		a.settle(unwritten)
		return err
	}
	a.settle(<-words)
	return nil
}

// errWithdrawn is why a relayed question isn't waited for any longer.
var errWithdrawn = errors.New("the other replica has withdrawn the question")

// listen hears what the other replica says after its question, until it says what became
// of the job, or nothing more.
func listen(stream grpc.ServerStream, withdraw context.CancelCauseFunc, words chan<- delivery) {
	for {
		m := new(jobrouterpb.GetJobRequest)
		if err := stream.RecvMsg(m); err != nil {
			withdraw(err)
			words <- unknown
			return
		}
		switch string(m.GetJobRequest()) {
		case wordWithdraw:
			withdraw(errWithdrawn)
		case wordDelivered:
			words <- arrived
			return
		case wordReturned:
			words <- unwritten
			return
		case wordEnded:
			words <- broken
			return
		}
	}
}

// limitOf is how long the other replica lets its question be held; 0 = it doesn't say.
func limitOf(ctx context.Context) time.Duration {
	md, _ := metadata.FromIncomingContext(ctx)
	ms, err := strconv.ParseInt(first(md, metaLimit), 10, 32)
	if err != nil || ms <= 0 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
