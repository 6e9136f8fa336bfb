package child

import (
	"os/exec"
	"syscall"
)

// DieWithParent has the kernel kill cmd when this program is killed itself, so that
// nothing is left behind even then.
func DieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
