package agent

import (
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/agent/sidecar"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// A machine that reports another runner, beside which it runs, takes no jobs. What it
// says of busy, draining and broken is that runner's, and an order to drain is carried
// out by it: acknowledged is what it has been told, never what we mean to tell it.

// Beside is a runner that this machine speaks for; a sidecar.Watch is one.
type Beside interface {
	// States delivers what is true of the runner; only the newest counts.
	States() <-chan sidecar.State
	// Order has it stop or serve again. It doesn't wait: a state with the order's number
	// says that it was carried out.
	Order(sidecar.Order)
	// Ours reports whether it ends with us.
	Ours() bool
}

const (
	// repeatedWithin is how long after a registration an order to drain is still taken to
	// stand: the router repeats it if it does. To forget it at once would start a runner
	// again that is stopped a moment later.
	repeatedWithin = 10 * time.Second
	// registerBlind is how long a registration waits for the runner to say how many jobs
	// it takes: a machine that is never registered can't even say that it is broken.
	registerBlind = sidecar.MetricsPatience
)

var errOtherCapacity = errors.New("the runner takes another number of jobs now: register again")

// beside is the runner as it was last heard of. The agent's goroutine owns it.
type beside struct {
	Beside
	state      sidecar.State
	known      bool // it was said how many jobs it takes, or why not
	registered int  // the capacity that the router was told
	last       sidecar.Order
	owed       uint64 // the drain to acknowledge; 0 = none
}

// news is where to hear of the runner beside us; nil, from which nothing is received,
// where there is none.
func (a *agent) news() <-chan sidecar.State {
	if a.beside == nil {
		return nil
	}
	return a.beside.States()
}

// complaint is why this machine is broken, by its own check or the runner's.
func (a *agent) complaint() string {
	if a.unhealthy == "" && a.beside != nil {
		return a.beside.state.Unhealthy
	}
	return a.unhealthy
}

// saw takes in what is true of the runner now.
func (a *agent) saw(s sidecar.State) {
	b := a.beside
	now := time.Now()
	changed := s.BusyAt(now) != b.state.BusyAt(now) || s.Stopping != b.state.Stopping || s.Gone != b.state.Gone || s.Unhealthy != b.state.Unhealthy
	b.state = s
	if !b.known && (s.Capacity > 0 || s.Unhealthy != "" || !s.SeenAt.IsZero() && !s.Gone) {
		b.known = true
		if a.link == nil {
			a.connect.Reset(0)
		}
	}
	if a.link != nil && a.capacity() != b.registered {
		a.link.cancel(errOtherCapacity)
	}
	if b.owed != 0 && s.Order == b.last.Number {
		a.send(drainAckMessage(b.owed, a.draining()))
		b.owed, changed = 0, true
	}
	if changed {
		a.heartbeat()
	}
}

// capacity is how many jobs run here at once.
func (a *agent) capacity() int {
	switch {
	case a.beside == nil:
		return a.o.Capacity
	case a.beside.state.Capacity == 0:
		return max(a.o.Capacity, 1)
	case a.o.Capacity == 0:
		return a.beside.state.Capacity
	default:
		return min(a.o.Capacity, a.beside.state.Capacity)
	}
}

// toldCapacity is capacity, for the router.
func (a *agent) toldCapacity() int {
	n := a.capacity()
	if a.beside != nil {
		a.beside.registered = n
	}
	return n
}

// busy is how many jobs run here, or must be taken for running.
func (a *agent) busy() int {
	if a.beside != nil {
		return min(a.beside.state.BusyAt(time.Now()), spillway.MaxCapacityPerInst)
	}
	busy, _ := a.places()
	return busy
}

// steer has the runner beside us do what all that was heard adds up to. again repeats
// an order that was given: somebody waits for it to be carried out.
func (a *agent) steer(again bool) {
	b := a.beside
	if b == nil {
		return
	}
	stop := a.ordered || a.notice.Kind.Ends() || a.own && b.Ours()
	if stop == b.last.Stop && !again {
		return
	}
	b.last = sidecar.Order{Number: b.last.Number + 1, Stop: stop}
	b.Order(b.last)
}

// owe remembers which drain is acknowledged once the runner was told.
func (a *agent) owe(drain uint64) {
	a.beside.owed = drain
	a.forget.Stop()
	a.steer(true)
}

// runnerIsGone reports whether the last order was to stop, and the runner has ended.
func (a *agent) runnerIsGone() bool {
	b := a.beside
	return b.last.Stop && b.state.Order == b.last.Number && b.state.Gone
}

// refuseAll gives a job back: there is nobody here to run it.
func (a *agent) refuseAll(ref attempt) {
	code := runnerv1.RefusalCode_REFUSAL_CODE_INVALID
	if a.draining() {
		code = runnerv1.RefusalCode_REFUSAL_CODE_DRAINING
	}
	a.refuse(ref, code, "this machine speaks for a runner that gets its jobs elsewhere")
}
