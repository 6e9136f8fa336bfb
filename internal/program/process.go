package program

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
	// maxHandshakeBytes bounds the first line of a program's standard output [bytes].
	maxHandshakeBytes = 16 << 10
	// PipeGrace is how long the outputs of a dead program are waited for. Something
	// that it started, and that is in no group of ours, may hold them for ever.
	PipeGrace = 250 * time.Millisecond
	// maxLateBytes bounds what is read of an output after that [bytes]: what a pipe holds,
	// and not what somebody goes on writing.
	maxLateBytes = 64 << 10
)

// Sink takes what a program says, from both of its outputs at a time.
type Sink interface {
	// Drain reads r to its end: a program whose pipe is full would hang.
	Drain(r io.Reader)
}

// Process is one process, as go-plugin's runner.
type Process struct {
	image   *Image
	output  Sink
	sockets string // directory that its socket must be in
	cmd     *exec.Cmd

	hello  *io.PipeReader // the handshake line, and no more
	stdin  *os.File       // our end: it closes with us, which tells the program
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

var _ runner.Runner = (*Process)(nil)

// New prepares a process of img. env is all of its environment.
func New(img *Image, env []string, out Sink) *Process {
	cmd := exec.Command(img.exec)
	cmd.Args = []string{img.Path}
	cmd.Env = env
	cmd.ExtraFiles = img.pass
	cmd.SysProcAttr = ownGroup()
	return &Process{image: img, output: out, cmd: cmd, exited: make(chan struct{})}
}

// Attach hands over what go-plugin makes for the process: variables that it sees as
// well, and the directory below which it shall listen. It comes before Start.
func (p *Process) Attach(env []string, sockets string) {
	p.cmd.Env = append(p.cmd.Env, env...)
	p.sockets = sockets
}

// Start starts the process. The thread that forks stays with it until it has
// ended: the kernel sends the parent-death signal when that thread ends, not
// when the host does.
func (p *Process) Start(context.Context) error {
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

func (p *Process) start() (stdout, stderr *os.File, err error) {
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
	p.read.Go(func() { p.output.Drain(&outlet{File: stderrR}); _ = stderrR.Close() })
	return stdoutR, stderrR, nil
}

// await reaps the process and closes what belonged to it.
func (p *Process) await(stdout, stderr *os.File) {
	err := reap(p.cmd, p.killGroup)
	p.mu.Lock()
	p.mu.err = err
	p.mu.Unlock()
	_ = p.stdin.Close()
	deadline := time.Now().Add(PipeGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	close(p.exited)
}

// readStdout hands go-plugin the first line and keeps the rest from it: there
// would be nobody to read it, and a full pipe stops the program.
func (p *Process) readStdout(stdout *os.File, hello *io.PipeWriter) {
	defer func() { _ = stdout.Close() }()
	lines := bufio.NewReaderSize(&outlet{File: stdout}, maxHandshakeBytes)
	line, _ := lines.ReadSlice('\n') // too long: no handshake, and go-plugin says so
	p.mu.Lock()
	p.mu.first = string(line)
	p.mu.Unlock()
	_, _ = hello.Write(line)
	_ = hello.Close()
	p.output.Drain(lines)
}

// End ends the process and everything in its group that it started.
func (p *Process) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.kill = true
	p.signalGroup()
}

// signalGroup needs p.mu.
func (p *Process) signalGroup() {
	if p.mu.kill && p.mu.pid > 0 && !p.mu.gone {
		_ = syscall.Kill(-p.mu.pid, syscall.SIGKILL)
	}
}

// Exited is closed when the process is gone and its group killed.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Await waits until a process that was started is gone and its outputs are read.
func (p *Process) Await() {
	if p.PID() > 0 {
		<-p.exited
		p.read.Wait()
	}
}

// EndsBefore reports whether it is gone now or before ctx ends.
func (p *Process) EndsBefore(ctx context.Context) bool {
	select {
	case <-p.exited:
		return true
	case <-ctx.Done():
	}
	select {
	case <-p.exited: // both came while we could not look
		return true
	default:
		return false
	}
}

// WasKilled reports whether a kill ended it.
func (p *Process) WasKilled() bool {
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
func (p *Process) killGroup() {
	p.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.gone = true
}

// PID is its process id; 0 before the start.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.pid
}

// FirstLine is what the process wrote instead of a handshake, or the handshake.
func (p *Process) FirstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.first
}

// Fate says how the process ended: "exit status 1", "signal: killed".
func (p *Process) Fate() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		return "exit status 0"
	}
	return p.mu.err.Error()
}

// Wait waits for the end of the process only.
func (p *Process) Wait(context.Context) error {
	<-p.exited
	return nil
}

// Kill implements [runner.AttachedRunner].
func (p *Process) Kill(context.Context) error {
	p.End()
	return nil
}

// Stdout is the handshake line.
func (p *Process) Stdout() io.ReadCloser { return p.hello }

// Stderr is empty for go-plugin: we read it, within limits.
func (p *Process) Stderr() io.ReadCloser { return io.NopCloser(eof{}) }

// Name implements [runner.Runner].
func (p *Process) Name() string { return p.image.Path }

// ID is the process id; empty before the start.
func (p *Process) ID() string {
	if pid := p.PID(); pid > 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose is empty: whoever starts it says it better.
func (p *Process) Diagnose(context.Context) string { return "" }

// PluginToHost refuses what isn't a socket in the directory that it was
// given: a program could have us connect to anything otherwise.
func (p *Process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || !strings.HasPrefix(filepath.Clean(address), p.sockets+string(filepath.Separator)) {
		return "", "", fmt.Errorf("listens on %.20s %.200q, not on a socket in the directory that it was given", network, address)
	}
	return network, address, nil
}

// HostToPlugin implements [runner.AddrTranslator].
func (p *Process) HostToPlugin(network, address string) (string, string, error) {
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
