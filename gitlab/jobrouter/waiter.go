package jobrouter

import (
	"time"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// stage is where a waiting call stands.
type stage int

const (
	standing stage = iota // in the line
	called                // out of the line: somebody sees whether it gets a job
	answered              // its answer is final
	gone                  // its call has ended without an answer
)

// verdict is what a call is told.
type verdict int

const (
	noJob  verdict = iota // ask again
	aJob                  // here it is
	direct                // ask GitLab yourself
	going                 // we are going away abruptly
	nobody                // nobody is there any more to be told
	moved                 // told to another replica only: we don't poll this token
)

// answer is what a call is told, and what it needs for that.
type answer struct {
	verdict    verdict
	body       []byte // of a job, unchanged
	lastUpdate string
	requestID  string
	// settle must be called once with a job: whether the machine has got it.
	settle func(delivery)
}

// delivery is what became of a job on its way to the machine.
type delivery int

const (
	arrived   delivery = iota // written, and the call was alive
	unwritten                 // surely not written
	broken                    // written, and the call was found to have ended: it hardly was read
	unknown                   // nobody can say
)

// waiter is a call that waits for a job. The line that it stands in owns it: what is
// below the blank line is guarded by the line's lock.
type waiter struct {
	who       *route.Caller
	body      []byte
	requestID string
	relayed   bool // it comes from another replica
	ready     chan struct{}

	candidate
	line     *line // that it stands in
	index    int   // in it
	counted  bool  // in the line's crowd
	visits   bool  // it only stands in line for a job that is there
	stage    stage
	deadline time.Time
	answer   answer
	// wake interrupts the question that is passed on to another replica; nil without one.
	wake func()
}

func newWaiter(who *route.Caller, body []byte, requestID string, f *features) *waiter {
	who.Features = f.raw // one copy for all
	return &waiter{
		who: who, body: body, requestID: requestID, ready: make(chan struct{}),
		candidate: candidate{priority: who.Pool.Priority, twoPhase: who.TwoPhase, features: f},
	}
}
