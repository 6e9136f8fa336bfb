package program

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the program into a process group of its own, so that a ^C at our
// terminal doesn't reach it and a kill reaches all that it started; and has the
// kernel kill it when we die.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of cmd, calls killGroup and only then takes the exit
// status: as long as the dead leader isn't reaped, its number, which is the
// group's, can't belong to anybody else.
func reap(cmd *exec.Cmd, killGroup func()) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	killGroup()
	return cmd.Wait()
}
