package local

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSweeps bounds how often processes are looked for: one that forks while it
	// is being ended is found at the next look, and one that does nothing but fork
	// would be looked for for ever. On a busy machine a process can be in the middle
	// of execve at many looks in a row.
	maxSweeps = 1000
	// cleanSweeps in a row find nobody before nobody is left: in the middle of execve a
	// part of another environment can be seen.
	cleanSweeps = 3
	// betweenSweeps lets an execve end and a killed process die.
	betweenSweeps = 2 * time.Millisecond
)

// killInstance ends every process that says in its environment that it belongs to
// the instance. A VM takes all that runs on it along when it ends; here that
// includes the jobs of an agent that was killed before it could end them. The
// agent itself, pid, is not reaped yet.
func killInstance(pid int, id string) {
	agent, ok := readStat(pid)
	if !ok {
		return // not ours: somebody has reaped it
	}
	entry := []byte("SPILLWAY_INSTANCE_ID=" + id)
	clean := 0
	for range maxSweeps {
		if clean++; sweep(agent.started, entry) {
			clean = 0
		}
		if clean == cleanSweeps {
			return
		}
		time.Sleep(betweenSweeps)
	}
}

// sweep looks at each process once, and reports whether another look is needed:
// some were killed, or what one is could not be seen. Processes older than the
// agent can't be its own.
func sweep(since uint64, entry []byte) (again bool) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if s, ok := readStat(pid); ok && s.started >= since && !s.ended && !s.kernel {
			again = killIfHas(pid, entry) || again
		}
	}
	return again
}

// killIfHas takes hold of the process before it looks at it (FindProcess opens a
// pidfd), so that it can't end another one that got the same id in between.
func killIfHas(pid int, entry []byte) (again bool) {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer process.Release() //nolint:errcheck // closes a pidfd
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if errors.Is(err, unix.EIO) {
		return true // what was being read has been replaced by an execve
	}
	if err != nil {
		return false // gone, or another user's
	}
	if len(environ) == 0 { // it may be in the middle of execve, where its environment can't be seen
		s, ok := readStat(pid)
		return ok && !s.bare
	}
	for have := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(have, entry) {
			return process.Kill() == nil
		}
	}
	return false
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	ended   bool // a zombie, or just gone
	kernel  bool
	started uint64 // clock ticks since the machine's start
	bare    bool   // its environment is empty, and not only not there yet
}

// The fields of /proc/PID/stat, counted from 0 behind the name: proc(5) counts
// them from 1, and the state is its third.
const (
	stateField   = 0
	flagsField   = 9 - 3
	startedField = 22 - 3
	// The end of the program in memory: 0 until execve is done with all that follows, and 1
	// or 0 where we may not see it.
	endCodeField = 27 - 3
	// The environment's bounds in memory: both 0 until execve begins to make it, both its
	// start while it does, and 0 where we may not see them.
	envStartField = 50 - 3
	envEndField   = 51 - 3

	kernelThread = 0x00200000 // PF_KTHREAD among the flags
)

func readStat(pid int) (s stat, ok bool) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(line)
}

// parseStat reads "pid (name) state ppid pgrp …". The name may hold anything, so
// what counts comes after the last parenthesis.
func parseStat(line []byte) (s stat, ok bool) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= envEndField {
		return stat{}, false
	}
	state := fields[stateField][0]
	flags, flagsErr := strconv.ParseUint(string(fields[flagsField]), 10, 64)
	started, startedErr := strconv.ParseUint(string(fields[startedField]), 10, 64)
	s = stat{ended: state == 'Z' || state == 'X', kernel: flags&kernelThread != 0, started: started}
	endCode, endCodeErr := strconv.ParseUint(string(fields[endCodeField]), 10, 64)
	s.bare = endCode > 1 && string(fields[envStartField]) != "0" && bytes.Equal(fields[envStartField], fields[envEndField])
	return s, flagsErr == nil && startedErr == nil && endCodeErr == nil
}
