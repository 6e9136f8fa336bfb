package measure

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is what one process uses, without those that it has started.
type Usage struct {
	CPU      time.Duration // since it was started, in whole ticks of 10 ms
	Resident int64         // memory now [bytes]
	Peak     int64         // the most that Resident ever was [bytes]
}

// UsageOf looks at a process; false where there is no such process, or no /proc.
func UsageOf(pid int) (Usage, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, false
	}
	p, ok := parseProcess(string(stat))
	if !ok {
		return Usage{}, false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, false
	}
	resident, ok1 := sizeIn(string(status), "VmRSS")
	peak, ok2 := sizeIn(string(status), "VmHWM")
	return Usage{CPU: time.Duration(p.ticks) * tick, Resident: resident, Peak: peak}, ok1 && ok2
}

// sizeIn reads a line like "VmRSS:   1234 kB" of /proc/PID/status.
func sizeIn(status, name string) (int64, bool) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// ChildrenOf finds the processes that a process has started and that run, by their
// ids; nil where there is none, or no /proc.
func ChildrenOf(parent int) []int {
	var pids []int
	for pid, p := range readProcesses() {
		if p.parent == parent {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
