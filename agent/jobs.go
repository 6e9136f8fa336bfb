package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/agent/shell"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// attempt names one attempt at one job.
type attempt struct {
	job    string
	number int32
}

// heldJob is an attempt that this machine answers for: from its assignment until
// the router has acknowledged its result. It occupies a place until its processes
// are gone.
type heldJob struct {
	accepted bool   // its script has started
	stop     func() // ends its processes; may be called again
	canceled bool   // stop was called for the router, who wants to hear the end
	why      string // what the router gave as the reason
	forget   bool   // nobody wants its result
	timeout  time.Duration
	aloneFor time.Duration // how long it may go on without a router; 0 = for as long as it takes
	place    *shell.Place  // where it runs; nil: it has not started

	result *typesv1.JobResult // set when it has ended
	sentAt time.Time          // when result went out on this link; zero: not yet
}

// places counts the jobs that run and the ended ones that are not acknowledged.
func (a *agent) places() (busy, unacked int) {
	for _, h := range a.held {
		if h.result == nil {
			busy++
		}
	}
	return busy, len(a.held) - busy
}

// running lists the jobs that run.
func (a *agent) running() []*runnerv1.RunningJob {
	return a.list(func(h *heldJob) bool { return h.result == nil })
}

// answersFor lists the jobs that a router must not give to anybody else: also
// those that have ended and whose result comes after the registration.
func (a *agent) answersFor() []*runnerv1.RunningJob {
	return a.list(func(h *heldJob) bool { return !h.forget })
}

func (a *agent) list(which func(*heldJob) bool) []*runnerv1.RunningJob {
	var jobs []*runnerv1.RunningJob
	for ref, h := range a.held {
		if which(h) {
			jobs = append(jobs, &runnerv1.RunningJob{JobId: ref.job, Attempt: ref.number})
		}
	}
	return jobs
}

// assign takes a job or gives it back. Being told twice of the same attempt
// starts it once. What comes along is acknowledged first: it may be what kept the place.
func (a *agent) assign(ctx context.Context, m *runnerv1.Assign) {
	for _, ack := range m.GetAcks() {
		a.acknowledged(ack)
	}
	ref := attempt{m.GetJob().GetId(), m.GetAttempt()}
	if h := a.held[ref]; h != nil {
		a.repeat(ref, h)
		return
	}
	if a.beside != nil {
		a.refuseAll(ref)
		return
	}
	job, err := readJob(m.GetJob())
	if err != nil {
		a.refuse(ref, runnerv1.RefusalCode_REFUSAL_CODE_INVALID, err.Error())
		return
	}
	if code, why := a.noPlaceFor(ref); why != "" {
		a.refuse(ref, code, why)
		return
	}
	runCtx, stop := context.WithCancel(ctx)
	a.held[ref] = &heldJob{stop: stop, timeout: job.EffectiveTimeout(), aloneFor: m.GetAloneFor().AsDuration()}
	spec := a.spec(ref, job)
	a.jobs.Go(func() {
		defer stop()
		outcome, err := shell.Run(runCtx, spec, func(p *shell.Place) { a.started <- jobStart{ref, p} })
		a.ended <- jobEnd{ref, outcome, err}
	})
}

// repeat answers an assignment that is known.
func (a *agent) repeat(ref attempt, h *heldJob) {
	switch {
	case h.result != nil:
		a.deliver(ref, h)
	case h.accepted:
		a.send(acceptedMessage(ref))
	}
}

// noPlaceFor says why there is no place; "" when there is one.
func (a *agent) noPlaceFor(ref attempt) (runnerv1.RefusalCode, string) {
	const full = runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED
	if a.draining() {
		return runnerv1.RefusalCode_REFUSAL_CODE_DRAINING, "draining"
	}
	if a.unhealthy != "" {
		return full, "unhealthy"
	}
	for other, h := range a.held {
		if other.job == ref.job && h.result == nil {
			return full, "another attempt at this job is still running here"
		}
	}
	busy, unacked := a.places()
	switch {
	case busy >= a.o.Capacity:
		return full, fmt.Sprintf("all %d places are taken", a.o.Capacity)
	case unacked >= MaxUnacked:
		return full, fmt.Sprintf("%d results are not acknowledged", unacked)
	case len(a.held) >= spillway.MaxCapacityPerInst: // more could not be registered again
		return full, fmt.Sprintf("%d jobs are held", len(a.held))
	}
	return 0, ""
}

func (a *agent) refuse(ref attempt, code runnerv1.RefusalCode, why string) {
	a.log.Info("job refused", "job", ref.job, "attempt", ref.number, "code", code, "reason", why)
	a.send(refusedMessage(ref, code, why))
}

// readJob checks what the router sent as if it came from anybody: what runs here
// is this machine's risk.
func readJob(p *typesv1.Job) (*spillway.Job, error) {
	job := &spillway.Job{
		ID:     spillway.JobID(p.GetId()),
		Name:   p.GetName(),
		Script: p.GetScript(),
		Env:    p.GetEnv(),
	}
	if p.GetTimeout() != nil {
		job.Timeout = p.GetTimeout().AsDuration()
	}
	return job, job.Validate()
}

