package shell

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInvalid says that the spec can't be run, here or anywhere else.
var ErrInvalid = errors.New("invalid script or environment")

// Limits of one run.
const (
	// OutputTailBytes is how much of the end of the output is kept [bytes]: what a
	// job's result may carry.
	OutputTailBytes = 64 << 10
	// MaxLogBytes bounds the log file [bytes]. The file is a convenience, and a
	// script that prints without end must not fill the disk with it.
	MaxLogBytes = 256 << 20
	// drainOutputWithin is how long the end of the output is waited for after the
	// last process was ended. Data that a pipe still holds is there at once; more
	// time would only help a process that escaped, and that one may hold the pipe
	// for ever.
	drainOutputWithin = 2 * time.Second
)

// TimedOutExitCode is the exit code of a script that reached its time limit, as
// timeout(1) has it.
const TimedOutExitCode = 124

// Spec is what to run.
type Spec struct {
	Parent  string   // existing directory below which the private one is made
	Script  string   // for /bin/sh
	Env     []string // NAME=value, added to the minimal environment; the last of a name counts
	Timeout time.Duration
	Grace   time.Duration // between SIGTERM and SIGKILL
	LogFile bool          // also write the output to output.log in the private directory
	Sockets bool          // make a directory for sockets, which $SPILLWAY_SOCKET_DIR names
}

func (s *Spec) validate() error {
	if s.Timeout <= 0 {
		return fmt.Errorf("%w: a time limit of %s", ErrInvalid, s.Timeout)
	}
	if strings.ContainsRune(s.Script, 0) {
		return fmt.Errorf("%w: the script holds a NUL byte", ErrInvalid)
	}
	for _, entry := range s.Env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(name, 0) {
			return fmt.Errorf("%w: an environment entry without a proper name", ErrInvalid)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("%w: environment variable %.40q holds a NUL byte", ErrInvalid, name)
		}
	}
	return nil
}

// Cause says why a script ended.
type Cause int

// The causes.
const (
	Exited   Cause = iota // by itself
	TimedOut              // it reached its time limit
	Stopped               // the context of Run ended
)

// Outcome is how a script ended.
type Outcome struct {
	Cause    Cause
	ExitCode int    // of the script; 128 + signal if a signal ended it; TimedOutExitCode with TimedOut
	Output   []byte // the end of it, at most OutputTailBytes
	Dropped  int64  // bytes of output before Output
	// CleanUp is what could not be deleted; nil normally. The script's outcome
	// stands all the same.
	CleanUp error
}
