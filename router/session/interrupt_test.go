package session_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

const (
	spot        = runnerv1.InterruptionKind_INTERRUPTION_KIND_SPOT
	rebalance   = runnerv1.InterruptionKind_INTERRUPTION_KIND_REBALANCE
	terminating = runnerv1.InterruptionKind_INTERRUPTION_KIND_TERMINATING
)

func notice(kind runnerv1.InterruptionKind, deadline *timestamppb.Timestamp) *runnerv1.Interruption {
	return &runnerv1.Interruption{Kind: kind, Deadline: deadline}
}

// beat says a heartbeat of an idle machine.
func (r *runner) beat(h *runnerv1.Heartbeat) {
	r.t.Helper()
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: h}})
}

// From the moment that the notice is taken in, the machine gets nothing; and its
// record tells every replica, so that the one whose scaler has the pool replaces it.
func TestAnInterruptedMachineGetsNoJobAndEveryReplicaKnows(t *testing.T) {
	one := startPlane(t, planeConfig{})
	two := startPlane(t, planeConfig{store: one.store, options: session.Options{Replica: "replica-2"}})
	m := one.linux("m1", 1)
	at := time.Now().Add(2 * time.Minute).Truncate(time.Second).UTC()
	m.beat(&runnerv1.Heartbeat{Interruption: notice(spot, timestamppb.New(at))})
	require.False(t, m.assignedBeforeAnswer()) // it is taken in
	one.mustPush(job("j1"))
	require.False(t, m.assignedBeforeAnswer())
	two.machine("m1", func(k *router.Machine) bool {
		return k.InterruptionKind == router.InterruptionSpot && k.InterruptionDeadline.Equal(at) && !k.InterruptedAt.IsZero() && k.Replica == "replica-1"
	})
	two.linux("m2", 1).assigned()
	require.False(t, m.assignedBeforeAnswer())
	require.Equal(t, 1, one.seen.times("interrupted"))

	// Another replica is told again, before it gives out anything.
	m.end()
	one.machine("m1", func(k *router.Machine) bool { return !k.Connected })
	elsewhere := two.connect(linuxToken, &runnerv1.Register{MachineId: "m1", InstanceId: "i-m1", Capacity: 1, Interruption: notice(spot, timestamppb.New(at))})
	two.mustPush(job("j2"))
	require.False(t, elsewhere.assignedBeforeAnswer())
	two.machine("m1", func(k *router.Machine) bool {
		return k.Replica == "replica-2" && k.InterruptionKind == router.InterruptionSpot && k.InterruptionDeadline.Equal(at)
	})
}

// T1: what a machine says is about itself, whatever else it knows.
func TestT1_ANoticeIsAboutTheMachineThatGivesIt(t *testing.T) {
	p := startPlane(t, planeConfig{})
	liar, other := p.linux("m1", 1), p.linux("m2", 1)
	liar.beat(&runnerv1.Heartbeat{Interruption: notice(terminating, nil), Unhealthy: "broken"})
	require.False(t, liar.assignedBeforeAnswer())
	p.mustPush(job("j1"))
	other.assigned()
	p.machine("m1", func(k *router.Machine) bool {
		return k.InterruptionKind == router.InterruptionTerminating && k.Unhealthy == "broken"
	})
	p.machine("m2", func(k *router.Machine) bool { return k.InterruptionKind == "" && k.Unhealthy == "" })
}

func TestARebalanceRecommendationIsNoReasonToStop(t *testing.T) {
	p := startPlane(t, planeConfig{})
	m := p.linux("m1", 1)
	m.beat(&runnerv1.Heartbeat{Interruption: notice(rebalance, nil)})
	p.mustPush(job("j1"))
	m.finish("j1", m.assigned().GetAttempt())
	m.acked()
	m.beat(&runnerv1.Heartbeat{Interruption: notice(spot, nil)})
	require.False(t, m.assignedBeforeAnswer())
	m.beat(&runnerv1.Heartbeat{Interruption: notice(rebalance, nil)}) // too late to take it back
	m.beat(&runnerv1.Heartbeat{})
	p.mustPush(job("j2"))
	require.False(t, m.assignedBeforeAnswer())
	p.machine("m1", func(k *router.Machine) bool { return k.InterruptionKind == router.InterruptionSpot })
	require.Equal(t, 2, p.seen.times("interrupted"))
}