// spec is the job as the shell runs it. What says which job this is comes last,
// so that a job can't claim to be another one.
func (a *agent) spec(ref attempt, job *spillway.Job) shell.Spec {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		env = append(env, name+"="+job.Env[name])
	}
	env = append(env,
		"CI=true",
		"CI_JOB_ID="+ref.job,
		"CI_JOB_NAME="+job.Name,
		"SPILLWAY_JOB_ID="+ref.job,
		"SPILLWAY_ATTEMPT="+strconv.Itoa(int(ref.number)),
		"SPILLWAY_POOL="+a.pool,
		"SPILLWAY_MACHINE_ID="+a.o.MachineID,
		"SPILLWAY_INSTANCE_ID="+a.o.InstanceID,
	)
	return shell.Spec{
		Parent: a.o.WorkDir, Script: job.Script, Env: env,
		Timeout: job.EffectiveTimeout(), Grace: a.o.StopGrace, LogFile: a.o.JobLogs, Sockets: a.o.Debug,
	}
}

// jobStarted accepts the job: only now is it sure that it can be run here.
func (a *agent) jobStarted(start jobStart) {
	ref := start.ref
	h := a.held[ref]
	h.accepted, h.place = true, start.place
	a.log.Info("job started", "job", ref.job, "attempt", ref.number)
	if h.forget {
		return
	}
	a.send(acceptedMessage(ref))
	a.send(statusMessage(ref, nil))
}

// jobEnded frees the place and reports the end.
func (a *agent) jobEnded(end jobEnd) {
	h := a.held[end.ref]
	if end.outcome.CleanUp != nil {
		a.log.Error("job left something behind", "job", end.ref.job, "attempt", end.ref.number, "error", end.outcome.CleanUp)
	}
	switch {
	case h.forget:
		delete(a.held, end.ref)
		a.log.Info("job cut short", "job", end.ref.job, "attempt", end.ref.number)
	case end.err != nil: // given back untouched: another machine may be able to run it
		delete(a.held, end.ref)
		a.refuse(end.ref, startRefusal(end.err), end.err.Error())
	default:
		h.result, h.place = result(h, &end.outcome), nil
		a.log.Info("job ended", "job", end.ref.job, "attempt", end.ref.number, "state", h.result.GetState(), "reason", h.result.GetReason(), "exit_code", h.result.GetExitCode())
		a.deliver(end.ref, h)
	}
}

func startRefusal(err error) runnerv1.RefusalCode {
	if errors.Is(err, shell.ErrInvalid) {
		return runnerv1.RefusalCode_REFUSAL_CODE_INVALID
	}
	return runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED
}

// result says how a job ended, in the words of the wire. A job that ended by
// itself just before it was to be stopped has ended by itself.
func result(h *heldJob, o *shell.Outcome) *typesv1.JobResult {
	r := &typesv1.JobResult{
		State:    typesv1.JobState_JOB_STATE_FAILED,
		ExitCode: int32(o.ExitCode),
		Output:   o.Output,
	}
	switch {
	case o.Cause == shell.TimedOut:
		r.Reason, r.Detail = string(spillway.JobExecutionTimeout), fmt.Sprintf("the time limit of %s was reached", h.timeout)
	case o.Cause == shell.Stopped:
		r.State, r.Reason, r.Detail = typesv1.JobState_JOB_STATE_CANCELED, string(spillway.JobCanceled), sentence(h.why)
	case o.ExitCode == 0:
		r.State = typesv1.JobState_JOB_STATE_COMPLETED
	default:
		r.Reason, r.Detail = string(spillway.ScriptFailure), fmt.Sprintf("exit code %d", o.ExitCode)
	}
	return r
}

// cancelJob ends a job for the router. One that is not here, or has ended, needs
// no answer: its refusal or result is on the way.
func (a *agent) cancelJob(m *runnerv1.CancelJob) {
	h := a.held[attempt{m.GetJobId(), m.GetAttempt()}]
	if h == nil || h.result != nil || h.canceled {
		return
	}
	a.log.Info("job canceled", "job", m.GetJobId(), "attempt", m.GetAttempt(), "reason", m.GetReason())
	h.canceled, h.why = true, m.GetReason()
	h.stop()
}

// acknowledged lets go of a result. A stale attempt that still runs is ended:
// the job is somebody else's now.
func (a *agent) acknowledged(m *runnerv1.StatusAck) {
	ref := attempt{m.GetJobId(), m.GetAttempt()}
	h := a.held[ref]
	switch {
	case h == nil:
	case h.result != nil:
		delete(a.held, ref)
	case m.GetStale():
		a.drop(ref, "stale")
	}
}

// drop ends an attempt that is no longer ours, and reports nothing of it.
func (a *agent) drop(ref attempt, why string) {
	h := a.held[ref]
	if h == nil {
		return
	}
	a.log.Info("job is no longer ours", "job", ref.job, "attempt", ref.number, "reason", why)
	if h.result != nil {
		delete(a.held, ref)
		return
	}
	h.forget = true
	h.stop()
}

// deliverResults sends the results that this link has not carried yet, or not for
// a while.
func (a *agent) deliverResults() {
	for ref, h := range a.held {
		if h.result != nil && time.Since(h.sentAt) >= resendAfter {
			a.deliver(ref, h)
		}
	}
}

// deliver sends a result. Before Registered it waits: all that are due follow that.
func (a *agent) deliver(ref attempt, h *heldJob) {
	if a.registeredAt.IsZero() {
		return
	}
	h.sentAt = time.Now()
	a.send(statusMessage(ref, h.result))
}
