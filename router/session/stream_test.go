package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

func requireCode(t testing.TB, want codes.Code, err error) {
	t.Helper()
	require.Equal(t, want, status.Code(err), "%v", err)
}

func TestATokenIsNeeded(t *testing.T) {
	p := startPlane(t, planeConfig{})
	for _, token := range []string{"", "wrong", linuxToken + "x", linuxToken[:3]} {
		requireCode(t, codes.Unauthenticated, p.open(token).ended())
	}
	require.NotContains(t, p.seen.text(), "wrong", "a token is a secret, also a wrong one")
}

func TestTheFirstMessageIsARegisterInTime(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{RegisterTimeout: 50 * time.Millisecond}})
	err := p.open(linuxToken).ended() // says nothing
	requireCode(t, codes.InvalidArgument, err)
	require.ErrorContains(t, err, "no register within 50ms")
	r := startPlane(t, planeConfig{}).open(linuxToken)
	r.heartbeat(0, false)
	err = r.ended()
	requireCode(t, codes.InvalidArgument, err)
	require.ErrorContains(t, err, "the first message must be a register")
}

func TestCapacityAndCapabilityAreThePools(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Pools: []spillway.Pool{linuxPool(2), macPool()}}})
	r := p.connect(macToken, &runnerv1.Register{MachineId: "m1", Capacity: 1000, Labels: map[string]string{"tags": "linux"}})
	mac := macPool()
	require.Equal(t, mac.Capability.Fingerprint().String(), r.registered.GetFingerprint())
	p.machine("m1", func(m *router.Machine) bool { return m.Capacity == 1 && m.Pool == "mac" })

	small := p.linux("m2", 1)
	_ = small
	p.machine("m2", func(m *router.Machine) bool {
		return m.Capacity == 1 && m.InstanceID == "i-m2" && m.Replica == "replica-1"
	})
	p.mustPush(job("j1"))
	require.Equal(t, "j1", small.assigned().GetJob().GetId())
	require.False(t, r.assignedBeforeAnswer(), "a mac gets no linux job, whatever it says of itself")
}

func TestANewerStreamReplacesTheOlder(t *testing.T) {
	p := startPlane(t, planeConfig{})
	older := p.linux("m1", 1)
	newer := p.linux("m1", 1)
	requireCode(t, codes.AlreadyExists, older.ended())
	p.mustPush(job("j1"))
	a := newer.assigned()
	newer.finish("j1", a.GetAttempt())
	require.False(t, newer.acked().GetStale())
	p.machine("m1", func(m *router.Machine) bool { return m.Connected })
}

func TestAMachineIDBelongsToItsPool(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	thief := p.open(macToken)
	thief.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m1", Capacity: 1}}})
	requireCode(t, codes.PermissionDenied, thief.ended())
	require.False(t, r.assignedBeforeAnswer(), "the first stream lives on")
}

func TestAReconnectCarriesItsJob(t *testing.T) {
	p := startPlane(t, planeConfig{})
	first := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := first.assigned()
	first.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)
	first.end()
	p.machine("m1", func(m *router.Machine) bool { return !m.Connected && m.Assigned == 1 })

	again := p.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: []*runnerv1.RunningJob{
		{JobId: "j1", Attempt: a.GetAttempt()},
		{JobId: "j1", Attempt: a.GetAttempt() + 7}, // one that never was
	}})
	require.Len(t, again.registered.GetSuperseded(), 1)
	require.False(t, again.assignedBeforeAnswer(), "nothing is started twice")
	again.finish("j1", a.GetAttempt())
	require.False(t, again.acked().GetStale())
	require.Equal(t, int32(1), p.waitFor("j1", completed).GetAttempt())
}

