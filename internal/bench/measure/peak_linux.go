package measure

import (
	"fmt"
	"os"
)

// ResetPeak makes a process's Usage.Peak begin anew from what it has now; false where
// that can't be done.
func ResetPeak(pid int) bool {
	// proc(5), /proc/pid/clear_refs: 5 resets the peak of the resident memory.
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) == nil
}
