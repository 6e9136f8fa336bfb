package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// stopWithin is how long a program may take to end what it has started.
	stopWithin = 20 * time.Second
	// lastWords is how much of a log is shown of a program that failed [lines].
	lastWords = 15
)

// process is a program beside us, in a process group of its own: ^C at the terminal is
// ours to pass on, in order. Should we be killed, the kernel ends it.
type process struct {
	name string
	log  string // file with all that it says
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func start(dir, name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel's signal comes when the thread ends that forked
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// stop lets it end what it has started, and kills it when it takes too long.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return nil
	case <-time.After(stopWithin):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not end within %s and was killed", p.name, stopWithin)
}

// until waits until ready is, and fails when the program ends before.
func (p *process) until(ctx context.Context, ready func(context.Context) error) error {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failed("ended before it was ready")
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-poll.C:
		}
	}
}

// says is nil when a text is in the program's log.
func (p *process) says(text string) func(context.Context) error {
	return func(context.Context) error {
		log, err := os.ReadFile(p.log)
		if err == nil && !strings.Contains(string(log), text) {
			err = fmt.Errorf("%s has not said %q", p.name, text)
		}
		return err
	}
}

// failed is an error with the end of the program's log.
func (p *process) failed(how string) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s %s; its log: %w", p.name, how, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s %s:\n%s", p.name, how, strings.Join(lines[max(0, len(lines)-lastWords):], "\n"))
}