func TestAJobIsCarriedToAnotherReplica(t *testing.T) {
	p := startPlane(t, planeConfig{})
	first := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := first.assigned()
	first.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)
	p.stop()
	requireCode(t, codes.Unavailable, first.ended())

	q := startPlane(t, planeConfig{store: p.store, options: session.Options{Replica: "replica-2"}})
	other := q.connect(linuxToken, &runnerv1.Register{MachineId: "m2", Capacity: 1, Running: []*runnerv1.RunningJob{{JobId: "j1", Attempt: a.GetAttempt()}}})
	require.Len(t, other.registered.GetSuperseded(), 1, "m2 never had that job")
	again := q.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: []*runnerv1.RunningJob{{JobId: "j1", Attempt: a.GetAttempt()}}})
	require.Empty(t, again.registered.GetSuperseded())
	again.finish("j1", a.GetAttempt())
	require.False(t, again.acked().GetStale())
	require.Equal(t, "m1", q.waitFor("j1", completed).GetMachineId())
}

// A replica may be killed after a machine has begun a job and before that is written.
func TestAStartThatWasNeverWrittenIsBelieved(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	classes := []router.ClaimWant{{Class: spillway.Requirement{Tags: job("j1").GetRequirement().GetTags()}.Class(), Pool: "linux", N: 1}}
	claimed, err := p.store.Claim(t.Context(), "a replica that was killed", classes, time.Minute)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	has := []*runnerv1.RunningJob{{JobId: "j1", Attempt: int32(claimed[0].Ref.Attempt)}}

	mac := p.connect(macToken, &runnerv1.Register{MachineId: "m0", Capacity: 1, Running: has})
	require.Len(t, mac.registered.GetSuperseded(), 1, "it was not given to that pool")
	first := p.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: has})
	require.Empty(t, first.registered.GetSuperseded())
	first.heartbeat(1, false, has...)
	require.Equal(t, "m1", p.waitFor("j1", running).GetMachineId())
	second := p.connect(linuxToken, &runnerv1.Register{MachineId: "m2", Capacity: 1, Running: has})
	require.Len(t, second.registered.GetSuperseded(), 1)
	first.finish("j1", has[0].GetAttempt())
	require.False(t, first.acked().GetStale())
	require.Equal(t, "m1", p.waitFor("j1", completed).GetMachineId())
}

func TestAResultIsTakenByAnotherReplica(t *testing.T) {
	p := startPlane(t, planeConfig{})
	first := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := first.assigned()
	first.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)
	p.stop()

	q := startPlane(t, planeConfig{store: p.store, options: session.Options{Replica: "replica-2"}})
	liar := q.linux("m2", 1)
	liar.finish("j1", a.GetAttempt())
	require.True(t, liar.acked().GetStale())
	require.Equal(t, running, q.record("j1").GetState())
	again := q.linux("m1", 1) // it ended meanwhile
	again.finish("j1", a.GetAttempt())
	require.False(t, again.acked().GetStale())
	q.waitFor("j1", completed)
}

func TestARunnerThatDoesNotReadIsEnded(t *testing.T) {
	// The script makes each message large, so that flow control stops them soon.
	p := startPlane(t, planeConfig{options: session.Options{Pools: []spillway.Pool{linuxPool(1000), macPool()}}})
	r := p.openDeaf(linuxToken)
	require.NoError(t, r.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m1", Capacity: 1}}}))
	p.machine("m1", func(m *router.Machine) bool { return m.Connected })
	// It refuses what it never read: each refusal is answered with nothing, each
	// made-up acceptance with an order to end it.
	require.Eventually(t, func() bool {
		for range 10 {
			_ = r.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{Running: inventedJobs(900)}}})
		}
		return p.seen.times("refused stream") == 1
	}, patience, tick)
	require.Contains(t, p.seen.text(), "does not read")
}

func TestASilentMachineIsEndedAndItsJobGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPlane(t, planeConfig{bubble: true, options: session.Options{
			HeartbeatEvery: 20 * time.Millisecond, SilentAfter: 300 * time.Millisecond, Grace: 100 * time.Millisecond,
		}})
		r := p.linux("m1", 1)
		p.mustPush(job("j1"))
		a := r.assigned()
		r.accept("j1", a.GetAttempt())
		requireCode(t, codes.Unavailable, r.ended())
		p.waitFor("j1", pending) // its machine is lost
		require.Equal(t, 1, p.seen.times("lost"))

		other := p.linux("m2", 1)
		b := other.assigned()
		require.Equal(t, a.GetAttempt()+1, b.GetAttempt())
		other.accept("j1", b.GetAttempt())
		late := p.linux("m1", 1)
		late.finish("j1", a.GetAttempt())
		require.True(t, late.acked().GetStale(), "the result of the older attempt")
		require.Equal(t, running, p.waitFor("j1", running).GetState())
		other.finish("j1", b.GetAttempt())
		require.False(t, other.acked().GetStale())
		require.Equal(t, "m2", p.waitFor("j1", completed).GetMachineId())
	})
}

