//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the program into a process group of its own. Only Linux can have it
// end with us when we are killed.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the end of cmd, then kills what is left of its group.
func reap(cmd *exec.Cmd, killGroup func()) error {
	err := cmd.Wait()
	killGroup()
	return err
}
