package providers

import (
	"fmt"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Phase is where a plugin is in its life. The set is closed: it is a metric label.
type Phase string

// The phases.
const (
	Starting   Phase = "starting"   // for the first time
	Ready      Phase = "ready"      // calls are answered
	Restarting Phase = "restarting" // died; calls wait for the next start if their deadline allows
	Broken     Phase = "broken"     // keeps dying: calls fail at once, a start is tried each minute
	Closed     Phase = "closed"
)

// State is a snapshot of a plugin, for people.
type State struct {
	Name     string // of the provider
	Path     string
	SHA256   string
	Phase    Phase
	Since    time.Time // of the phase
	PID      int       // 0 without a process
	Restarts int       // since the control plane's start
	// LastError is why the last process ended or did not start; kept when the next
	// one is ready.
	LastError    string
	RetryAt      time.Time // with Restarting and Broken: the next start
	Plugin       string    // what it calls itself; kept while it is down
	Version      string
	Contract     int // version of the contract that is spoken with it
	Capabilities []pluginsdk.Capability
	Owners       int // Opens without a Close
}

// String is one line for the log.
func (s State) String() string {
	line := fmt.Sprintf("provider %s is %s", s.Name, s.Phase)
	if s.Plugin != "" {
		line += fmt.Sprintf(" (%s %s, contract %d)", s.Plugin, s.Version, s.Contract)
	}
	if s.PID != 0 {
		line += fmt.Sprintf(", pid %d", s.PID)
	}
	if s.Phase != Ready && s.LastError != "" {
		line += ": " + s.LastError
	}
	return line
}

// moment is what the supervisor publishes: it never changes, and changed is
// closed when another has taken its place.
type moment struct {
	state   State
	session *session // with Ready
	err     error    // why there is none
	changed chan struct{}
}
