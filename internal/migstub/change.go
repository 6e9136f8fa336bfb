package migstub

import "time"

// Cause is why an instance ended.
type Cause string

// The causes.
const (
	ByName       Cause = "removed"     // deleteInstances named it
	ByScaleIn    Cause = "scale_in"    // a resize lowered the size and the group chose
	BySomebody   Cause = "external"    // somebody else ended it or lowered the size
	ByRepair     Cause = "repaired"    // recreated: autohealing, or recreateInstances
	Interruption Cause = "interrupted" // preempted
	Maintenance  Cause = "maintenance" // of the host
)

// ChangeKind is what happened to an instance.
type ChangeKind int

// The changes of an instance, in order.
const (
	Launched ChangeKind = iota + 1
	Ready               // it runs; its runner registers now, if it ever does
	// Notice: it will be preempted. On the machine the metadata server says so; the
	// API does not.
	Notice
	Ended // it stops: jobs on it are lost from now on
)

func (k ChangeKind) String() string {
	return [...]string{"none", "launched", "ready", "notice", "ended"}[k]
}

// Change is told to the observer of a Cloud.
type Change struct {
	At        time.Time
	Kind      ChangeKind
	Group     string
	ID        string // another one after a recreation
	Name      string // the same one after a recreation
	Zone      string
	Registers bool      // with Ready: its runner registers
	Deadline  time.Time // with Notice: when it ends
	Cause     Cause     // with Ended
}
