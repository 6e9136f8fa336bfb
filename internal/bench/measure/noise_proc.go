package measure

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// readPressure reads this system's pressure on the CPUs; false where it has none.
func readPressure() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0, false
	}
	return parsePressure(string(text))
}

// tick is the unit of CPU times in /proc, the same on all common systems.
const tick = 10 * time.Millisecond

// OwnCPU is the CPU time that this process and all that descend from it have used;
// zero where there is no /proc. Others on the machine disturb it less than the clock.
func OwnCPU() time.Duration { return time.Duration(ownTicks(readProcesses(), os.Getpid())) * tick }

// readCPUTimes reads who used the CPUs; false where there is no /proc.
func readCPUTimes() (cpuTimes, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTimes{}, false
	}
	t, ok := parseCPUTimes(string(text))
	if !ok {
		return cpuTimes{}, false
	}
	t.own = ownTicks(readProcesses(), os.Getpid())
	return t, true
}

// parseCPUTimes reads the first line of /proc/stat: user, nice, system, idle, iowait,
// irq, softirq, steal; what guests use is in user already.
func parseCPUTimes(text string) (cpuTimes, bool) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return cpuTimes{}, false
	}
	var t cpuTimes
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return cpuTimes{}, false
		}
		t.all += n
		if i != 3 && i != 4 {
			t.busy += n
		}
	}
	return t, true
}

// process is what one line of /proc/PID/stat says of it.
type process struct {
	parent int
	ticks  int64 // CPU time used by it and by the children that it has waited for
}

func readProcesses() map[int]process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		if p, ok := parseProcess(string(text)); ok {
			all[pid] = p
		}
	}
	return all
}

// parseProcess takes fields 4 (parent) and 14 to 17 (CPU times). Field 2 is a name
// that may hold blanks and brackets.
func parseProcess(text string) (process, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return process{}, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 15 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, false
	}
	p := process{parent: parent}
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return process{}, false
		}
		p.ticks += n
	}
	return p, true
}

// ownTicks adds up a process and all that descend from it.
func ownTicks(all map[int]process, root int) int64 {
	var sum int64
	for pid := range all {
		if descends(all, pid, root) {
			sum += all[pid].ticks
		}
	}
	return sum
}

func descends(all map[int]process, pid, root int) bool {
	for range len(all) {
		if pid == root {
			return true
		}
		p, ok := all[pid]
		if !ok {
			return false
		}
		pid = p.parent
	}
	return false
}
