package session

import (
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// said takes in one message of a registered machine; it has passed checkMessage.
// A panic ends that stream: a machine that finds a bug must not be able to take
// every replica down with it.
func (d *Dispatcher) said(now time.Time, s *stream, m *runnerv1.RunnerMessage) {
	if d.streams[s.machine] != s || !s.registered {
		return // what an older stream said; what matters is said again
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			s.stop(panicStatus(d.opt.Events, panicked))
		}
	}()
	switch m := m.GetMessage().(type) {
	case *runnerv1.RunnerMessage_Heartbeat:
		d.heartbeat(now, s, m.Heartbeat)
	case *runnerv1.RunnerMessage_JobAccepted:
		d.accepted(now, s, refOf(m.JobAccepted.GetJobId(), m.JobAccepted.GetAttempt()))
	case *runnerv1.RunnerMessage_JobRefused:
		d.refused(now, s, m.JobRefused)
	case *runnerv1.RunnerMessage_JobStatus:
		ref := refOf(m.JobStatus.GetJobId(), m.JobStatus.GetAttempt())
		if m.JobStatus.GetResult() == nil {
			d.accepted(now, s, ref)
			return
		}
		d.finished(now, s, ref, resultFromProto(m.JobStatus.GetResult()))
	case *runnerv1.RunnerMessage_DrainAck:
		d.drainAcked(now, s, m.DrainAck)
	}
}

// heartbeat takes what a machine says of itself, and ends what it runs and should
// not: an order to end it may have been lost with a stream.
func (d *Dispatcher) heartbeat(now time.Time, s *stream, m *runnerv1.Heartbeat) {
	running := make([]router.JobRef, len(m.GetRunning()))
	for i, job := range m.GetRunning() {
		running[i] = refOf(job.GetJobId(), job.GetAttempt())
	}
	d.takeWord(now, s, m.GetInterruption(), m.GetUnhealthy())
	before, _ := d.engine.Machine(s.machine)
	d.engine.Heartbeat(now, s.machine, int(m.GetBusy()), m.GetDraining(), running)
	for _, ref := range running {
		if _, ok := d.holds(s, ref); ok {
			d.start(now, s, ref.ID)
		} else if !d.outcomes.finishes(s.machine, ref) {
			d.endOn(s, ref, "superseded")
		}
	}
	after, _ := d.engine.Machine(s.machine)
	d.records.heartbeat(s.machine, m.GetDraining(), saysMore(&before, &after))
	d.waitIfIdle(now, s)
}

// saysMore reports whether a heartbeat has changed more than when its machine was heard.
func saysMore(before, after *router.Machine) bool {
	return before.HeartbeatAt.IsZero() || before.InUse() != after.InUse() || before.Uses != after.Uses ||
		before.Draining != after.Draining || !before.DrainAckedAt.Equal(after.DrainAckedAt) || !before.StoppingSince.Equal(after.StoppingSince)
}

// holds returns the whole ref of an attempt that is on s's machine by our book.
func (d *Dispatcher) holds(s *stream, named router.JobRef) (router.JobRef, bool) {
	ref, on, ok := d.engine.Holder(named.ID)
	if !ok || on != s.machine || ref.Attempt != named.Attempt {
		return router.JobRef{}, false
	}
	return ref, true
}

// accepted: the machine has the job, or its script has started. One that we have
// given up in the meantime must not go on there.
func (d *Dispatcher) accepted(now time.Time, s *stream, named router.JobRef) {
	if d.engine.Accepted(now, s.machine, named) {
		d.start(now, s, named.ID)
		return
	}
	if !d.outcomes.finishes(s.machine, named) {
		d.endOn(s, named, "superseded")
	}
}

