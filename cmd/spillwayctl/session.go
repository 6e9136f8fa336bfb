package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// sessionPiece is what is read at a time for the job [bytes].
const sessionPiece = 32 << 10

// session is a session with a job.
type session struct {
	rpc    debugv1.DebugService_TunnelClient
	cancel context.CancelFunc

	sending sync.Mutex // of rpc.Send
}

// openSession opens a session, and waits until its target is there.
func (a *app) openSession(ctx context.Context, c client, job string, target *debugv1.Target) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := make(chan struct{})
	timer := time.AfterFunc(a.timeout, func() {
		close(late)
		cancel()
	})
	rpc, err := c.debug.Tunnel(ctx)
	if err == nil {
		// What goes wrong shows in Recv.
		_ = rpc.Send(&debugv1.Frame{Frame: &debugv1.Frame_Open{Open: &debugv1.Open{JobId: job, Target: target}}})
		_, err = rpc.Recv()
	}
	if !timer.Stop() {
		<-late
		err = status.Error(codes.DeadlineExceeded, "no answer")
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &session{rpc: rpc, cancel: cancel}, nil
}

func (s *session) send(f *debugv1.Frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.rpc.Send(f)
}

// feed sends what r has, and that it has no more.
func (s *session) feed(r io.Reader) {
	piece := make([]byte, sessionPiece)
	for {
		n, err := r.Read(piece)
		if n > 0 && s.send(&debugv1.Frame{Frame: &debugv1.Frame_Data{Data: piece[:n]}}) != nil {
			return
		}
		if err != nil {
			_ = s.send(&debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}}) // or the session is over
			return
		}
	}
}

// carry carries bytes both ways until the session is over. said is called when the job has
// said all.
func (s *session) carry(r io.Reader, w io.Writer, said func()) error {
	defer s.cancel()
	go s.feed(r)
	for {
		f, err := s.rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return sessionEnd(err)
		}
		switch f := f.GetFrame().(type) {
		case *debugv1.Frame_Data:
			if _, err := w.Write(f.Data); err != nil {
				return nil // whoever read it has left
			}
		case *debugv1.Frame_End:
			said()
		default:
		}
	}
}

// sessionEnd is why an open session has ended: its deadlines are the control plane's, and
// not those of one request.
func sessionEnd(err error) error {
	if s := status.Convert(err); s.Code() == codes.DeadlineExceeded {
		return refusedf("%s", s.Message())
	}
	return err
}
