package agent

import (
	"maps"
	"runtime"
	"strings"

	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// The messages to the router, each in its envelope.

func (a *agent) registerMessage() *runnerv1.RunnerMessage {
	o := &a.o
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{
		MachineId:  o.MachineID,
		InstanceId: o.InstanceID,
		Capacity:   int32(a.toldCapacity()),
		Version:    o.Version,
		Running:    a.answersFor(),
		Labels:     o.labels(),

		Interruption: a.interruption(),
		Unhealthy:    a.complaint(),
		Tunnels:      a.o.Debug && a.beside == nil,
		AcksInAssign: true,
	}}}
}

// labels are those that were given, and the agent's own.
func (o *Options) labels() map[string]string {
	all := map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH}
	maps.Copy(all, o.Labels)
	return all
}

func heartbeatMessage(h *runnerv1.Heartbeat) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: h}}
}

func acceptedMessage(ref attempt) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{
		JobAccepted: &runnerv1.JobAccepted{JobId: ref.job, Attempt: ref.number},
	}}
}

func refusedMessage(ref attempt, code runnerv1.RefusalCode, detail string) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{
		JobRefused: &runnerv1.JobRefused{JobId: ref.job, Attempt: ref.number, Code: code, Detail: sentence(detail)},
	}}
}

// maxDetailBytes bounds a sentence for people, as the router does [bytes]: what it is
// about came from there, and may be as long as a message.
const maxDetailBytes = 1 << 10

func sentence(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxDetailBytes)], "") }

// statusMessage without a result says that the script has started.
func statusMessage(ref attempt, result *typesv1.JobResult) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{
		JobStatus: &runnerv1.JobStatus{JobId: ref.job, Attempt: ref.number, Result: result},
	}}
}

func drainAckMessage(id uint64, draining bool) *runnerv1.RunnerMessage {
	return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_DrainAck{
		DrainAck: &runnerv1.DrainAck{DrainId: id, Draining: draining},
	}}
}
