package jobrouter

import (
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// Events tells what happens, for logs, metrics and whoever needs to know of jobs. Each
// func may be nil; none may block. Tokens are named by their hash, and no job by more
// than what HeldJob has.
type Events struct {
	JobFound    func(HeldJob)               // GitLab handed it out
	JobGiven    func(HeldJob, GivenInfo)    // a machine has it
	JobKept     func(HeldJob)               // no machine takes it now: GitLab is told that we keep it
	JobLeft     func(HeldJob, string)       // given up, and why: GitLab decides what becomes of it
	JobRejected func(HeldJob, string)       // by admission, or because it can't be given: it failed, with this reason
	Refused     func(RefusedInfo)           // a call that was not let wait
	Polled      func(PolledInfo)            // GitLab was asked
	Lease       func(LeaseInfo)             // who polls a token has changed
	Hold        func(HoldInfo)              // a pool is held back, behind another one than before; or no longer, behind none
	Held        func(HoldInfo)              // a question ended without a job, and meanwhile the pool was held back
	Degraded    func(token, why string)     // it goes on with less: without two-phase commit, without a way to the holder
	Trouble     func(doing string, e error) // something failed that will be tried again or is made up for
	Panicked    func(value any, stack []byte)
}

// GivenInfo says who got a job.
type GivenInfo struct {
	Pool    string
	Machine spillway.MachineID
	Waited  time.Duration // since GitLab handed it out
	Relayed bool          // through another replica
}

// RefusedInfo says who was not let wait.
type RefusedInfo struct {
	Who  *route.Caller // nil: not known
	Why  string
	Told string // what the runner was told
}

// PolledInfo is one question to GitLab.
type PolledInfo struct {
	Token    string // hash
	Status   int    // of the answer; 0 = there was none
	Outcome  string // job, none, conflict, limited, refused, failed
	Ill      bool   // it isn't known whether GitLab has a job: the last three
	Took     time.Duration
	FromZero bool  // for no machine yet
	Err      error // why there was no answer
}

// LeaseInfo says who polls a token.
type LeaseInfo struct {
	Token  string // hash
	Holder string // empty: nobody that we know of
	Ours   bool
}

func (e *Events) found(j HeldJob)              { call1(e.JobFound, j) }
func (e *Events) kept(j HeldJob)               { call1(e.JobKept, j) }
func (e *Events) left(j HeldJob, why string)   { call2(e.JobLeft, j, why) }
func (e *Events) rejected(j HeldJob, r string) { call2(e.JobRejected, j, r) }
func (e *Events) given(j HeldJob, i GivenInfo) { call2(e.JobGiven, j, i) }
func (e *Events) refused(i RefusedInfo)        { call1(e.Refused, i) }
func (e *Events) polled(i PolledInfo)          { call1(e.Polled, i) }
func (e *Events) lease(i LeaseInfo)            { call1(e.Lease, i) }
func (e *Events) hold(i HoldInfo)              { call1(e.Hold, i) }
func (e *Events) held(i HoldInfo)              { call1(e.Held, i) }
func (e *Events) degraded(token, why string)   { call2(e.Degraded, token, why) }
func (e *Events) trouble(doing string, err error) {
	call2(e.Trouble, doing, err)
}
func (e *Events) panicked(value any, stack []byte) { call2(e.Panicked, value, stack) }

func call1[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

func call2[A, B any](f func(A, B), a A, b B) {
	if f != nil {
		f(a, b)
	}
}
