package shell

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSweeps bounds how often processes are looked for: one that forks while it
	// is being ended is found at the next look, and one that does nothing but fork
	// would be looked for for ever. On a busy machine a process can be in the middle
	// of execve at many looks in a row.
	maxSweeps = 1000
	// betweenSweeps lets an execve end and a killed process die.
	betweenSweeps = 2 * time.Millisecond
	// maxDoubts is how many looks in a row at nothing worse than a process without an
	// environment are enough.
	maxDoubts = 3
)

// look is what was seen at one look at all processes, or at one, the worst last.
type look int

const (
	clean look = iota // nothing of the script's
	// doubtful is a process that has no environment, by which to know it. It may be meant
	// to have none, but one in execve shows the same for an instant.
	doubtful
	again // some were killed, or what one is could not be seen
)

// groupRuns reports whether the group has a process that has not ended. A zombie
// has: the leader is one until it is reaped.
func groupRuns(leader int) bool {
	for pid := range processes() {
		if s, ok := readStat(pid); ok && s.group == leader && !s.ended() {
			return true
		}
	}
	return false
}

// sign is what tells a script's processes from all others.
type sign struct {
	entry string // in the environment
	dir   string // private, where the script was started
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// killMarked ends every process that bears the sign: those that the
// leader, which is not reaped yet, has started, also when they made a session of
// their own and so left its group.
func killMarked(leader int, ours sign) {
	script, ok := readStat(leader)
	if !ok {
		return // not ours: somebody has reaped it
	}
	doubts := 0
	for range maxSweeps {
		switch sweep(script.started, ours) {
		case clean:
			return
		case doubtful:
			if doubts++; doubts == maxDoubts {
				return
			}
		case again:
			doubts = 0
		}
		time.Sleep(betweenSweeps)
	}
}

// sweep looks at each process once. Processes older than the script can't be its own.
func sweep(since uint64, ours sign) (worst look) {
	for pid := range processes() {
		s, ok := readStat(pid)
		if ok && s.started >= since && !s.ended() && !s.kernel() {
			worst = max(worst, killIfOurs(pid, ours))
		}
	}
	return worst
}

// killIfOurs takes hold of the process before it looks at it (FindProcess opens
// a pidfd), so that it can't end another one that got the same id in between.
func killIfOurs(pid int, ours sign) look {
	process, err := os.FindProcess(pid)
	if err != nil {
		return clean
	}
	defer process.Release() //nolint:errcheck // closes a pidfd
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	switch {
	case errors.Is(err, unix.EIO), err == nil && len(environ) == 0:
		// It may be in the middle of execve, where its environment can't be seen, but
		// where it is can.
		if cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err == nil && within(cwd, ours.dir) {
			_ = process.Kill()
		} else if s, ok := readStat(pid); ok && s.bare {
			return doubtful
		}
		return again
	case err != nil:
		return clean // gone, or another user's
	case hasEntry(environ, ours.entry) && process.Kill() == nil:
		return again
	default:
		return clean
	}
}

func hasEntry(environ []byte, entry string) bool {
	for have := range bytes.SplitSeq(environ, []byte{0}) {
		if string(have) == entry {
			return true
		}
	}
	return false
}

// processes yields the ids of all processes but this one.
func processes() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		proc, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer proc.Close()
		names, _ := proc.Readdirnames(-1)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err == nil && pid != os.Getpid() && !yield(pid) {
				return
			}
		}
	}
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	state   byte
	group   int
	flags   uint64
	started uint64 // clock ticks since the machine's start
	bare    bool   // its environment is empty, and not only not there yet
}

func (s stat) ended() bool  { return s.state == 'Z' || s.state == 'X' }
func (s stat) kernel() bool { return s.flags&kernelThread != 0 }

// The fields of /proc/PID/stat, counted from 0 behind the name: proc(5) counts
// them from 1, and the state is its third.
const (
	stateField   = 0
	groupField   = 5 - 3
	flagsField   = 9 - 3
	startedField = 22 - 3
	// The environment's bounds in memory: both 0 until execve has made it, and where we
	// may not see them.
	envStartField = 50 - 3
	envEndField   = 51 - 3
)

// kernelThread is the kernel's PF_KTHREAD.
const kernelThread = 0x00200000

// readStat reads "pid (name) state ppid pgrp …". The name may hold anything, so
// what counts comes after the last parenthesis.
func readStat(pid int) (s stat, ok bool) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= envEndField {
		return stat{}, false
	}
	s.state = fields[stateField][0]
	group, groupErr := strconv.Atoi(string(fields[groupField]))
	flags, flagsErr := strconv.ParseUint(string(fields[flagsField]), 10, 64)
	started, startedErr := strconv.ParseUint(string(fields[startedField]), 10, 64)
	s.group, s.flags, s.started = group, flags, started
	s.bare = string(fields[envStartField]) != "0" && bytes.Equal(fields[envStartField], fields[envEndField])
	return s, groupErr == nil && flagsErr == nil && startedErr == nil
}
