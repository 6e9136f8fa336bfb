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
	signals    signals
}

// signals are what tells a process to end.
type signals struct {
	stop  unix.Signal // in its own time
	hurry unix.Signal // at once: we are about to go, or are gone
	alone bool        // they are for the process, and not for its group
}

var (
	// SIGHUP means to an agent that whoever started it is gone.
	agentSignals = signals{stop: unix.SIGTERM, hurry: unix.SIGHUP}
	// What a command has started is for the command to end, and SIGHUP may mean to it
	// that its configuration has changed.
	commandSignals = signals{stop: unix.SIGTERM, hurry: unix.SIGTERM, alone: true}
)

// process says how an instance of g is started. port is the one that is its own; 0
// where none is asked for.
func (c *config) process(g *group, id string, port int) processSpec {
	spec := processSpec{program: c.Agent, dir: filepath.Join(c.WorkDir, id), instanceID: id, signals: agentSignals}
	if g.usesAgent() {
		spec.args = c.agentArgs(g, id, spec.dir)
	}
	if g.Command == nil {
		return spec
	}
	command := filled(g.Command, map[string]string{
		instanceMark: id, portMark: strconv.Itoa(port), workDirMark: spec.dir, groupMark: g.Name,
	})
	if g.Sidecar {
		spec.args = append(spec.args, "--sidecar", "--runner-metrics", "http://"+addressAt(port)+"/metrics", "--exec", "--")
		spec.args = append(spec.args, command...)
		return spec
	}
	spec.program, spec.args, spec.signals = command[0], command[1:], commandSignals
	spec.signals.stop = stopSignals[g.StopSignal]
	return spec
}

// agentArgs has SIGTERM drain the agent for most of our grace, so that it is gone
// before SIGKILL and leaves nothing behind.
func (c *config) agentArgs(g *group, id, dir string) []string {
	args := []string{
		"--router", c.Router,
		"--token-file", g.TokenFile,
		"--instance-id", id,
		"--work-dir", dir,
		"--drain-timeout", atLeast(c.StopGrace*7/10, time.Millisecond).String(),
		"--stop-grace", atLeast(c.StopGrace*2/10, time.Millisecond).String(),
	}
	if g.Command == nil {
		args = append(args, "--capacity", strconv.Itoa(g.capacity()))
	}
	if c.Plaintext {
		args = append(args, "--plaintext")
	}
	if c.CAFile != "" {
		args = append(args, "--ca-file", c.CAFile)
	}
	return args
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
	// The kernel sends the signal when the thread that started the process ends, so
	// that thread must stay as long as the process.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: s.signals.hurry}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(s.program), err)
	}
	supervise(cmd.Process.Pid, s.signals, orders)
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
func supervise(pid int, how signals, orders <-chan order) {
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
			how.send(pid, o)
			limit.Reset(o.grace)
		case <-limit.C:
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
}

// send tells the process. One that has ended is what was wanted.
func (s signals) send(pid int, o order) {
	signal := s.stop
	if o.hurry {
		signal = s.hurry
	}
	if !s.alone {
		pid = -pid
	}
	_ = unix.Kill(pid, signal)
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