// start writes, once, that the job runs.
func (d *Dispatcher) start(now time.Time, s *stream, id spillway.JobID) {
	job := d.jobs[id]
	if job == nil || job.started {
		return
	}
	job.started, job.startedAt = true, now
	d.outcomes.add(job, s.pool.Name, s.machine, spillway.Running, spillway.JobResult{})
	tell(d.opt.Events.JobStarted, JobStarted{Ref: job.ref, Machine: s.machine, Pool: s.pool.Name})
}

// refused gives the job back to the queue. Until its next heartbeat a machine that
// is full or stopping is offered nothing.
func (d *Dispatcher) refused(now time.Time, s *stream, m *runnerv1.JobRefused) {
	ref, ok := d.holds(s, refOf(m.GetJobId(), m.GetAttempt()))
	if !ok {
		return
	}
	lost := m.GetCode() == runnerv1.RefusalCode_REFUSAL_CODE_LOST
	full := m.GetCode() != runnerv1.RefusalCode_REFUSAL_CODE_INVALID && !lost
	d.engine.Refused(now, s.machine, ref, full)
	d.drop(ref, s.machine)
	if lost {
		d.lostThere(ref, s, m.GetDetail())
		return
	}
	code := refusalText(m.GetCode())
	detail := "refused by its machine: " + code
	if s.pool.Capability.Origin == spillway.CellOrigin && m.GetDetail() != "" { // in this process: it says why
		detail = m.GetDetail()
	}
	d.outcomes.release(store.Release{Ref: ref, Detail: detail})
	tell(d.opt.Events.JobRefused, JobRefused{Ref: ref, Machine: s.machine, Pool: s.pool.Name, Code: code})
}

func refusalText(code runnerv1.RefusalCode) string {
	switch code {
	case runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED:
		return "resource_exhausted"
	case runnerv1.RefusalCode_REFUSAL_CODE_DRAINING:
		return "draining"
	case runnerv1.RefusalCode_REFUSAL_CODE_INVALID:
		return "invalid"
	default:
		return "unspecified"
	}
}

// finished frees the place at once and has the result written. It is acknowledged
// when it is stored: until then the machine keeps it.
func (d *Dispatcher) finished(now time.Time, s *stream, named router.JobRef, result spillway.JobResult) {
	switch ref, ok := d.holds(s, named); {
	case ok:
		job := d.jobs[ref.ID]
		if job == nil {
			job = &heldJob{ref: ref}
		}
		d.engine.Finished(now, s.machine, ref)
		d.tunnels.endJob(ref.ID, errJobEnded)
		d.drop(ref, s.machine)
		d.outcomes.add(job, s.pool.Name, s.machine, result.State, result)
	case d.outcomes.finishes(s.machine, named):
		// Sent again after a reconnect; the first one is still being written.
	default:
		d.late.add(s, named, result)
	}
}

// drop forgets what was remembered of a job that has left its machine.
func (d *Dispatcher) drop(ref router.JobRef, machine spillway.MachineID) {
	delete(d.jobs, ref.ID)
	d.tunnels.endJob(ref.ID, errAttemptOver)
	d.records.changed(machine)
}

// giveUp takes an attempt off the book that is no longer its machine's, and has
// the machine end it.
func (d *Dispatcher) giveUp(now time.Time, ref router.JobRef, on spillway.MachineID, reason string) {
	d.engine.Drop(now, ref)
	d.tunnels.endJob(ref.ID, endedEarly(reason))
	d.drop(ref, on)
	if s := d.streams[on]; s != nil && s.registered {
		d.endOn(s, ref, reason)
	}
}

// endOn has a machine end an attempt.
func (d *Dispatcher) endOn(s *stream, ref router.JobRef, reason string) {
	s.send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_CancelJob{CancelJob: &runnerv1.CancelJob{
		JobId: string(ref.ID), Attempt: int32(ref.Attempt), Reason: reason,
	}}})
}

func statusAck(ref router.JobRef, stale bool) *runnerv1.StatusAck {
	return &runnerv1.StatusAck{JobId: string(ref.ID), Attempt: int32(ref.Attempt), Stale: stale}
}
