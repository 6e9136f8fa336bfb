package providers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// socketDir is a host's own directory below the one that hosts share. A killed
// process leaves its socket behind; a killed host leaves its directory, and the
// next host sweeps it. The lock tells which directories belong to hosts that
// live: the kernel takes it back from the dead.
type socketDir struct {
	path string
	lock *os.File
}

const (
	hostDirPattern = "host-"
	lockName       = "lock"
	// socketNameBytes is what our and go-plugin's names add to the host's
	// directory, and maxSocketBytes is what the kernel takes [bytes].
	socketNameBytes = len("/s1234567890/plugin-dir1234567890/plugin1234567890")
	maxSocketBytes  = 107
)

func newSocketDir(parent string) (*socketDir, error) {
	if parent == "" {
		parent = filepath.Join(os.TempDir(), fmt.Sprintf("spillway-%d", os.Getuid()))
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if n := len(parent) + len("/host-1234567890") + socketNameBytes; n > maxSocketBytes {
		return nil, fmt.Errorf("plugin socket directory %s: paths of sockets would have %d bytes, the system allows %d: use a shorter one", parent, n, maxSocketBytes)
	}
	if err := privateDir(parent); err != nil {
		return nil, fmt.Errorf("plugin socket directory: %w", err)
	}
	// Held while we sweep and take our place, so that nobody sweeps a directory
	// whose lock is not taken yet.
	door, err := lockFile(filepath.Join(parent, lockName), syscall.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("plugin socket directory: %w", err)
	}
	defer func() { _ = door.Close() }()
	sweep(parent)
	return ownDir(parent)
}

func ownDir(parent string) (*socketDir, error) {
	path, err := os.MkdirTemp(parent, hostDirPattern)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(path, lockName), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &socketDir{path: path, lock: lock}, nil
}

func (d *socketDir) close() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// privateDir makes path, or checks that nobody else can enter the one that is
// there.
func privateDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case ok && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d", path, owner.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be entered by others (mode %#o): chmod 0700", path, info.Mode().Perm())
	}
	return nil
}

// sweep removes what hosts left that don't live any more.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, hostDirPattern+"*"))
	for _, dir := range left {
		lock, err := lockFile(filepath.Join(dir, lockName), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // alive
		}
		_ = os.RemoveAll(dir) // what stays is swept next time
		_ = lock.Close()
	}
}

func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
	}
	return file, nil
}
