package peertest

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/freeport"
)

// Program returns the path of a program, or skips the test: without is what is
// not tested then, such as "the stub was not tried by aws-cli".
func Program(t testing.TB, name, without string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not installed: %s", name, without)
	}
	return path
}

// Broken ends a test whose part is installed and does not work.
func Broken(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf("SKIPPED: "+format, args...)
}

// startWithin is how long a server may take until it answers; a Python program on
// a loaded machine takes most of ten seconds.
const startWithin = 60 * time.Second

// Start runs a server and returns when alive does not fail any more. It is stopped
// by its process id when the test ends.
func Start(t testing.TB, cmd *exec.Cmd, alive func() error) {
	t.Helper()
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	deadline := time.After(startWithin)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := alive()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-ended:
			Broken(t, "%s is installed but does not run", cmd.Path)
		case <-deadline:
			Broken(t, "%s does not answer: %v", cmd.Path, err)
		}
	}
}

// FreePort is a loopback port that nobody listens on, another one with each call and for
// each process.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Find(func(port int) bool { return !freeport.Claim(port) })
	require.NoError(t, err)
	return port
}

// FreeAddress is a loopback address that nobody listens on, another one with each call.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
}

// DeadAddress is a loopback address that refuses connections until the test ends: nobody
// listens there, and nobody else can. One that a server has left may be somebody's by the
// time it is called.
func DeadAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }() // it has taken the one connection that it is for
	ours, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close() }) // until then its port is taken
	theirs, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	return ours.LocalAddr().String()
}
