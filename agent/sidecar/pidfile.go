package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPIDBytes bounds a pid file [bytes]; a longer one is some other file.
	maxPIDBytes = 64
	// pidSlack is how much younger than its pid file a process may seem, for the clocks
	// are read one after the other.
	pidSlack = 2 * time.Second
)

// pidFile is a runner whose process id is in a file.
type pidFile struct {
	path    string
	restart restart
}

func (p *pidFile) look(context.Context) (string, error) {
	pid, written, err := p.read()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it was never started, or took its file away
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	s, ok := readStat(pid)
	if !ok || s.ended {
		return "", nil
	}
	age, err := s.age()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if age+pidSlack < time.Since(written) {
		return "", nil // the file is a dead runner's, and its number somebody else's by now
	}
	return nameOf(pid, s), nil
}

// read returns the process id and when it was written.
func (p *pidFile) read() (pid int, written time.Time, err error) {
	file, err := os.Open(p.path)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("open the pid file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("look at the pid file: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPIDBytes+1))
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("read the pid file: %w", err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || len(content) > maxPIDBytes || pid <= 1 {
		return 0, time.Time{}, fmt.Errorf("%s: not a process id", p.path)
	}
	return pid, info.ModTime(), nil
}

// quit takes hold of the process before it looks at which it is (FindProcess opens a
// pidfd), so that no other one that got its number can be meant.
func (p *pidFile) quit(_ context.Context, name string) error {
	pid, _, err := p.read()
	if err != nil {
		return err
	}
	found, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("find process %d: %w", pid, err)
	}
	defer found.Release() //nolint:errcheck // closes a pidfd
	if s, ok := readStat(pid); !ok || nameOf(pid, s) != name {
		return fmt.Errorf("process %d is another one by now", pid)
	}
	if err := found.Signal(unix.SIGQUIT); err != nil {
		return fmt.Errorf("send SIGQUIT to process %d: %w", pid, err)
	}
	return nil
}

func (*pidFile) hold(context.Context) error        { return nil }
func (p *pidFile) start(ctx context.Context) error { return p.restart.run(ctx) }
func (*pidFile) close(time.Duration)               {}
