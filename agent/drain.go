package agent

import runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"

// draining reports whether no more jobs are taken.
func (a *agent) draining() bool {
	if a.beside != nil {
		return a.cut || a.beside.state.Stopping
	}
	return a.ordered || a.own || a.cut || a.notice.Kind.Ends()
}

// leaving reports whether the machine goes once it is idle.
func (a *agent) leaving() bool { return a.own || a.ordered && a.terminate }

// mayLeave reports whether nothing keeps the machine any more. Results do, for a
// while: a job whose result gets lost is run again.
func (a *agent) mayLeave() bool {
	if a.beside != nil {
		return a.cut || a.own && !a.beside.Ours() || a.leaving() && a.runnerIsGone()
	}
	busy, unacked := a.places()
	switch {
	case busy > 0:
		return false
	case a.cut:
		return true
	case !a.leaving():
		return false
	case unacked == 0 || a.lingered:
		if unacked > 0 {
			a.log.Error("left with results that the router did not acknowledge", "jobs", unacked)
		}
		return true
	}
	a.armLinger()
	return false
}

// armLinger starts the wait for acknowledgements, once.
func (a *agent) armLinger() {
	if !a.lingering {
		a.lingering = true
		a.linger.Reset(lingerForAcks)
	}
}

// obeyDrain follows an order of the router. It is acknowledged with what is true
// now (nobody can take back that we were told from outside to leave), and the
// heartbeat that says how many jobs are left comes right behind it.
func (a *agent) obeyDrain(d *runnerv1.Drain) {
	if a.ordered != d.GetDraining() {
		a.log.Info("drain ordered by the router", "draining", d.GetDraining(), "terminate", d.GetTerminate(), "reason", d.GetReason())
	}
	a.ordered, a.terminate = d.GetDraining(), d.GetDraining() && d.GetTerminate()
	if a.beside != nil {
		a.owe(d.GetDrainId())
		return
	}
	a.send(drainAckMessage(d.GetDrainId(), a.draining()))
	a.heartbeat()
}

// drainSelf takes no more jobs and leaves when those that run have ended. A runner
// beside us that is not ours goes on.
func (a *agent) drainSelf() {
	_, unacked := a.places()
	a.log.Info("draining", "running_jobs", a.busy(), "unacknowledged_results", unacked, "drain_timeout", a.o.DrainTimeout)
	a.own = true
	a.steer(false)
	a.drainLimit.Reset(a.o.DrainTimeout)
	a.heartbeat()
}

// leaveRefused leaves for good a router that doesn't know us. What we run is lost to
// it; what a runner beside us runs is not, and comes to its end.
func (a *agent) leaveRefused(why error) {
	if a.beside == nil {
		a.cutShort(why)
		return
	}
	a.verdict = why
	a.drainSelf()
}

// endOfDrain cuts short what did not end in time. Results that only wait for
// their acknowledgement have a limit of their own.
func (a *agent) endOfDrain() {
	if a.busy() > 0 {
		a.cutShort(ErrDrainTimeout)
	}
}

// cutShort ends all jobs and has the machine leave for the reason given. Their
// results are not reported: nobody wanted these jobs to end, so the router is to
// see that their machine is lost.
func (a *agent) cutShort(why error) {
	if a.cut {
		return
	}
	a.log.Warn("leaving at once", "reason", why, "running_jobs", a.busy())
	a.cut, a.verdict = true, why
	for _, h := range a.held {
		h.forget = true
		h.stop()
	}
	a.heartbeat()
}
