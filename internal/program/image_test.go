package program

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	program    = "#!/bin/sh\necho original\n"
	programSum = "0c2ff09e9d2a6b66c6e1f0b3be0ff0ba8d3b03b1a4f1a3ef1bd3b4c1f0dc0000"
)

func writeProgram(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(path, []byte(program), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// TestT4_FilesThatAreNotRun: one sentence for each fault.
func TestT4_FilesThatAreNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		path func(t *testing.T) string
		want string
	}{
		"missing":        {func(t *testing.T) string { return filepath.Join(t.TempDir(), "plugin") }, "does not exist"},
		"directory":      {func(t *testing.T) string { return t.TempDir() }, "is not a regular file"},
		"not executable": {func(t *testing.T) string { return writeProgram(t, 0o644) }, "is not executable (mode 0644): chmod 0755"},
		"world-writable": {func(t *testing.T) string { return writeProgram(t, 0o757) }, "can be written by others (mode 0757): chmod go-w"},
		"group-writable": {func(t *testing.T) string { return writeProgram(t, 0o775) }, "can be written by others (mode 0775)"},
		"symbolic link": {func(t *testing.T) string {
			link := filepath.Join(t.TempDir(), "link")
			require.NoError(t, os.Symlink(writeProgram(t, 0o755), link))
			return link
		}, "is a symbolic link"},
		"named pipe": {func(t *testing.T) string {
			pipe := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o755))
			return pipe
		}, "is not a regular file"},
		"empty": {func(t *testing.T) string {
			path := writeProgram(t, 0o755)
			require.NoError(t, os.Truncate(path, 0))
			return path
		}, "is empty"},
		"too large": {func(t *testing.T) string {
			path := writeProgram(t, 0o755)
			require.NoError(t, os.Truncate(path, MaxBinaryBytes+1))
			return path
		}, "the limit is 536870912"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(c.path(t), "", t.TempDir())
			require.ErrorIs(t, err, ErrBinary)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// discard takes what a program says and keeps nothing of it.
type discard struct{}

func (discard) Drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

func TestT4_PinnedChecksum(t *testing.T) {
	path := writeProgram(t, 0o755)
	img, err := Open(path, "", t.TempDir())
	require.NoError(t, err)
	require.NoError(t, img.Close())

	again, err := Open(path, strings.ToUpper(img.Sum), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, again.Close())

	_, err = Open(path, programSum, t.TempDir())
	require.ErrorIs(t, err, ErrBinary)
	require.ErrorContains(t, err, "has SHA-256 "+img.Sum+", but "+programSum+" is pinned")
}

// TestT4_WhatWasHashedIsWhatRuns: the file is changed after it was checked.
func TestT4_WhatWasHashedIsWhatRuns(t *testing.T) {
	for name, open := range map[string]func(path string) (*Image, error){
		"in memory": func(path string) (*Image, error) { return Open(path, "", t.TempDir()) },
		"on disk": func(path string) (*Image, error) {
			img, _, err := copyToDir(t.TempDir(), "plugin", strings.NewReader(program))
			if err == nil {
				img.Path = path
			}
			return img, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeProgram(t, 0o755)
			img, err := open(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho swapped\n"), 0o755))

			p := New(img, nil, discard{})
			require.NoError(t, p.Start(t.Context()))
			line, err := io.ReadAll(p.Stdout())
			require.NoError(t, err)
			require.Equal(t, "original\n", string(line))
			<-p.exited
			require.Equal(t, "exit status 0", p.Fate())
			require.NoError(t, img.Close())
		})
	}
}

func TestT4_TheCopyCannotBeChanged(t *testing.T) {
	img, err := Open(writeProgram(t, 0o755), "", t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, img.Close()) }()
	if len(img.pass) == 0 {
		t.Skip("the kernel runs nothing from memory")
	}
	w, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(img.pass[0].Fd())), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPERM)
	require.ErrorIs(t, w.Truncate(0), syscall.EPERM)
}

func TestT4_ACopyOnDiskIsPrivateAndGoesAway(t *testing.T) {
	img, size, err := copyToDir(t.TempDir(), "plugin", strings.NewReader(program))
	require.NoError(t, err)
	require.EqualValues(t, len(program), size)
	info, err := os.Stat(filepath.Dir(img.exec))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, img.Close())
	require.NoDirExists(t, filepath.Dir(img.exec))
}
