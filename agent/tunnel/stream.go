package tunnel

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/agent/shell"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// portWithin bounds the connection to a port on the same machine.
const portWithin = 5 * time.Second

// loopbacks are where a job's server may listen.
var loopbacks = []string{"127.0.0.1", "::1"}

// port is a session with a TCP port on the machine's loopback.
func (s *session) port(number int32) error {
	if number < 1 || number > 65535 {
		return status.Errorf(codes.InvalidArgument, "there is no port %d", number)
	}
	dialer := net.Dialer{Timeout: portWithin}
	var errs []error
	for _, host := range loopbacks {
		conn, err := dialer.DialContext(s.ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(number))))
		if err == nil {
			return s.stream(conn)
		}
		errs = append(errs, err)
	}
	return status.Errorf(codes.FailedPrecondition, "nothing answers on port %d of the job's loopback (%v)", number, errs[0])
}

// socket is a session with a unix socket of the job.
func (s *session) socket(name string) error {
	conn, err := s.place.Socket(name)
	switch {
	case errors.Is(err, shell.ErrSocketName):
		return status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		return status.Errorf(codes.FailedPrecondition, "socket %s in $%s", fmt.Sprint(err), shell.SocketDirName)
	}
	return s.stream(conn)
}

// closeWriter is a connection of which one half can be closed.
type closeWriter interface {
	net.Conn
	CloseWrite() error
}

// stream carries bytes both ways until both sides have said all, the other side has left,
// or the job has ended.
func (s *session) stream(conn net.Conn) error {
	defer func() { _ = conn.Close() }() // what it took it has
	said := make(chan struct{})         // closed: nothing more goes to the target
	sayAll := sync.OnceFunc(func() { close(said) })
	take := func(f *debugv1.Frame) {
		switch f := f.GetFrame().(type) {
		case *debugv1.Frame_Data:
			if _, err := conn.Write(f.Data); err != nil {
				sayAll() // it takes no more; what it still says is of use
			}
		case *debugv1.Frame_End:
			if half, ok := conn.(closeWriter); ok {
				_ = half.CloseWrite() // it is gone, which reading shows
			}
			sayAll()
		default:
		}
	}
	if err := s.begin(take); err != nil {
		return nil // the other side has left
	}
	heard := make(chan struct{}) // closed: nothing more comes from the target
	go func() {
		defer close(heard)
		s.pass(conn.Read, func(b []byte) *debugv1.Frame { return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: b}} })
		_ = s.send(&debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}}) // or the other side has left
	}()
	for said, heard := said, heard; said != nil || heard != nil; {
		select {
		case <-said:
			said = nil
		case <-heard:
			heard = nil
		case <-s.left:
			return nil
		case <-s.stuck:
			return errStuck
		case <-s.place.Done():
			return errEnded
		}
	}
	return nil
}

// pass sends what read gives until that fails.
func (s *session) pass(read func([]byte) (int, error), frame func([]byte) *debugv1.Frame) {
	piece := make([]byte, pieceBytes)
	for {
		n, err := read(piece)
		if n > 0 && s.send(frame(piece[:n])) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
