package pluginsdk

import (
	"os"
	"syscall"
)

// takeStdout returns the real standard output and points descriptor 1 at
// standard error.
func takeStdout() (*os.File, error) {
	fd, err := syscall.Dup(1)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if err := syscall.Dup3(2, 1, 0); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}

// nameProcess sets the name that ps and top show: a host that starts the plugin
// from memory would have it shown as a number. Failing is harmless.
func nameProcess(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}
