package shell

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	// processMark is markName for what one Process has started.
	processMark = "SPILLWAY_EXEC"
	// hangUpGrace is what a process has left between SIGHUP and SIGKILL when whoever
	// started it has gone.
	hangUpGrace = time.Second
	// endOfInput is what a terminal takes for the end of what is typed (VEOF).
	endOfInput = 0x04
)

// Command is what to start in a script's place.
type Command struct {
	Args []string // a program, looked up in the script's PATH, and its arguments
	TTY  *Size    // nil: no terminal
	Term string   // TERM, with a terminal
}

// Size is a terminal's.
type Size struct{ Columns, Rows uint16 }

// Process is a command that was started in a script's place. It is in a process group of
// its own, and everything that it starts ends with it, at the latest with the script.
type Process struct {
	// Stdout and Stderr are what it prints; with a terminal all is Stdout and Stderr nil.
	// Whoever started it closes them.
	Stdout, Stderr *os.File

	stdin *os.File // with a terminal the same as Stdout
	tty   bool
	pid   int
	done  chan struct{}
	code  int // valid after done

	// reaping is held while a signal is sent, and while the id is given up.
	reaping sync.Mutex
	reaped  bool

	leave sync.Once
	// left is closed when whoever started it has gone.
	left chan struct{}
}

// Start starts c. ErrEnded: the script has ended.
func (p *Place) Start(c Command) (*Process, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, fmt.Errorf("%w: no command", ErrInvalid)
	}
	x := &Process{tty: c.TTY != nil, done: make(chan struct{}), left: make(chan struct{})}
	mark := processMark + "=" + rand.Text()
	// The shell looks the program up in the script's PATH, and says in its own words why
	// there is none.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "sh"}, c.Args...)...)
	cmd.Dir = p.dir.project()
	cmd.Env = append(append([]string{}, p.env...), mark)
	if x.tty && c.Term != "" {
		cmd.Env = append(cmd.Env, "TERM="+c.Term)
	}
	theirs, err := x.connect(cmd, c.TTY)
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	if !p.enter() {
		for _, f := range theirs {
			_ = f.Close() // nothing was written
		}
		x.Close()
		return nil, ErrEnded
	}
	go func() {
		defer p.processes.Done()
		// As in runIn: the thread that starts a process must outlive it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.startNow(cmd)
		for _, f := range theirs {
			_ = f.Close() // the process has its own
		}
		if err == nil {
			x.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			x.follow(cmd, mark)
		}
	}()
	if err := <-started; err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// enter counts a process, which is not started any more once the script has ended.
func (p *Place) enter() bool {
	p.starting.RLock()
	defer p.starting.RUnlock()
	if !p.ended {
		p.processes.Add(1)
	}
	return !p.ended
}

func (p *Place) startNow(cmd *exec.Cmd) error {
	p.starting.RLock()
	defer p.starting.RUnlock()
	if p.ended {
		return ErrEnded
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// connect gives cmd its ends of pipes or of a terminal, and x the others.
func (x *Process) connect(cmd *exec.Cmd, tty *Size) (theirs []*os.File, err error) {
	if tty != nil {
		ours, theirs, err := pty.Open()
		if err != nil {
			return nil, fmt.Errorf("make a terminal: %w", err)
		}
		x.stdin, x.Stdout = ours, ours
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
		x.Resize(*tty)
		return []*os.File{theirs}, nil
	}
	cmd.SysProcAttr = ownGroup()
	var files [6]*os.File
	for i := 0; i < len(files); i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			for _, f := range files[:i] {
				_ = f.Close() // nothing was written
			}
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
	}
	cmd.Stdin, x.stdin = files[0], files[1]
	x.Stdout, cmd.Stdout = files[2], files[3]
	x.Stderr, cmd.Stderr = files[4], files[5]
	return []*os.File{files[0], files[3], files[5]}, nil
}

// follow waits for the end of the process, or has it end, and ends what it has left.
func (x *Process) follow(cmd *exec.Cmd, mark string) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(x.pid)
	}()
	select {
	case <-exited:
	case <-x.left:
		_ = syscall.Kill(-x.pid, syscall.SIGHUP)
		awaitGroupEnd(x.pid, exited, hangUpGrace)
	}
	killGroup(x.pid)
	killMarked(x.pid, sign{entry: mark, dir: nowhere})
	<-exited
	x.reaping.Lock()
	x.code, x.reaped = reap(cmd), true
	x.reaping.Unlock()
	close(x.done)
}

// nowhere is no directory: the script's own processes are in the same one.
const nowhere = "\x00"

// Done is closed when the process has ended, and all that it had started.
func (x *Process) Done() <-chan struct{} { return x.done }

// ExitCode is how it ended, as a shell would say it; valid after Done.
func (x *Process) ExitCode() int { return x.code }

// Write gives it input. It waits while the process does not read.
func (x *Process) Write(b []byte) (int, error) { return x.stdin.Write(b) }

// CloseInput says that no more input comes.
func (x *Process) CloseInput() error {
	if x.tty {
		_, err := x.stdin.Write([]byte{endOfInput})
		return err
	}
	return x.stdin.Close()
}

// Resize tells the terminal its size.
func (x *Process) Resize(s Size) {
	if x.tty {
		_ = pty.Setsize(x.stdin, &pty.Winsize{Cols: s.Columns, Rows: s.Rows}) // it is gone, or soon told again
	}
}

// Signal sends a signal to its process group.
func (x *Process) Signal(s syscall.Signal) {
	x.reaping.Lock()
	defer x.reaping.Unlock()
	if !x.reaped { // otherwise the id may be somebody else's
		_ = syscall.Kill(-x.pid, s)
	}
}

// Leave ends the process, since nobody is there any more.
func (x *Process) Leave() { x.leave.Do(func() { close(x.left) }) }

// Close closes our ends of what connects us.
func (x *Process) Close() {
	_ = x.stdin.Close()
	_ = x.Stdout.Close()
	if x.Stderr != nil {
		_ = x.Stderr.Close()
	}
}

// EndOfOutput reports whether err of Stdout is only that nobody has the other end any
// more; of a terminal that is EIO.
func EndOfOutput(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, unix.EIO) }
