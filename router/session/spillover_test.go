package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// ranked is a pool of the tests' tag.
func ranked(name string, priority int, spillAfter time.Duration) spillway.Pool {
	p := linuxPool(1)
	p.Name, p.Priority, p.SpillAfter = name, priority, spillAfter
	return p
}

func rankedPools(spillAfter time.Duration) session.Options {
	return session.Options{Pools: []spillway.Pool{ranked("spot", 0, spillAfter), ranked("warm", 1, 0)}}
}

func (p *plane) member(pool, id string) *runner {
	p.t.Helper()
	return p.connect("token-of-"+pool, &runnerv1.Register{MachineId: id, InstanceId: "i-" + id, Capacity: 1})
}

func TestA6_AFreePlaceOfABetterPoolAtAnotherReplicaGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.OpenEmbedded()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		here := rankedPools(0)
		here.Replica = "replica-1"
		one := startPlane(t, planeConfig{bubble: true, store: s, options: here})
		spot := one.member("spot", "s1")
		one.machine("s1", func(m *router.Machine) bool { return m.Connected })
		there := rankedPools(0)
		there.Replica = "replica-2"
		two := startPlane(t, planeConfig{bubble: true, store: s, options: there})
		warm := two.member("warm", "w1")
		synctest.Wait() // it has read what the other one has

		two.mustPush(job("j1"))
		require.Equal(t, "j1", spot.assigned().GetJob().GetId(), "pushed where only the other pool has a place")
		spot.accept("j1", 1)
		one.machine("s1", func(m *router.Machine) bool { return m.Assigned == 1 })
		two.mustPush(job("j2"))
		require.Equal(t, "j2", warm.assigned().GetJob().GetId(), "the better pool is full everywhere")
	})
}

func TestSignalsCountTheMachinesOfOtherReplicas(t *testing.T) {
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	one := startPlane(t, planeConfig{store: s, options: session.Options{Replica: "replica-1"}})
	one.linux("m1", 1)
	one.machine("m1", func(m *router.Machine) bool { return m.Connected })
	two := startPlane(t, planeConfig{store: s, options: session.Options{Replica: "replica-2"}})
	r := two.linux("m2", 1)
	require.Eventually(t, func() bool { return expect(r, (*runnerv1.RouterMessage).GetSignal).GetTotalRunners() == 2 }, patience, tick)
}

func TestA6_TheMachineIsToldWhyAndForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPlane(t, planeConfig{bubble: true, options: rankedPools(30 * time.Second)})
		p.dispatcher.SetRoom(map[string]router.Room{"spot": {Jobs: 1, At: time.Now()}})
		warm := p.member("warm", "w1")
		synctest.Wait() // a queue that is counted while the job comes may have it twice, or not at all
		p.mustPush(job("j1"))
		synctest.Wait() // who is to have it has been thought of
		warm.heartbeat(0, false)
		wait := expect(warm, (*runnerv1.RouterMessage).GetWait)
		require.Equal(t, router.WaitSpillover, wait.GetReason())
		require.Positive(t, wait.GetRetryAfter().AsDuration())
		require.LessOrEqual(t, wait.GetRetryAfter().AsDuration(), 30*time.Second)
		require.False(t, warm.assignedBeforeAnswer())

		record, err := p.store.Get(context.Background(), "j1")
		require.NoError(t, err)
		choice, err := p.dispatcher.ExplainChoice(context.Background(), &record.Job)
		require.NoError(t, err)
		require.Equal(t, []router.Outcome{router.OutcomeGrowing, router.OutcomeWaits}, []router.Outcome{choice.Pools[0].Outcome, choice.Pools[1].Outcome})
		require.Equal(t, record.Job.SubmittedAt.Add(30*time.Second), choice.Pools[1].Until)

		p.dispatcher.SetRoom(nil) // it can't grow any more
		require.Equal(t, "j1", warm.assigned().GetJob().GetId())
	})
}

func TestA6_AJobSpillsOverWhenItHasWaited(t *testing.T) {
	p := startPlane(t, planeConfig{options: rankedPools(router.RemotePatience)})
	p.dispatcher.SetRoom(map[string]router.Room{"spot": {Jobs: 9, At: time.Now()}})
	warm := p.member("warm", "w1")
	p.mustPush(job("j1"))
	require.Equal(t, "j1", warm.assigned().GetJob().GetId())
	record := p.waitFor("j1", typesv1.JobState_JOB_STATE_ASSIGNED)
	waited := record.GetClaimedAt().AsTime().Sub(record.GetJob().GetSubmittedAt().AsTime())
	require.GreaterOrEqual(t, waited, router.RemotePatience-time.Millisecond, "no sooner; claims are written to the millisecond")
}

func TestNoJobsIsWhatAnIdleMachineIsTold(t *testing.T) {
	p := startPlane(t, planeConfig{options: rankedPools(0)})
	p.mustPush(&typesv1.Job{Id: "other", Script: "true", Requirement: &typesv1.Requirement{Tags: []string{"nobody"}}})
	warm := p.member("warm", "w1")
	warm.heartbeat(0, false)
	require.Equal(t, router.WaitNoJobs, expect(warm, (*runnerv1.RouterMessage).GetWait).GetReason())
}

func TestA18_LabelsOfTheMachineDecideWhereAJobGoes(t *testing.T) {
	p := startPlane(t, planeConfig{})
	near := map[string]string{router.LabelDistance: "1"}
	far := map[string]string{router.LabelDistance: "100"}
	p.connect(linuxToken, &runnerv1.Register{MachineId: "a-far", Capacity: 1, Labels: far})
	chosen := p.connect(linuxToken, &runnerv1.Register{MachineId: "b-near", Capacity: 1, Labels: near})
	p.mustPush(job("j1"))
	require.Equal(t, "j1", chosen.assigned().GetJob().GetId())
}

func TestExplainChoiceEndsWithTheDispatcher(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.stop()
	_, err := p.dispatcher.ExplainChoice(context.Background(), &spillway.Job{})
	require.ErrorIs(t, err, session.ErrEnded)
}
