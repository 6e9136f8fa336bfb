package wire

import "slices"

// State is the state of an instance in the words of the fleeting library's Go
// interface. The set is closed.
type State string

// The states. Unknown is one that the profile doesn't name.
const (
	Unknown  State = "unknown"
	Creating State = "creating"
	Running  State = "running"
	Deleting State = "deleting"
	Deleted  State = "deleted"
	Timeout  State = "timeout"
)

// States are those that a profile can name.
var States = []State{Creating, Running, Deleting, Deleted, Timeout, Unknown}

// needed are the states without which no plugin can be driven: one that is never
// running would be replaced for ever.
var needed = []State{Creating, Running, Deleting}

func isState(s State) bool { return slices.Contains(States, s) }
