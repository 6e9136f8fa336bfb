package sim

import (
	"context"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
	"github.com/spillway-ci/spillway/scaler"
)

// Options is what a run is played with.
type Options struct {
	// Cloud makes the cloud behind each pool; nil = [FakeCloud].
	Cloud NewCloud
}

// NewCloud makes the cloud behind one pool. An error that wraps ErrUnsupported says
// that this cloud can't do what the story asks of it.
type NewCloud func(Setup) (Cloud, error)

// Setup is what a cloud is made of.
type Setup struct {
	Pool   string
	Config fake.Config      // what the story says of it
	Seed   uint64           // equal seeds, equal stories
	Now    func() time.Time // the virtual clock; the cloud exists since now

	// Busy says whether an instance has jobs, for a group that picks whom it ends.
	Busy func(instance string) bool
	// Observe is told each change when it happens. What exists from the start it is
	// not told: see Cloud.Existing. It only plans: it calls the cloud back never.
	Observe func(Change)
}

// Cloud is a group with all that is around it: what a control plane sees through
// its plugin, what is really there, and what others do to it. One goroutine owns
// it. Where a time is given, what is due until then happens first.
type Cloud interface {
	// Connect starts a plugin process for the group, as a control plane does at its
	// start and after the last one crashed: it remembers nothing. Its calls take no
	// time and happen at Setup.Now.
	Connect(ctx context.Context) (scaler.Group, error)

	// What is really there. It costs no call, and nobody is told of it.

	// Existing are the instances that exist, by launch: all that bills. A later call
	// may change the slice.
	Existing() []Instance
	Live() int // len(Existing())
	Desired() int
	Min() int
	Max() int
	PricePerHour() float64 // of one instance

	// What somebody else does. Nth counts every launch there ever was, 0 = the first;
	// ok is false if that instance does not exist, or the cloud can't do it.

	// SetDesiredExternally returns the number before.
	SetDesiredExternally(now time.Time, to int) (before int)
	Kill(now time.Time, nth int) (id string, ok bool)
	// Interrupt is the notice that the cloud takes the instance at now + notice.
	Interrupt(now time.Time, nth int, notice time.Duration) (n pluginsdk.Interruption, ok bool)
	// Break makes the provider find the instance unhealthy.
	Break(now time.Time, nth int) (id string, ok bool)
	// Keep marks the instance as not to be touched.
	Keep(now time.Time, nth int) (id string, ok bool)

	// Time.

	// Advance lets everything happen that is due at now, in the order of time.
	Advance(now time.Time)
	// NextChange is when something will happen next without a call; ok is false if
	// nothing will.
	NextChange(now time.Time) (at time.Time, ok bool)
}

// Instance is one that exists.
type Instance struct {
	ID         string
	LaunchedAt time.Time
	Registers  bool // its runner registers once it is up
	Doomed     bool // it is taken at a deadline, whatever we do
	Ending     bool // it is being ended: it bills still, and has left the group's desired number
}

// Change is something that has happened to an instance.
type Change struct {
	At        time.Time
	Kind      ChangeKind
	ID        string
	Registers bool  // with Ready: its runner registers now
	Cause     Cause // with Held and Ended
}

// ChangeKind is what has happened.
type ChangeKind int

// The changes of an instance, in order.
const (
	Launched ChangeKind = iota + 1
	Ready               // it is up
	Held                // a terminating hook holds it until CompleteHook, or until that runs out
	Ended               // it bills no longer
)

// Cause is who ended an instance, and how.
type Cause string

// The causes.
const (
	ByName       Cause = "removed"     // Remove named it
	ByScaleIn    Cause = "scale_in"    // SetDesired lowered the number and the group chose
	BySomebody   Cause = "external"    // somebody else ended it or lowered desired
	Interruption Cause = "interrupted" // the cloud took it back
	ByHealth     Cause = "unhealthy"   // the group replaced it, as ReportUnhealthy or its own check told it to
	ByTimeout    Cause = "timeout"     // a launching hook ran out
)
