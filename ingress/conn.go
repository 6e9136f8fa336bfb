package ingress

import (
	"io"
	"net"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// pipeCaller is the caller of a session whose other side reads and writes bytes.
type pipeCaller struct{ pipe net.Conn }

// Send gives what the job says to whoever reads. When it has said all, that one sees the
// end of the connection: a pipe can't be closed by halves.
func (c pipeCaller) Send(f *debugv1.Frame) error {
	switch f := f.GetFrame().(type) {
	case *debugv1.Frame_Data:
		_, err := c.pipe.Write(f.Data)
		return err
	case *debugv1.Frame_End:
		return c.pipe.Close()
	default:
		return nil
	}
}

// Recv waits for what is written.
func (c pipeCaller) Recv() (*debugv1.Frame, error) {
	piece := make([]byte, MaxPieceBytes/2)
	n, err := c.pipe.Read(piece)
	switch {
	case n > 0:
		return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: piece[:n]}}, nil
	case err != nil:
		return nil, io.EOF // closed, from either side
	default:
		return &debugv1.Frame{Frame: &debugv1.Frame_Data{}}, nil
	}
}
