package program

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

// MaxBinaryBytes bounds a binary [bytes]; its copy lies in memory.
const MaxBinaryBytes = 512 << 20

// ErrBinary is a file that must not be run. The text says why.
var ErrBinary = errors.New("binary refused")

// HexSum is what a SHA-256 looks like.
var HexSum = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// Image is a private copy of a binary: what was hashed is what runs, whatever becomes
// of the file, at every restart.
type Image struct {
	Path string // where it came from
	Sum  string // SHA-256, hex

	exec string       // the path to run
	pass []*os.File   // descriptors from 3 that exec needs
	drop func() error // forgets the copy
}

// Open checks the file at path and copies it. pin is its SHA-256 in hex, or empty; dir
// is where a copy may lie, or empty: where temporary files are.
func Open(path, pin, dir string) (*Image, error) {
	file, err := openBinary(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrBinary, path, err)
	}
	defer func() { _ = file.Close() }()

	hash := sha256.New()
	from := io.TeeReader(io.LimitReader(file, MaxBinaryBytes+1), hash)
	img, size, err := copyImage(dir, filepath.Base(path), from)
	if err != nil {
		return nil, fmt.Errorf("copying binary %s: %w", path, err)
	}
	img.Path, img.Sum = path, hex.EncodeToString(hash.Sum(nil))
	if err := checkContent(img, size, pin); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s %w", ErrBinary, path, err), img.Close())
	}
	return img, nil
}

// Close forgets the copy. A process that runs it goes on.
func (i *Image) Close() error { return i.drop() }

// openBinary opens path and checks the very file that it opened. The texts go
// on after the path.
func openBinary(path string) (*os.File, error) {
	// O_NONBLOCK: opening a named pipe would wait for a writer for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, errors.New("is a symbolic link: name the file itself, or whoever can change the link can change the program")
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing{}
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("can't be read: it is verified and copied before it is run")
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

// missing is a file that isn't there.
type missing struct{}

func (missing) Error() string   { return "does not exist" }
func (missing) Is(e error) bool { return e == fs.ErrNotExist }

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

func checkContent(img *Image, size int64, pin string) error {
	switch {
	case size == 0:
		return errors.New("is empty")
	case size > MaxBinaryBytes:
		return fmt.Errorf("grew beyond %d bytes while it was read", MaxBinaryBytes)
	case pin != "" && subtle.ConstantTimeCompare([]byte(strings.ToLower(pin)), []byte(img.Sum)) != 1:
		return fmt.Errorf("has SHA-256 %s, but %s is pinned: if it was updated on purpose, pin the new sum", img.Sum, pin)
	}
	return nil
}

// copyToDir makes the copy on disk, below parent, in a directory that only we
// can enter.
func copyToDir(parent, name string, from io.Reader) (*Image, int64, error) {
	dir, err := os.MkdirTemp(parent, "spillway-b")
	if err != nil {
		return nil, 0, err
	}
	drop := func() error { return os.RemoveAll(dir) }
	path := filepath.Join(dir, name)
	size, err := writeExecutable(path, from)
	if err != nil {
		return nil, 0, errors.Join(err, drop())
	}
	return &Image{exec: path, drop: drop}, size, nil
}

// writeExecutable lets nobody fork meanwhile: the fork would hold the file open for
// writing until its exec, and the kernel runs no such file.
func writeExecutable(path string, from io.Reader) (int64, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(file, from)
	return size, errors.Join(err, file.Close())
}
