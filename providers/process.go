package providers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

const (
	// maxHandshakeBytes bounds the first line of a plugin's standard output [bytes].
	maxHandshakeBytes = 16 << 10
	// pipeGrace is how long the outputs of a dead plugin are read on. Something
	// that it started, and that is in no group of ours, may hold them for ever.
	pipeGrace = 250 * time.Millisecond
)

// process is one plugin process, as go-plugin's runner. It is used instead of
// go-plugin's own because that one waits for the end of the outputs before it
// notices the end of the process, and so can be held up by a grandchild.
type process struct {
	image   *image
	output  *output
	sockets string // directory that its socket must be in
	cmd     *exec.Cmd

	hello  *io.PipeReader // the handshake line, and no more
	stdin  *os.File       // our end: it closes with us, which tells the plugin
	exited chan struct{}  // closed when the process is gone and its group killed
	read   sync.WaitGroup // readers of the outputs

	mu struct {
		sync.Mutex
		pid   int    // 0 before the start
		kill  bool   // it shall end, also if it is only starting
		gone  bool   // it has ended: its number is no longer to be used
		first string // the first line of standard output
		err   error  // of Wait; nil = exit status 0
	}
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares a process of img. env is all of its environment, sockets
// the directory below which it shall listen.
func newProcess(img *image, env []string, sockets string, out *output) *process {
	cmd := exec.Command(img.exec)
	cmd.Args = []string{img.path}
	cmd.Env = env
	cmd.ExtraFiles = img.pass
	cmd.SysProcAttr = ownGroup()
	return &process{image: img, output: out, sockets: sockets, cmd: cmd, exited: make(chan struct{})}
}

// Start starts the process. The thread that forks stays with it until it has
// ended: the kernel sends the parent-death signal when that thread ends, not
// when the host does.
func (p *process) Start(context.Context) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		stdout, stderr, err := p.start()
		started <- err
		if err == nil {
			p.await(stdout, stderr)
		}
	}()
	return <-started
}

func (p *process) start() (stdout, stderr *os.File, err error) {
	var theirs []*os.File
	defer func() { closeAll(theirs) }()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	stdinR, stdinW := pipe()
	stdoutR, stdoutW := pipe()
	stderrR, stderrW := pipe()
	theirs = []*os.File{stdinR, stdoutW, stderrW}
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdinR, stdoutW, stderrW
		err = p.cmd.Start()
	}
	if err != nil {
		closeAll([]*os.File{stdinW, stdoutR, stderrR})
		return nil, nil, err
	}
	p.stdin = stdinW
	p.mu.Lock()
	p.mu.pid = p.cmd.Process.Pid
	p.signalGroup() // it was killed before it was born
	p.mu.Unlock()
	hello, line := io.Pipe()
	p.hello = hello
	p.read.Go(func() { p.readStdout(stdoutR, line) })
	p.read.Go(func() { p.output.drain(stderrR); _ = stderrR.Close() })
	return stdoutR, stderrR, nil
}

// await reaps the process and closes what belonged to it.
func (p *process) await(stdout, stderr *os.File) {
	err := reap(p.cmd, p.killGroup)
	p.mu.Lock()
	p.mu.err = err
	p.mu.Unlock()
	_ = p.stdin.Close()
	deadline := time.Now().Add(pipeGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	close(p.exited)
}

// readStdout hands go-plugin the first line and keeps the rest from it: there
// would be nobody to read it, and a full pipe stops the plugin.
func (p *process) readStdout(stdout *os.File, hello *io.PipeWriter) {
	defer func() { _ = stdout.Close() }()
	lines := bufio.NewReaderSize(stdout, maxHandshakeBytes)
	line, _ := lines.ReadSlice('\n') // too long: no handshake, and go-plugin says so
	p.mu.Lock()
	p.mu.first = string(line)
	p.mu.Unlock()
	_, _ = hello.Write(line)
	_ = hello.Close()
	p.output.drain(lines)
}

// kill ends the process and everything in its group that it started.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.kill = true
	p.signalGroup()
}

// signalGroup needs p.mu.
func (p *process) signalGroup() {
	if p.mu.kill && p.mu.pid > 0 && !p.mu.gone {
		_ = syscall.Kill(-p.mu.pid, syscall.SIGKILL)
	}
}

// endsWithin reports whether it is gone now or within d.
func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// wasKilled reports whether a kill ended it.
func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status *exec.ExitError
	if !errors.As(p.mu.err, &status) {
		return false
	}
	wait, ok := status.Sys().(syscall.WaitStatus)
	return ok && wait.Signaled() && wait.Signal() == syscall.SIGKILL
}

// killGroup kills what an ended process left in its group, for the last time:
// once the leader is reaped, its number may be somebody else's.
func (p *process) killGroup() {
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.gone = true
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.pid
}

// firstLine is what the process wrote instead of a handshake, or the handshake.
func (p *process) firstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.first
}

// fate says how the process ended: "exit status 1", "signal: killed".
func (p *process) fate() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		return "exit status 0"
	}
	return p.mu.err.Error()
}

// Wait waits for the end of the process only.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return nil
}

// Kill implements [runner.AttachedRunner].
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Stdout is the handshake line.
func (p *process) Stdout() io.ReadCloser { return p.hello }

// Stderr is empty for go-plugin: we read it, within limits.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(eof{}) }

// Name implements [runner.Runner].
func (p *process) Name() string { return p.image.path }

// ID is the process id; empty before the start.
func (p *process) ID() string {
	if pid := p.pid(); pid > 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose is empty: explain says it better.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost refuses what isn't a socket in a directory of ours: a plugin
// could have the host connect to anything otherwise.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || !strings.HasPrefix(filepath.Clean(address), p.sockets+string(filepath.Separator)) {
		return "", "", fmt.Errorf("listens on %.20s %.200q, not on a socket in %s", network, address, p.sockets)
	}
	return network, address, nil
}

// HostToPlugin implements [runner.AddrTranslator].
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// closeAll closes pipe ends; nil ones are those that were never opened.
func closeAll(ends []*os.File) {
	for _, end := range ends {
		_ = end.Close()
	}
}
