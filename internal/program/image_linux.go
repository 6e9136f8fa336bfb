package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyImage makes the copy in memory and seals it: nobody can change it then,
// not even this process. Where the kernel forbids running from memory it lies
// below dir.
func copyImage(dir, name string, from io.Reader) (*Image, int64, error) {
	file, err := newMemfd(name)
	if err != nil {
		return copyToDir(dir, name, from)
	}
	syscall.ForkLock.RLock() // as in writeExecutable
	defer syscall.ForkLock.RUnlock()
	size, err := io.Copy(file, from)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	// What the program inherits must not be open for writing.
	sealed, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, 0, err
	}
	return &Image{exec: "/proc/self/fd/3", pass: []*os.File{sealed}, drop: sealed.Close}, size, nil
}

// newMemfd asks for a file that can be sealed and executed. Kernels before 6.3
// don't know the second flag and need none.
func newMemfd(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
