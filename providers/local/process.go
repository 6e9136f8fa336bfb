package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processSpec is what to start.
type processSpec struct {
	program    string
	args       []string
	dir        string // of this instance alone, made and deleted by run
	instanceID string
}

// process says how an instance of g is started. SIGTERM has the agent drain for
// most of our grace, so that it is gone before SIGKILL and leaves nothing behind.
func (c *config) process(g *group, id string) processSpec {
	dir := filepath.Join(c.WorkDir, id)
	args := []string{
		"--router", c.Router,
		"--token-file", g.TokenFile,
		"--instance-id", id,
		"--capacity", strconv.Itoa(g.Capacity),
		"--work-dir", dir,
		"--drain-timeout", atLeast(c.StopGrace*7/10, time.Millisecond).String(),
		"--stop-grace", atLeast(c.StopGrace*2/10, time.Millisecond).String(),
	}
	if c.Plaintext {
		args = append(args, "--plaintext")
	}
	if c.CAFile != "" {
		args = append(args, "--ca-file", c.CAFile)
	}
	return processSpec{program: c.Agent, args: args, dir: dir, instanceID: id}
}

func atLeast(d, least time.Duration) time.Duration { return max(d, least) }

// run starts the process and returns when it and all that it started are gone. The
// error says how it ended; nil is exit code 0.
func run(s processSpec, orders <-chan order) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's directory: %w", err)
	}
	defer os.RemoveAll(s.dir) // what stays harms nobody: no other instance gets this name

	cmd := exec.Command(s.program, s.args...)
	cmd.Dir = s.dir
	cmd.Env = environment(s)
	cmd.Stderr = os.Stderr // the plugin's own, which its host reads; standard output is the host's protocol
	// SIGHUP means to an agent that whoever started it is gone, and ends whatever
	// else was configured as the agent. The kernel sends it when the thread that
	// started the process ends, so that thread must stay as long as the process.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGHUP}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	supervise(cmd.Process.Pid, orders)
	killInstance(cmd.Process.Pid, s.instanceID)
	return cmd.Wait()
}

// environment holds nothing of this process's but where programs and temporary
// files are: an instance of a cloud wouldn't see more either.
func environment(s processSpec) []string {
	env := []string{"SPILLWAY_INSTANCE_ID=" + s.instanceID, "HOME=" + s.dir}
	for _, name := range []string{"PATH", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// supervise carries out orders until the process has ended, and ends the rest of
// its group then. It is not reaped here: until that, nobody else can get its id.
func supervise(pid int, orders <-chan order) {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(pid)
	}()
	limit := time.NewTimer(time.Hour)
	limit.Stop()
	defer limit.Stop()
	for {
		select {
		case <-exited:
			_ = unix.Kill(-pid, unix.SIGKILL)
			return
		case o := <-orders:
			_ = unix.Kill(-pid, o.signal())
			limit.Reset(o.grace)
		case <-limit.C:
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
}

func (o order) signal() unix.Signal {
	if o.hurry {
		return unix.SIGHUP
	}
	return unix.SIGTERM
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