func TestADeadlineThatCantBeRightIsNotKnown(t *testing.T) {
	p := startPlane(t, planeConfig{})
	m := p.linux("m1", 1)
	m.beat(&runnerv1.Heartbeat{Interruption: notice(spot, timestamppb.New(time.Now().Add(30*24*time.Hour)))})
	p.machine("m1", func(k *router.Machine) bool {
		return k.InterruptionKind == router.InterruptionSpot && k.InterruptionDeadline.IsZero()
	})
}

func TestAnUnhealthyMachineGetsNoJobUntilItIsWell(t *testing.T) {
	p := startPlane(t, planeConfig{})
	m := p.linux("m1", 1)
	longest := strings.Repeat("x", session.MaxUnhealthyBytes)
	m.beat(&runnerv1.Heartbeat{Unhealthy: longest})
	p.machine("m1", func(k *router.Machine) bool { return k.Unhealthy == longest })
	p.mustPush(job("j1"))
	require.False(t, m.assignedBeforeAnswer())
	// What changes too fast is heard when it is said again.
	require.Eventually(t, func() bool {
		m.beat(&runnerv1.Heartbeat{})
		return m.assignedBeforeAnswer()
	}, patience, 100*time.Millisecond)
	p.machine("m1", func(k *router.Machine) bool { return k.Unhealthy == "" })
	require.Equal(t, 2, p.seen.times("health"))
}

func TestAComplaintIsMadeFitForALogLine(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, Unhealthy: "disk\x1b[31m full\nERROR fake\t"})
	p.machine("m1", func(k *router.Machine) bool { return k.Unhealthy == "disk [31m full ERROR fake" })
	require.NotContains(t, p.seen.text(), "\x1b")
}

func TestRegistersWithABadNoticeAreRefused(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.open(linuxToken)
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m1", Capacity: 1, Interruption: notice(99, nil)}}})
	require.Equal(t, codes.InvalidArgument, status.Code(r.ended()))
}

// A job that is given out in the same moment as the notice comes is never lost: the
// machine gives it back, or has it before it knows. Nothing orders the two streams
// of messages, so many interleavings are tried.
func TestC26_AJobGivenOutWithTheNoticeIsNotLost(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := startPlane(t, planeConfig{options: session.Options{Pools: []spillway.Pool{linuxPool(4)}}})
	safe := p.linux("safe", 4)
	stop := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		runAll(safe, stop)
	}()
	const rounds, perRound = 40, 6
	givenBack := 0
	for round := 0; round < rounds || givenBack == 0; round++ {
		require.Less(t, round, 25*rounds, "without a job that came too late nothing is shown")
		m := p.linux(fmt.Sprintf("m%d", round), 4)
		jobs := make([]*typesv1.Job, perRound)
		for i := range jobs {
			jobs[i] = job(fmt.Sprintf("j%d-%d", round, i))
		}
		before := rng.IntN(perRound)
		p.mustPush(jobs[:before]...)
		m.beat(&runnerv1.Heartbeat{Draining: true, Interruption: notice(spot, nil)})
		p.mustPush(jobs[before:]...)
		givenBack += giveBack(m)
		require.False(t, m.assignedBeforeAnswer(), "round %d", round)
		for _, j := range jobs {
			p.waitFor(j.GetId(), completed)
		}
		m.end()
	}
	close(stop)
	safe.heartbeat(0, false)
	safe.end()
	<-served
	require.Zero(t, p.seen.times("lost"))
}

// giveBack refuses what was given to a machine before its notice was taken in, and
// counts that.
func giveBack(m *runner) (jobs int) {
	m.t.Helper()
	m.assignedBeforeAnswer()
	for _, aside := range m.asides {
		if a := aside.GetAssign(); a != nil {
			m.refuse(a.GetJob().GetId(), a.GetAttempt(), runnerv1.RefusalCode_REFUSAL_CODE_DRAINING)
			jobs++
		}
	}
	m.asides = nil
	return jobs
}

// runAll is a machine on which every job ends at once.
func runAll(m *runner, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case said, open := <-m.messages:
			if !open {
				return
			}
			if a := said.GetAssign(); a != nil {
				_ = m.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
					JobId: a.GetJob().GetId(), Attempt: a.GetAttempt(), Result: &typesv1.JobResult{State: completed},
				}}})
			}
		}
	}
}
