package asgstub

import "time"

// Cause is why an instance ended.
type Cause string

// The causes.
const (
	ByName       Cause = "removed"      // TerminateInstanceInAutoScalingGroup named it
	ByScaleIn    Cause = "scale_in"     // desired was lowered by a call, and the group chose
	BySomebody   Cause = "external"     // somebody else ended it, or lowered desired
	BySelf       Cause = "self"         // it shut itself down
	Interruption Cause = "interrupted"  // EC2 took a spot instance back
	Rebalance    Cause = "rebalance"    // capacity rebalancing replaced it
	AZRebalanced Cause = "az_rebalance" // the group balanced its zones
	Replaced     Cause = "replaced"     // the group had launched one too many (replace_race)
	Refreshed    Cause = "refresh"      // an instance refresh
	Unhealthy    Cause = "unhealthy"    // SetInstanceHealth said so
	Abandoned    Cause = "abandoned"    // a launching hook ended with ABANDON
	Deleted      Cause = "deleted"      // its group was deleted
)

// ChangeKind is what happened to an instance.
type ChangeKind int

// The changes of an instance, in order.
const (
	Launched ChangeKind = iota + 1
	Ready               // it runs; its runner registers now, if it ever does
	Ended               // it is shut down; it may be listed for a while
)

// Change is told to the observer of a Cloud.
type Change struct {
	At        time.Time
	Kind      ChangeKind
	Group     string
	ID        string
	Registers bool  // with Ready: its runner registers
	Cause     Cause // with Ended
}
