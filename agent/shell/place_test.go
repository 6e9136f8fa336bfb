package shell_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/shell"
)

// place runs a script that waits, and returns where. end has it end and waits.
func place(t *testing.T, s shell.Spec) (p *shell.Place, end func() shell.Outcome) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	started, done := make(chan *shell.Place, 1), make(chan shell.Outcome, 1)
	go func() {
		out, err := shell.Run(ctx, s, func(p *shell.Place) { started <- p })
		if err != nil {
			close(started)
		}
		done <- out
	}()
	p = <-started
	require.NotNil(t, p)
	ended := false
	end = func() shell.Outcome {
		ended = true
		stop()
		select {
		case out := <-done:
			require.NoError(t, out.CleanUp)
			return out
		case <-time.After(within):
			require.Fail(t, "the run did not end")
			return shell.Outcome{}
		}
	}
	t.Cleanup(func() {
		if !ended {
			end()
		}
	})
	return p, end
}

func printed(t *testing.T, x *shell.Process) string {
	t.Helper()
	text, err := io.ReadAll(x.Stdout)
	if !shell.EndOfOutput(err) {
		require.NoError(t, err)
	}
	<-x.Done()
	return string(text)
}

func TestCommandsRunInTheScriptsPlace(t *testing.T) {
	s := spec(t, "echo made >new; mv new file; exec sleep 1000")
	s.Env = []string{"GREETING=hi"}
	p, _ := place(t, s)
	require.Eventually(t, func() bool {
		found, err := filepath.Glob(filepath.Join(s.Parent, "*", "project", "file"))
		return err == nil && len(found) == 1
	}, within, time.Millisecond)
	x, err := p.Start(shell.Command{Args: []string{"sh", "-c", `cat file; echo "$GREETING"; cat; echo err >&2; exit 7`}})
	require.NoError(t, err)
	_, err = x.Write([]byte("typed\n"))
	require.NoError(t, err)
	require.NoError(t, x.CloseInput())
	require.Equal(t, "made\nhi\ntyped\n", printed(t, x))
	text, err := io.ReadAll(x.Stderr)
	require.NoError(t, err)
	require.Equal(t, "err\n", string(text))
	require.Equal(t, 7, x.ExitCode())
	x.Close()

	x, err = p.Start(shell.Command{Args: []string{"no-such-program"}})
	require.NoError(t, err)
	<-x.Done()
	require.Equal(t, 127, x.ExitCode())
	x.Close()
	_, err = p.Start(shell.Command{})
	require.ErrorIs(t, err, shell.ErrInvalid)
}

func TestTerminal(t *testing.T) {
	p, _ := place(t, spec(t, "sleep 1000"))
	x, err := p.Start(shell.Command{Args: []string{"sh", "-c", `tty >&2; stty size; echo $TERM; trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done`}, TTY: &shell.Size{Columns: 81, Rows: 25}, Term: "dumb"})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	lines := bufio.NewScanner(x.Stdout)
	next := func() string {
		require.True(t, lines.Scan())
		return strings.TrimSpace(lines.Text())
	}
	require.Contains(t, next(), "/dev/pts/")
	require.Equal(t, "25 81", next())
	require.Equal(t, "dumb", next())
	require.Equal(t, "ready", next())
	x.Resize(shell.Size{Columns: 100, Rows: 40})
	require.Equal(t, "40 100", next())
	_, err = x.Write([]byte{3}) // Ctrl-C
	require.NoError(t, err)
	require.Contains(t, next(), "interrupted")
	<-x.Done()
	require.Equal(t, 3, x.ExitCode())
}

func TestEndOfInputOnATerminal(t *testing.T) {
	p, _ := place(t, spec(t, "sleep 1000"))
	x, err := p.Start(shell.Command{Args: []string{"cat"}, TTY: &shell.Size{}})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	require.NoError(t, x.CloseInput())
	<-x.Done()
	require.Zero(t, x.ExitCode())
}

func TestSignals(t *testing.T) {
	p, _ := place(t, spec(t, "sleep 1000"))
	x, err := p.Start(shell.Command{Args: []string{"sh", "-c", "echo ready; exec sleep 1000"}})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	_, err = bufio.NewReader(x.Stdout).ReadString('\n')
	require.NoError(t, err)
	x.Signal(syscall.SIGTERM)
	<-x.Done()
	require.Equal(t, 128+15, x.ExitCode())
	x.Signal(syscall.SIGTERM) // its id may be somebody else's by now
}

