package shell

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// SocketDirName is the environment variable that tells a script where to make the unix
// sockets that others may reach.
const SocketDirName = "SPILLWAY_SOCKET_DIR"

const (
	// MaxSocketNameBytes bounds the name of a socket [bytes].
	MaxSocketNameBytes = 64
	// maxSocketDirBytes bounds the path of the directory [bytes]: sun_path of unix(7) has
	// 108 with the NUL, and the name and a slash must fit.
	maxSocketDirBytes = 108 - 1 - 1 - MaxSocketNameBytes
	// socketWithin bounds a connect, which waits while the backlog is full.
	socketWithin = 5 * time.Second
)

// The reasons why there is no socket, for errors.Is.
var (
	ErrNoSockets  = errors.New("this script has no socket directory")
	ErrSocketName = fmt.Errorf("a socket's name is 1 to %d of a-z, 0-9, - and _", MaxSocketNameBytes)
	ErrNoSocket   = errors.New("there is no such socket")
)

var socketName = regexp.MustCompile(`^[a-z0-9_-]{1,` + strconv.Itoa(MaxSocketNameBytes) + `}$`)

// socketDir is the private directory for a script's sockets. It is held open, so that what
// the script puts in its place can't lead anywhere else.
type socketDir struct {
	path string
	held *os.File
}

// makeSocketDir makes it in the run's own directory, or where a path is short enough.
func makeSocketDir(dir *workDir) (*socketDir, error) {
	path := filepath.Join(dir.root, "s")
	var err error
	if len(path) <= maxSocketDirBytes {
		err = os.Mkdir(path, 0o700)
	} else {
		path, err = os.MkdirTemp("/tmp", "sw-")
	}
	if err != nil {
		return nil, fmt.Errorf("make the socket directory: %w", err)
	}
	held, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the socket directory: %w", err), os.RemoveAll(path))
	}
	return &socketDir{path, held}, nil
}

// dial connects to a socket that is in the directory itself: it is taken hold of without
// following a link, looked at, and connected to by what was taken hold of.
func (s *socketDir) dial(name string) (net.Conn, error) {
	if !socketName.MatchString(name) {
		return nil, fmt.Errorf("%.80q: %w", name, ErrSocketName)
	}
	fd, err := unix.Openat(int(s.held.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrNoSocket, err)
	}
	defer unix.Close(fd) // O_PATH: nothing can be lost
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s: %w: it is something else", name, ErrNoSocket)
	}
	conn, err := (&net.Dialer{Timeout: socketWithin}).Dial("unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: nobody listens on it", name, ErrNoSocket)
	}
	return conn, nil
}

func (s *socketDir) remove() error {
	return errors.Join(s.held.Close(), os.RemoveAll(s.path))
}
