package program

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// outlet is our end of an output. A read that comes too late, because this process could
// not look before, does not wait any more, but gets what is there: the last words of a
// program that died are all that says why.
type outlet struct {
	*os.File
	late int // bytes that were read too late
}

// Read implements io.Reader.
func (o *outlet) Read(p []byte) (int, error) {
	n, err := o.File.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || o.late >= maxLateBytes {
		return n, err
	}
	n, err = o.rest(p[:min(len(p), maxLateBytes-o.late)], err)
	o.late += n
	return n, err
}

// rest reads what the pipe holds; none is the error if it holds nothing now.
func (o *outlet) rest(p []byte, none error) (n int, err error) {
	conn, err := o.SyscallConn()
	if err != nil {
		return 0, none
	}
	var failed error
	// Not conn.Read, which looks at the deadline too. The pipe doesn't block.
	err = conn.Control(func(fd uintptr) { n, failed = syscall.Read(int(fd), p) })
	switch {
	case err != nil || failed != nil:
		return 0, none
	case n == 0:
		return 0, io.EOF
	default:
		return n, nil
	}
}
