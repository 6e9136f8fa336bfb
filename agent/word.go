package agent

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway/agent/notices"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// What the machine says of itself: that its instance will be taken away, and that
// it is broken. Each heartbeat says it again, and each registration, so that neither
// a broken stream nor another router can lose it.

// noticed takes in what the cloud says of our instance, and tells the router at
// once. Where a job could be lost with the instance, no more jobs are taken. Those
// that run go on to the end: nothing is gained by ending them before the cloud does,
// and it may leave more time than it promised. The machine does not leave by itself
// either: its group waits for the router's word, or takes it.
func (a *agent) noticed(n notices.Notice) {
	if !n.Supersedes(a.notice) {
		return
	}
	a.log.Warn("the instance will be taken away", "kind", string(n.Kind), "deadline", n.Deadline, "takes_jobs", !n.Kind.Ends(), "running_jobs", a.busy())
	a.notice = n
	a.steer(false)
	a.heartbeat()
}

// felt takes in what our own check says of us; an empty text means that we are well.
func (a *agent) felt(unhealthy string) {
	if unhealthy == a.unhealthy {
		return
	}
	if unhealthy == "" {
		a.log.Info("healthy again")
	} else {
		a.log.Warn("unhealthy: no more jobs are taken", "why", unhealthy)
	}
	a.unhealthy = unhealthy
	a.heartbeat()
}

var kindToProto = map[notices.Kind]runnerv1.InterruptionKind{
	notices.Spot:        runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT,
	notices.Rebalance:   runnerv1.InterruptionKind_INTERRUPTION_KIND_REBALANCE,
	notices.Maintenance: runnerv1.InterruptionKind_INTERRUPTION_KIND_MAINTENANCE,
	notices.Terminating: runnerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING,
}

// interruption is what was noticed, on the wire; nil when that is nothing.
func (a *agent) interruption() *runnerv1.Interruption {
	kind, heard := kindToProto[a.notice.Kind]
	if !heard {
		return nil
	}
	m := &runnerv1.Interruption{Kind: kind}
	if !a.notice.Deadline.IsZero() {
		m.Deadline = timestamppb.New(a.notice.Deadline)
	}
	return m
}
