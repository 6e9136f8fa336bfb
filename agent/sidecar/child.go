package sidecar

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// child is a runner that the sidecar itself starts.
type child struct {
	argv    []string
	changed chan<- struct{} // gets a word when it ends, if there is room
	running *running        // nil = it was never started
}

// running is one process of it.
type running struct {
	cmd   *exec.Cmd
	name  string
	ended chan struct{}
}

func (c *child) alive() bool {
	if c.running == nil {
		return false
	}
	select {
	case <-c.running.ended:
		return false
	default:
		return true
	}
}

func (c *child) look(context.Context) (string, error) {
	if !c.alive() {
		return "", nil
	}
	return c.running.name, nil
}

func (c *child) quit(context.Context, string) error {
	if err := c.running.cmd.Process.Signal(unix.SIGQUIT); err != nil {
		return fmt.Errorf("send SIGQUIT to the runner: %w", err)
	}
	return nil
}

func (*child) hold(context.Context) error { return nil }

// start starts it in a process group of its own: a signal to ours is for us to judge.
// When we die without a chance to end it, the kernel tells it to finish what it has.
func (c *child) start(context.Context) error {
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGQUIT}
	r := &running{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go r.live(started, c.changed)
	if err := <-started; err != nil {
		return fmt.Errorf("start the runner: %w", err)
	}
	c.running = r
	return nil
}

// live starts the process and waits for its end. The kernel's signal at our death comes
// when the thread ends that has started the process, so that thread must stay.
func (r *running) live(started chan<- error, changed chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.cmd.Start(); err != nil {
		started <- err
		return
	}
	pid := r.cmd.Process.Pid
	s, _ := readStat(pid) // it is our child, and not reaped yet
	r.name = nameOf(pid, s)
	started <- nil
	awaitExit(pid)
	_ = unix.Kill(-pid, unix.SIGKILL) // what it left in its group; not reaped yet, so that the group is still its own
	_ = r.cmd.Wait()                  // an exit code other than 0 is an error here, and no error of ours
	close(r.ended)
	select {
	case changed <- struct{}{}:
	default:
	}
}

// awaitExit returns when the child has ended, and leaves it unreaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return // ended; or no child of ours, and then there is nothing to wait for
		}
	}
}

func (c *child) close(grace time.Duration) {
	if !c.alive() {
		return
	}
	_ = c.running.cmd.Process.Signal(unix.SIGTERM) // it may have ended right now
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-c.running.ended:
	case <-limit.C:
		_ = c.running.cmd.Process.Kill() // live ends the rest of its group
		<-c.running.ended
	}
}
