package sidecar

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The fields of /proc/PID/stat, counted from 0 behind the name: proc(5) counts them
// from 1, and the state is its third.
const (
	stateField   = 0
	startedField = 22 - 3
)

// ticksPerSecond is the kernel's USER_HZ, the unit of times in /proc; it is 100 on
// every platform that Go has.
const ticksPerSecond = 100

// stat is what /proc/PID/stat says of a process.
type stat struct {
	ended   bool
	started uint64 // ticks since the machine's start
}

// readStat reads "pid (name) state ppid …". The name may hold anything, so what counts
// comes after the last parenthesis. No such process is ok = false.
func readStat(pid int) (s stat, ok bool) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= startedField {
		return stat{}, false
	}
	state := fields[stateField][0]
	started, err := strconv.ParseUint(string(fields[startedField]), 10, 64)
	return stat{ended: state == 'Z' || state == 'X', started: started}, err == nil
}

// age of a process.
func (s stat) age() (time.Duration, error) {
	content, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("read /proc/uptime: %w", err)
	}
	first, _, _ := bytes.Cut(content, []byte(" "))
	uptime, err := strconv.ParseFloat(string(first), 64)
	if err != nil {
		return 0, fmt.Errorf("read /proc/uptime: %w", err)
	}
	return time.Duration((uptime - float64(s.started)/ticksPerSecond) * float64(time.Second)), nil
}

// nameOf tells a process from a later one with the same number.
func nameOf(pid int, s stat) string { return fmt.Sprintf("%d@%d", pid, s.started) }
