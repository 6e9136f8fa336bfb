//go:build !linux

package program

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the program into a process group of its own. When we are killed,
// the program must notice it by itself: by its standard input and its parent.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the end of cmd, then kills what is left of its group.
func reap(cmd *exec.Cmd, killGroup func()) error {
	err := cmd.Wait()
	killGroup()
	return err
}
