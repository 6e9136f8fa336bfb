package child

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// MaxBinaryBytes bounds a binary [bytes]; its copy may lie in memory.
const MaxBinaryBytes = 512 << 20

// ErrBinary is a file that must not be run. The text says why.
var ErrBinary = errors.New("binary refused")

// HexSum is what a SHA-256 looks like.
var HexSum = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// Image is a private copy of a binary: what was hashed is what runs, at every
// restart, whatever becomes of the file.
type Image struct {
	Path string // where it came from
	Sum  string // SHA-256, hex

	exec string       // the path to run
	pass []*os.File   // descriptors from 3 that exec needs
	drop func() error // forgets the copy
}

// Open checks the file at path and copies it. pin is its SHA-256 in hex, or empty.
func Open(path, pin string) (*Image, error) {
	file, err := openBinary(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrBinary, path, err)
	}
	defer func() { _ = file.Close() }()

	hash := sha256.New()
	size := &counter{}
	from := io.TeeReader(io.LimitReader(file, MaxBinaryBytes+1), io.MultiWriter(hash, size))
	img, err := copyImage(filepath.Base(path), from)
	if err != nil {
		return nil, fmt.Errorf("copying %s: %w", path, err)
	}
	img.Path, img.Sum = path, hex.EncodeToString(hash.Sum(nil))
	if err := img.check(size.bytes, pin); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s %w", ErrBinary, path, err), img.Close())
	}
	return img, nil
}

// Close forgets the copy. A process that runs it goes on.
func (i *Image) Close() error { return i.drop() }

func (i *Image) check(size int64, pin string) error {
	switch {
	case size == 0:
		return errors.New("is empty")
	case size > MaxBinaryBytes:
		return fmt.Errorf("grew beyond %d bytes while it was read", MaxBinaryBytes)
	case pin != "" && subtle.ConstantTimeCompare([]byte(strings.ToLower(pin)), []byte(i.Sum)) != 1:
		return fmt.Errorf("has SHA-256 %s, but %s is pinned: if it was updated on purpose, inspect it again and pin the new sum", i.Sum, pin)
	}
	return nil
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// openBinary opens path and checks the very file that it opened. The texts go on
// after the path.
func openBinary(path string) (*os.File, error) {
	// O_NONBLOCK: opening a named pipe would wait for a writer for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, errors.New("is a symbolic link: name the file itself, or whoever can change the link can change the program")
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("does not exist")
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("can't be read: it is copied before it is run")
	case err != nil:
		return nil, fmt.Errorf("can't be opened: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = checkMode(info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func checkMode(info fs.FileInfo) error {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("is not a regular file but %s", mode.Type())
	case mode.Perm()&0o111 == 0:
		return fmt.Errorf("is not executable (mode %#o): chmod 0755", mode.Perm())
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("can be written by others (mode %#o): chmod go-w", mode.Perm())
	case info.Size() > MaxBinaryBytes:
		return fmt.Errorf("has %d bytes, the limit is %d", info.Size(), MaxBinaryBytes)
	}
	return nil
}

// copyToDir makes the copy on disk, in a directory that only we can enter.
func copyToDir(name string, from io.Reader) (*Image, error) {
	dir, err := os.MkdirTemp("", "spillway-fleeting-")
	if err != nil {
		return nil, err
	}
	drop := func() error { return os.RemoveAll(dir) }
	path := filepath.Join(dir, name)
	if err := writeExecutable(path, from); err != nil {
		return nil, errors.Join(err, drop())
	}
	return &Image{exec: path, drop: drop}, nil
}

// writeExecutable lets nobody fork meanwhile: the fork would hold the file open for
// writing until its exec, and the kernel runs no such file.
func writeExecutable(path string, from io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
