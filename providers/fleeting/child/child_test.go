package child_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/program"
	"github.com/spillway-ci/spillway/providers/fleeting/child"
)

const (
	within = time.Minute // of what happens at once on an idle machine
	poll   = 5 * time.Millisecond
)

// script writes a program. A test that forks while another writes one would find
// the file busy, so none of them is parallel.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	return path
}

func open(t *testing.T, path string) *program.Image {
	t.Helper()
	img, err := program.Open(path, "", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, img.Close()) })
	return img
}

func spec() child.Spec {
	return child.Spec{CookieKey: "GATE", CookieValue: "open", ProtocolVersions: []int{1}, StartTimeout: within}
}

// What was hashed is what runs, whatever becomes of the file.
func TestCopyIsRun(t *testing.T) {
	path := script(t, "echo the first one >&2; exit 1")
	img := open(t, path)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho the second one >&2; exit 1\n"), 0o700))
	_, err := child.Start(t.Context(), img, spec())
	require.ErrorIs(t, err, child.ErrStart)
	require.ErrorContains(t, err, "the first one")
}

// Whatever goes wrong at the start, it and what it started are gone.
func TestStartsThatFail(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"ends":                {"echo bye >&2; exit 3", "bye"},
		"wants other cookie":  {"echo 'These are not meant to be executed directly' >&2; exit 1", "another magic cookie"},
		"speaks another way":  {"echo hello; sleep 1000", "hello"},
		"another protocol":    {"echo \"1|1|unix|$PLUGIN_UNIX_SOCKET_DIR/x|netrpc\"; sleep 1000", "netrpc"},
		"another version":     {"echo '1|7|unix|/tmp/x|grpc'; sleep 1000", "version"},
		"a foreign socket":    {"echo '1|1|unix|/var/run/docker.sock|grpc'; sleep 1000", "not on a socket in the directory"},
		"a port of a network": {"echo '1|1|tcp|192.0.2.1:80|grpc'; sleep 1000", "not on a socket in the directory"},
		"says nothing":        {"sleep 1000", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			noted := filepath.Join(t.TempDir(), "grandchild")
			img := open(t, script(t, "sleep 1000 & echo $! >"+noted+".new\nmv "+noted+".new "+noted+"\n"+c.text))
			s := spec()
			if name == "says nothing" {
				s.StartTimeout = 200 * time.Millisecond
			}
			_, err := child.Start(t.Context(), img, s)
			for ; !exists(noted) && s.StartTimeout < within; _, err = child.Start(t.Context(), img, s) {
				s.StartTimeout *= 2 // the machine is too busy for so short a start
			}
			require.ErrorIs(t, err, child.ErrStart)
			require.ErrorContains(t, err, c.want)
			grandchild, err := os.ReadFile(noted)
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(grandchild)))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return gone(pid) }, within, poll, "what it started is still there")
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func gone(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(line), ") Z ")
}

func TestContextEndsTheStart(t *testing.T) {
	img := open(t, script(t, "sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := child.Start(ctx, img, spec())
	require.ErrorIs(t, err, context.Canceled)
}

// What it says comes in lines, none too long, and however much it is, it never stops
// for it.
func TestOutput(t *testing.T) {
	var mu sync.Mutex
	var said []string
	s := spec()
	s.Say = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, line)
	}
	img := open(t, script(t, "head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; exit 1"))
	_, err := child.Start(t.Context(), img, s)
	require.ErrorContains(t, err, "the end")
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, said, 2)
	require.LessOrEqual(t, len(said[0]), program.MaxLineBytes)
	require.Equal(t, "the end", said[1])
}
