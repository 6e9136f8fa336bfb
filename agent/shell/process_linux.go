package shell

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup starts a process in a group of its own, and has the kernel end it
// when this process dies without a chance to.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// The group's id is its leader's process id. Errors are not looked at: a group
// that is gone already is what was wanted.

func terminateGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGTERM) }

func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
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
