package session

import (
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// Limits on what a machine may say, each tested at its edge.
const (
	// MaxIDBytes bounds a machine id and an instance id [bytes].
	MaxIDBytes = 128
	// MaxVersionBytes bounds the version of a runner [bytes].
	MaxVersionBytes = 64
	// MaxLabels, MaxLabelNameBytes and MaxLabelValueBytes bound Register.labels.
	MaxLabels          = 64
	MaxLabelNameBytes  = 63
	MaxLabelValueBytes = 255
	// MaxDetailBytes bounds a sentence for people [bytes]; the rest is cut off.
	MaxDetailBytes = 1024
)

// badMessage is the error that ends a stream whose runner broke a rule.
func badMessage(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// checkRegister reports the first rule that m breaks.
func checkRegister(m *runnerv1.Register) error {
	switch {
	case m.GetMachineId() == "":
		return badMessage("register: machine_id is empty")
	case !shortText(m.GetMachineId(), MaxIDBytes):
		return badMessage("register: machine_id must be at most %d bytes of printable ASCII without blanks", MaxIDBytes)
	case !shortText(m.GetInstanceId(), MaxIDBytes):
		return badMessage("register: instance_id must be at most %d bytes of printable ASCII without blanks", MaxIDBytes)
	case !shortText(m.GetVersion(), MaxVersionBytes):
		return badMessage("register: version must be at most %d bytes of printable ASCII without blanks", MaxVersionBytes)
	case m.GetCapacity() < 1:
		return badMessage("register: capacity %d, at least 1 job is needed", m.GetCapacity())
	case len(m.GetLabels()) > MaxLabels:
		return badMessage("register: %d labels, at most %d are allowed", len(m.GetLabels()), MaxLabels)
	}
	for name, value := range m.GetLabels() {
		if len(name) > MaxLabelNameBytes || len(value) > MaxLabelValueBytes {
			return badMessage("register: a label is longer than %d (name) or %d (value) bytes", MaxLabelNameBytes, MaxLabelValueBytes)
		}
	}
	if err := checkWord(m.GetInterruption(), m.GetUnhealthy()); err != nil {
		return err
	}
	return checkRunning(m.GetRunning())
}

// checkMessage reports the first rule that a message after Register breaks.
func checkMessage(m *runnerv1.RunnerMessage) error {
	switch m := m.GetMessage().(type) {
	case *runnerv1.RunnerMessage_Heartbeat:
		if busy := m.Heartbeat.GetBusy(); busy < 0 || busy > spillway.MaxCapacityPerInst {
			return badMessage("heartbeat: busy %d, use 0 to %d", busy, spillway.MaxCapacityPerInst)
		}
		if err := checkWord(m.Heartbeat.GetInterruption(), m.Heartbeat.GetUnhealthy()); err != nil {
			return err
		}
		return checkRunning(m.Heartbeat.GetRunning())
	case *runnerv1.RunnerMessage_JobAccepted:
		return checkAttempt(m.JobAccepted.GetJobId(), m.JobAccepted.GetAttempt())
	case *runnerv1.RunnerMessage_JobRefused:
		if code := m.JobRefused.GetCode(); runnerv1.RefusalCode_name[int32(code)] == "" {
			return badMessage("refusal code %d: this router doesn't know it", code)
		}
		return checkAttempt(m.JobRefused.GetJobId(), m.JobRefused.GetAttempt())
	case *runnerv1.RunnerMessage_JobStatus:
		if err := checkAttempt(m.JobStatus.GetJobId(), m.JobStatus.GetAttempt()); err != nil {
			return err
		}
		return checkResult(m.JobStatus.GetResult())
	case *runnerv1.RunnerMessage_DrainAck:
		return nil
	case *runnerv1.RunnerMessage_Register:
		return badMessage("register may only be the first message of a stream")
	default:
		return badMessage("a message without content, or of a kind that this router doesn't know")
	}
}

func checkRunning(running []*runnerv1.RunningJob) error {
	if len(running) > spillway.MaxCapacityPerInst {
		return badMessage("%d running jobs, at most %d are allowed", len(running), spillway.MaxCapacityPerInst)
	}
	for _, job := range running {
		if err := checkAttempt(job.GetJobId(), job.GetAttempt()); err != nil {
			return err
		}
	}
	return nil
}

func checkAttempt(id string, attempt int32) error {
	if id == "" || !shortText(id, spillway.MaxJobIDBytes) {
		return badMessage("a job id must be 1 to %d bytes of printable ASCII without blanks", spillway.MaxJobIDBytes)
	}
	if attempt < 1 {
		return badMessage("attempt %d of a job, the first is 1", attempt)
	}
	return nil
}

// checkResult: a machine can complete a job, fail it, or confirm that it was
// canceled. Rejecting is not its business.
func checkResult(r *typesv1.JobResult) error {
	if r == nil { // it has started
		return nil
	}
	switch stateFromProto[r.GetState()] {
	case spillway.Completed, spillway.Failed, spillway.Canceled:
	default:
		return badMessage("a job's result must be completed, failed or canceled")
	}
	switch spillway.FailureReason(r.GetReason()) {
	case "", spillway.ScriptFailure, spillway.JobExecutionTimeout, spillway.RunnerSystemFailure, spillway.JobCanceled:
		return nil
	default:
		return badMessage("a failure reason that no machine can give")
	}
}

// resultFromProto reads a result that checkResult let through. What is too long is
// cut, not refused: the machine would send it again for ever.
func resultFromProto(r *typesv1.JobResult) spillway.JobResult {
	result := spillway.JobResult{
		State:    stateFromProto[r.GetState()],
		Reason:   spillway.FailureReason(r.GetReason()),
		Detail:   head(r.GetDetail(), MaxDetailBytes),
		ExitCode: int(r.GetExitCode()),
		Output:   r.GetOutput(),
	}
	if len(result.Output) > spillway.MaxOutputBytes {
		result.Output = result.Output[len(result.Output)-spillway.MaxOutputBytes:]
	}
	if result.State == spillway.Failed && result.Reason == "" {
		result.Reason = spillway.ScriptFailure
	}
	return result
}

// shortText reports whether s is at most limit bytes of printable ASCII without
// blanks: what may become part of a key, a log line or a page.
func shortText(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// head returns at most limit bytes of s, and no half character.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