// alive are the names of the processes with a word in their environment.
func alive(t *testing.T, word string) (names []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range all {
		environ, _ := os.ReadFile(path)
		if strings.Contains(string(environ), word) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// What a command has left in the background ends with it; the script and its other
// commands go on.
func TestACommandLeavesNothing(t *testing.T) {
	word := "WORD=" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	s := spec(t, "exec sleep 1000")
	s.Env = []string{word}
	p, end := place(t, s)
	script := []string{"sleep"}
	// While it becomes that, its environment can't be seen.
	require.Eventually(t, func() bool { return slices.Equal(script, alive(t, word)) }, within, time.Millisecond)
	for _, tty := range []*shell.Size{nil, {}} {
		x, err := p.Start(shell.Command{Args: []string{"sh", "-c", "setsid sleep 1000 & sleep 1000 & echo started"}, TTY: tty})
		require.NoError(t, err)
		<-x.Done()
		x.Close()
		require.Equal(t, script, alive(t, word), "only the script")
	}
	// Nobody is there any more: a command that ignores it has a grace.
	x, err := p.Start(shell.Command{Args: []string{"sh", "-c", "trap '' HUP TERM; echo ready; while :; do sleep 0.05; done"}})
	require.NoError(t, err)
	_, err = bufio.NewReader(x.Stdout).ReadString('\n')
	require.NoError(t, err)
	x.Leave()
	x.Leave()
	<-x.Done()
	x.Close()
	require.Equal(t, script, alive(t, word))
	end()
	require.Empty(t, alive(t, word))
}

// Commands end with the script, also those that take themselves out of its group, and
// none begins any more.
func TestCommandsEndWithTheScript(t *testing.T) {
	word := "WORD=" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	s := spec(t, "while [ ! -e go ]; do sleep 0.02; done; exit 5")
	s.Env = []string{word}
	started, done := make(chan *shell.Place, 1), make(chan shell.Outcome, 1)
	go func() {
		out, _ := shell.Run(context.Background(), s, func(p *shell.Place) { started <- p })
		done <- out
	}()
	p := <-started
	var all []*shell.Process
	for _, tty := range []*shell.Size{nil, {}} {
		x, err := p.Start(shell.Command{Args: []string{"sh", "-c", "trap '' HUP TERM; setsid sleep 1000 & sleep 1000"}, TTY: tty})
		require.NoError(t, err)
		t.Cleanup(x.Close)
		all = append(all, x)
	}
	x, err := p.Start(shell.Command{Args: []string{"touch", "go"}})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	out := <-done
	require.Equal(t, shell.Exited, out.Cause)
	require.Equal(t, 5, out.ExitCode)
	<-p.Done()
	for _, x := range all {
		<-x.Done()
		require.Equal(t, 128+9, x.ExitCode())
	}
	require.Empty(t, alive(t, word))
	requireEmpty(t, s.Parent)
	_, err = p.Start(shell.Command{Args: []string{"true"}})
	require.ErrorIs(t, err, shell.ErrEnded)
}

// withSockets runs a script in a place with sockets and returns their directory.
func withSockets(t *testing.T, parent string) (*shell.Place, string, func() shell.Outcome) {
	t.Helper()
	s := spec(t, "exec sleep 1000")
	s.Sockets = true
	if parent != "" {
		s.Parent = parent
	}
	p, end := place(t, s)
	x, err := p.Start(shell.Command{Args: []string{"sh", "-c", `printf %s "$SPILLWAY_SOCKET_DIR"`}})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	return p, printed(t, x), end
}

func TestSockets(t *testing.T) {
	for name, parent := range map[string]string{"near": shortDir(t), "far": filepath.Join(t.TempDir(), strings.Repeat("x", 80))} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.MkdirAll(parent, 0o700))
			p, dir, end := withSockets(t, parent)
			require.Equal(t, name == "near", strings.HasPrefix(dir, parent))
			info, err := os.Stat(dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
			longest := strings.Repeat("n", shell.MaxSocketNameBytes)
			for _, socket := range []string{"a", "step-runner", longest} {
				l, err := net.Listen("unix", filepath.Join(dir, socket))
				require.NoError(t, err)
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = io.Copy(conn, conn)
						_ = conn.Close()
					}
				}()
				conn, err := p.Socket(socket)
				require.NoError(t, err, socket)
				_, err = conn.Write([]byte(socket))
				require.NoError(t, err)
				require.NoError(t, conn.(*net.UnixConn).CloseWrite())
				text, err := io.ReadAll(conn)
				require.NoError(t, err)
				require.Equal(t, socket, string(text))
				require.NoError(t, conn.Close())
				t.Cleanup(func() { _ = l.Close() })
			}
			end()
			_, err = os.Stat(dir)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "s")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Only sockets that are in the directory itself are reached.
func TestNothingElseIsReached(t *testing.T) {
	outside := shortDir(t)
	l, err := net.Listen("unix", filepath.Join(outside, "secret"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p, dir, _ := withSockets(t, shortDir(t))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folder")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, name := range []string{
		"", ".", "..", "../secret", "folder/secret", "/" + outside + "/secret", "Upper", "dot.ted", "a\x00b", strings.Repeat("n", shell.MaxSocketNameBytes+1),
	} {
		_, err := p.Socket(name)
		require.ErrorIs(t, err, shell.ErrSocketName, "%q", name)
	}
	for _, name := range []string{"absent", "link", "folder", "file"} {
		_, err := p.Socket(name)
		require.ErrorIs(t, err, shell.ErrNoSocket, "%q", name)
	}
	// The directory's place taken by a link: what was made first is what counts.
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	require.NoError(t, os.Symlink(outside, dir))
	_, err = p.Socket("secret")
	require.ErrorIs(t, err, shell.ErrNoSocket)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Rename(dir+"-moved", dir))

	// A socket that nobody listens on any more.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "stale")})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	_, err = p.Socket("stale")
	require.ErrorIs(t, err, shell.ErrNoSocket)

	plain, _ := place(t, spec(t, "sleep 1000"))
	_, err = plain.Socket("a")
	require.ErrorIs(t, err, shell.ErrNoSockets)
}
