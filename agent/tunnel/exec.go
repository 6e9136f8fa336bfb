package tunnel

import (
	"errors"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/agent/shell"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// outputWithin is how long the end of a command's output is waited for after all that it
// had started was ended: what a pipe holds is there at once, and a process that escaped
// may hold it for ever.
const outputWithin = 2 * time.Second

// signals are those that may be sent.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM,
}

// exec is a session with a command.
func (s *session) exec(m *debugv1.Exec) error {
	command := shell.Command{Args: m.GetCommand()}
	if m.GetTty() {
		size := sizeOf(m.GetSize())
		command.TTY, command.Term = &size, m.GetTerm()
	}
	x, err := s.place.Start(command)
	switch {
	case errors.Is(err, shell.ErrEnded):
		return errEnded
	case errors.Is(err, shell.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		return status.Errorf(codes.Unavailable, "the machine can't start it: %v", err)
	}
	defer x.Close()
	if err := s.begin(func(f *debugv1.Frame) { input(x, f) }); err != nil {
		x.Leave()
		return nil // the other side has left
	}
	return s.follow(x)
}

// input gives the command what the other side says.
func input(x *shell.Process, f *debugv1.Frame) {
	switch f := f.GetFrame().(type) {
	case *debugv1.Frame_Data:
		_, _ = x.Write(f.Data) // it reads no more: that is its own business
	case *debugv1.Frame_End:
		_ = x.CloseInput() // as above
	case *debugv1.Frame_Size:
		x.Resize(sizeOf(f.Size))
	case *debugv1.Frame_Signal:
		if signal, known := signals[f.Signal.GetName()]; known {
			x.Signal(signal)
		}
	default:
	}
}

func sizeOf(m *debugv1.Size) shell.Size {
	within := func(n int32) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }
	return shell.Size{Columns: within(m.GetColumns()), Rows: within(m.GetRows())}
}

// follow passes on what the command prints, and how it ends.
func (s *session) follow(x *shell.Process) error {
	var printing sync.WaitGroup
	printing.Go(func() {
		s.print(x, x.Stdout, func(b []byte) *debugv1.Frame { return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: b}} })
	})
	if x.Stderr != nil {
		printing.Go(func() {
			s.print(x, x.Stderr, func(b []byte) *debugv1.Frame { return &debugv1.Frame{Frame: &debugv1.Frame_Stderr{Stderr: b}} })
		})
	}
	printed := make(chan struct{})
	go func() {
		printing.Wait()
		close(printed)
	}()
	select {
	case <-x.Done():
		for _, f := range []*os.File{x.Stdout, x.Stderr} {
			_ = f.SetReadDeadline(time.Now()) // wakes print; a nil file is fine
		}
	case <-s.left:
	case <-s.stuck:
	case <-s.place.Done():
	}
	select {
	case <-printed:
	case <-s.left:
	case <-s.stuck:
	case <-s.place.Done():
	}
	x.Leave()
	<-x.Done()
	select {
	case <-s.stuck: // which the end of the command may have ended
		return errStuck
	default:
	}
	select {
	case <-s.left:
		return nil
	case <-s.place.Done():
		return errEnded
	default:
	}
	_ = s.send(&debugv1.Frame{Frame: &debugv1.Frame_Exit{Exit: &debugv1.Exit{Code: int32(x.ExitCode())}}}) // or the other side has left
	return nil
}

// print sends what comes from one of the command's outputs, to its end.
func (s *session) print(x *shell.Process, f *os.File, frame func([]byte) *debugv1.Frame) {
	woken := false
	read := func(b []byte) (int, error) {
		for {
			select {
			case <-x.Done():
				_ = f.SetReadDeadline(time.Now().Add(outputWithin)) // it fails as the read does
			default:
			}
			n, err := f.Read(b)
			if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || woken {
				return n, err
			}
			woken = true
		}
	}
	s.pass(read, frame)
}
