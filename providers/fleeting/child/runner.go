package child

import (
	"bufio"
	"context"
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
	// maxHandshakeBytes bounds the first line of standard output [bytes].
	maxHandshakeBytes = 16 << 10
	// pipeGrace is how long the outputs of a dead program are read on: something that
	// it started may hold them for ever.
	pipeGrace = 250 * time.Millisecond
)

// process is one process, as go-plugin's runner. It is used instead of go-plugin's
// own because that one waits for the end of the outputs before it notices the end
// of the process, and kills the process but not what it started.
type process struct {
	image   *Image
	lines   *lines
	sockets string // directory that its socket must be in
	cmd     *exec.Cmd

	hello  *io.PipeReader // the handshake line, and no more
	exited chan struct{}  // closed when the process is gone and its group killed
	read   sync.WaitGroup // readers of the outputs

	mu struct {
		sync.Mutex
		pid  int  // 0 before the start
		kill bool // it shall end, also if it is only starting
		gone bool // its number is no longer to be used
		err  error
	}
}

var _ runner.Runner = (*process)(nil)

func newProcess(img *Image, env []string, out *lines) *process {
	cmd := exec.Command(img.exec)
	cmd.Args = []string{img.Path}
	cmd.Env = env
	cmd.ExtraFiles = img.pass
	cmd.SysProcAttr = ownGroup()
	return &process{image: img, lines: out, cmd: cmd, exited: make(chan struct{})}
}

// Start starts the process. The thread that forks stays with it until it has ended:
// the kernel sends the parent-death signal when that thread ends, not when we do.
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
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = stdoutW.Close() }()
	stderr, stderrW, err := os.Pipe()
	if err != nil {
		_ = stdout.Close()
		return nil, nil, err
	}
	defer func() { _ = stderrW.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = stdoutW, stderrW
	if err := p.cmd.Start(); err != nil {
		_, _ = stdout.Close(), stderr.Close()
		return nil, nil, err
	}
	p.mu.Lock()
	p.mu.pid = p.cmd.Process.Pid
	p.signalGroup() // it was killed before it was born
	p.mu.Unlock()
	hello, line := io.Pipe()
	p.hello = hello
	p.read.Go(func() { p.readStdout(stdout, line) })
	p.read.Go(func() { p.lines.drain(stderr); _ = stderr.Close() })
	return stdout, stderr, nil
}

// await reaps the process.
func (p *process) await(stdout, stderr *os.File) {
	err := reap(p.cmd, p.killGroup)
	p.mu.Lock()
	p.mu.err = err
	p.mu.Unlock()
	deadline := time.Now().Add(pipeGrace)
	_ = stdout.SetReadDeadline(deadline)
	_ = stderr.SetReadDeadline(deadline)
	close(p.exited)
}

// readStdout hands go-plugin the first line and keeps the rest from it: there would
// be nobody to read it, and a full pipe stops the program.
func (p *process) readStdout(stdout *os.File, hello *io.PipeWriter) {
	defer func() { _ = stdout.Close() }()
	out := bufio.NewReaderSize(stdout, maxHandshakeBytes)
	line, _ := out.ReadSlice('\n') // too long: no handshake, and go-plugin says so
	_, _ = hello.Write(line)
	_ = hello.Close()
	p.lines.drain(out)
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

// killGroup kills what an ended process left in its group, for the last time: once
// the leader is reaped, its number may be somebody else's.
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
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements [runner.Runner].
func (p *process) Name() string { return p.image.Path }

// ID is the process id; empty before the start.
func (p *process) ID() string {
	if pid := p.pid(); pid > 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Diagnose implements [runner.Runner].
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost refuses what isn't a socket in the directory that the program was
// given: it could have us connect to anything otherwise.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || !strings.HasPrefix(filepath.Clean(address), p.sockets+string(filepath.Separator)) {
		return "", "", fmt.Errorf("it listens on %.20s %.200q, not on a socket in the directory that it was given", network, address)
	}
	return network, address, nil
}

// HostToPlugin implements [runner.AddrTranslator].
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
