package session

import (
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// endedKept is how long it is remembered that a machine's instance has ended. Its
	// stream may take until the next keepalive to break.
	endedKept = 10 * time.Minute
	// maxEnded bounds what is remembered [machines].
	maxEnded = 100_000
)

// MachinesEnded says that the instances of machines are no more, as the lists of
// their cloud show. As soon as such a machine has no stream it is given up, and its
// jobs go back: without this they would wait for one that can't come back. A machine
// whose stream goes on is left alone: whoever speaks is not gone.
//
// It never waits; what the dispatcher has no time to hear is found out later.
func (d *Dispatcher) MachinesEnded(ids []spillway.MachineID) {
	select {
	case d.inbox <- event{kind: machinesEnded, machines: ids}:
	default:
	}
}

// ended notes that machines have ended, and forgets those that ended long ago.
func (d *Dispatcher) ended(now time.Time, ids []spillway.MachineID) {
	u := &d.upkeep
	for id, at := range u.ended {
		if now.Sub(at) >= endedKept {
			delete(u.ended, id)
		}
	}
	for _, id := range ids {
		if _, known := d.engine.Machine(id); known && len(u.ended) < maxEnded {
			u.ended[id] = now
			u.swept = time.Time{} // look at once
		}
	}
}

// lost reports whether a machine that has had no stream since then is given up.
func (d *Dispatcher) lost(now, since time.Time, id spillway.MachineID, heardAt time.Time) bool {
	if at, ended := d.upkeep.ended[id]; ended && now.Sub(at) < endedKept {
		return true
	}
	return now.Sub(since) > d.opt.Grace && now.Sub(heardAt) > d.opt.SilentAfter
}