func TestDrain(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	order := func(on bool) *runnerv1.Drain {
		require.NoError(t, p.store.OrderDrain(context.Background(), "linux", []router.DrainOrder{{Machine: "m1", On: on, Terminate: on, Reason: "idle"}}))
		return expect(r, (*runnerv1.RouterMessage).GetDrain)
	}
	d := order(true)
	require.True(t, d.GetDraining())
	require.True(t, d.GetTerminate())
	p.machine("m1", func(m *router.Machine) bool { return m.Draining && m.DrainAckedAt.IsZero() })
	p.mustPush(job("j1"))
	r.say(drainAck(d.GetDrainId()+5, true)) // of an order that was never given
	require.False(t, r.assignedBeforeAnswer(), "ordered is enough, acknowledged or not")
	r.say(drainAck(d.GetDrainId(), true))
	p.machine("m1", func(m *router.Machine) bool { return !m.DrainAckedAt.IsZero() && m.InUse() == 0 })
	r.heartbeat(0, true)
	p.machine("m1", func(m *router.Machine) bool { return m.HeartbeatAt.After(m.DrainAckedAt) })

	// A new stream is told again, and has to acknowledge again.
	r.end()
	r = p.linux("m1", 1)
	d = expect(r, (*runnerv1.RouterMessage).GetDrain)
	require.True(t, d.GetDraining())
	require.False(t, r.assignedBeforeAnswer())

	d = order(false)
	require.False(t, d.GetDraining())
	require.Equal(t, "j1", r.assigned().GetJob().GetId())
	p.machine("m1", func(m *router.Machine) bool { return !m.Draining })
}

func TestSignalsAndWait(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	r.heartbeat(0, false)
	require.Equal(t, "no_jobs", expect(r, (*runnerv1.RouterMessage).GetWait).GetReason())
	p.mustPush(job("j1"), job("j2"), job("j3"))
	require.Eventually(t, func() bool {
		s := expect(r, (*runnerv1.RouterMessage).GetSignal)
		return s.GetTotalJobs() == 2 && s.GetTotalRunners() == 1 && s.GetDemandPerRunner() == 2 && s.GetFingerprint() == r.registered.GetFingerprint()
	}, patience, tick)
}

func TestAStoppingReplicaWritesWhatItWasTold(t *testing.T) {
	x := &toxic{}
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { x.Store = s; return x }})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := r.assigned()
	x.away.Store(true)
	r.finish("j1", a.GetAttempt())
	require.Eventually(t, func() bool { return strings.Contains(p.seen.text(), "store: write outcomes") }, patience, tick)
	x.away.Store(false)
	p.stop()
	record, err := p.store.Get(context.Background(), "j1")
	require.NoError(t, err)
	require.Equal(t, spillway.Completed, record.State)
}

func TestAJobThatIsNotEndedInTimeIsFailed(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Timeouts: router.Timeouts{RunningGrace: time.Millisecond}}})
	r := p.linux("m1", 1)
	j := job("j1")
	j.Timeout = durationpb.New(50 * time.Millisecond)
	p.mustPush(j)
	a := r.assigned()
	require.Equal(t, j.GetTimeout().AsDuration(), a.GetJob().GetTimeout().AsDuration())
	r.accept("j1", a.GetAttempt())
	require.Equal(t, "j1", expect(r, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())
	require.Equal(t, string(spillway.JobExecutionTimeout), p.waitFor("j1", failed).GetResult().GetReason())
}

func TestMachinesAreBounded(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{MaxMachines: 1}})
	p.linux("m1", 1)
	p.linux("m1", 1) // the same one again
	r := p.open(linuxToken)
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m2", Capacity: 1}}})
	requireCode(t, codes.ResourceExhausted, r.ended())
}
