package scaler

import (
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// Events is told what the loops do. Logs, metrics and the demo subscribe; nil
// functions are skipped. They are called by the pool's own goroutine and must not
// block.
type Events struct {
	Decided func(LedgerEntry) // a decision that did something, or whose reason is new
	Called  func(CallInfo)    // a write to a provider has ended
	Changed func(ChangeInfo)  // something happened to an instance
	Trouble func(TroubleInfo) // something failed; the loop holds and goes on
	Ticked  func(Status)      // a pool's tick has ended
	Looked  func(*Picture)    // the fleet was looked at
}

// LedgerEntry is one decision with all that led to it and what came of it.
type LedgerEntry struct {
	At        time.Time        `json:"at"`
	Pool      string           `json:"pool"`
	From      int              `json:"from"` // usable + booting instances
	To        int              `json:"to"`
	Direction policy.Direction `json:"direction"`
	Reason    policy.Reason    `json:"reason"`
	LimitedBy policy.Reason    `json:"limited_by,omitempty"`
	Trace     []policy.Trace   `json:"trace,omitempty"`
	Action    string           `json:"action,omitempty"` // what was done, for people
	Result    string           `json:"result,omitempty"` // "ok", or what failed
	Epoch     uint64           `json:"epoch"`
}

// CallInfo is one write to a provider.
type CallInfo struct {
	Pool      string
	Op        string // set_desired | remove | withdraw | complete_hook | report_unhealthy
	Args      string
	At        time.Time // of the tick
	Sent      time.Time // by the wall clock
	Took      time.Duration
	Err       error
	Launched  int       // set_desired: how many more than before
	Removed   []string  // remove: the ids that were removed
	OldestJob time.Time // set_desired: when the oldest of the jobs that caused it was submitted
}

func (c CallInfo) String() string {
	s := fmt.Sprintf("%s %s(%s)", c.Pool, c.Op, c.Args)
	if c.Err != nil {
		return s + ": " + c.Err.Error()
	}
	return s
}

// ChangeInfo is something that happened to an instance of a pool.
type ChangeInfo struct {
	Pool string
	At   time.Time
	roster.Change
}

// TroubleInfo is a failure that a loop survived.
type TroubleInfo struct {
	Pool  string // empty: the fleet's
	At    time.Time
	Doing string
	Err   error
}

// Kind classifies the trouble for a metric label.
func (t TroubleInfo) Kind() pluginsdk.Kind { return pluginsdk.KindOf(t.Err) }

func (e *Events) decided(x LedgerEntry) {
	if e.Decided != nil {
		e.Decided(x)
	}
}

func (e *Events) called(x CallInfo) {
	if e.Called != nil {
		e.Called(x)
	}
}

func (e *Events) changed(x ChangeInfo) {
	if e.Changed != nil {
		e.Changed(x)
	}
}

func (e *Events) trouble(x TroubleInfo) {
	if e.Trouble != nil {
		e.Trouble(x)
	}
}

func (e *Events) looked(x *Picture) {
	if e.Looked != nil {
		e.Looked(x)
	}
}

func (e *Events) ticked(x Status) {
	if e.Ticked != nil {
		e.Ticked(x)
	}
}
