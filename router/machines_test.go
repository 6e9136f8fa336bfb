package router_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

func TestCapacityIsBoundedByThePool(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("greedy", "linux", 1000)
	d.connect("odd", "linux", -3)
	require.Equal(t, 2, d.machine("greedy").Capacity)
	require.Equal(t, 0, d.machine("odd").Capacity)
	require.Len(t, d.run(10), 2)
}

func TestPlacesThatOthersUseAreNotGivenAway(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 3))
	d.connect("m1", "linux", 3)
	d.Heartbeat(d.now, "m1", 1, false, nil) // something runs there that is not ours
	a := d.run(5)
	require.Len(t, a, 2)
	d.Heartbeat(d.now, "m1", 2, false, []router.JobRef{a[0].Ref}) // the other is still on its way
	require.Empty(t, d.run(1))
	require.True(t, d.Finished(d.now, "m1", a[0].Ref))
	require.Len(t, d.Plan(d.now), 1)
}

// A sidecar's machine is given its jobs by GitLab: it has been idle only since the last
// of them was seen to be over.
func TestJobsOfOthersAreUses(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 3))
	d.connect("m1", "linux", 3)
	registered := d.machine("m1").LastUsedAt
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Equal(t, registered, d.machine("m1").LastUsedAt)
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 1, false, nil)
	require.Equal(t, d.now, d.machine("m1").LastUsedAt)
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	ended := d.now
	require.Equal(t, ended, d.machine("m1").LastUsedAt, "it ended at some time since the last heartbeat")
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Equal(t, ended, d.machine("m1").LastUsedAt)
}

func TestA5_FullMachineGetsNothingBeforeItsNextHeartbeat(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "a", "b"))
	d.connect("m1", "linux", 2)
	a := d.runOne("a")
	d.Refused(d.now, "m1", a.Ref, true)
	d.wait(2 * router.DefaultRefusalPause)
	require.Empty(t, d.run(1, "b"), "no class at all")
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Len(t, d.Plan(d.now), 1)
}

func TestDrainedMachineGetsNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	a := d.runOne()
	require.True(t, d.Order(d.now, "m1", true))
	require.Empty(t, d.run(1), "ordered is enough")
	d.wait(time.Second)
	require.True(t, d.DrainAck(d.now, "m1", true))
	require.Equal(t, d.now, d.machine("m1").DrainAckedAt)
	require.True(t, d.Finished(d.now, "m1", a.Ref), "it goes on with what it has")
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 0, true, nil)
	require.Equal(t, d.now.Add(-time.Second), d.machine("m1").DrainAckedAt, "since when, not until when")
	require.Zero(t, d.machine("m1").StoppingSince, "it drains because it was told to")
	require.Empty(t, d.Plan(d.now))

	require.True(t, d.Order(d.now, "m1", false))
	require.Zero(t, d.machine("m1").DrainAckedAt)
	require.Len(t, d.Plan(d.now), 1, "at once: the order is on the stream before the job")
}

func TestDrainAcknowledgedByHeartbeat(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.Order(d.now, "m1", true)
	d.Heartbeat(d.now, "m1", 0, true, nil)
	require.Equal(t, d.now, d.machine("m1").DrainAckedAt)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Zero(t, d.machine("m1").DrainAckedAt, "a machine that says that it takes jobs has lost the order")
	require.Empty(t, d.run(1), "and gets none all the same")
}

func TestLateDrainAckDoesNotStopAMachine(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.Order(d.now, "m1", true)
	d.Order(d.now, "m1", false)
	d.DrainAck(d.now, "m1", true)
	require.Zero(t, d.machine("m1").DrainAckedAt)
	require.Len(t, d.run(1), 1)
}

func TestStoppingMachineGetsNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.Heartbeat(d.now, "m1", 0, true, nil)
	since := d.now
	d.wait(time.Second)
	d.Heartbeat(d.now, "m1", 0, true, nil)
	require.Equal(t, since, d.machine("m1").StoppingSince)
	require.Empty(t, d.run(1))
	d.DrainAck(d.now, "m1", false)
	require.Zero(t, d.machine("m1").StoppingSince)
	require.Len(t, d.Plan(d.now), 1)
}

func TestSilentMachineGetsNothingUntilItIsHeard(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	at, ok := d.NextDeadline()
	require.True(t, ok)
	require.Equal(t, d.now.Add(spillway.SilentAfter), at)
	d.AddPending(count(1))
	d.now = at
	require.Empty(t, d.Plan(d.now))
	_, ok = d.NextDeadline()
	require.False(t, ok)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Len(t, d.Plan(d.now), 1)
}

func TestMachineThatFallsSilentAfterThePlanGetsNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.AddPending(count(1))
	wants := d.Plan(d.now)
	d.wait(spillway.SilentAfter)
	assigned, back := d.Claimed(d.now, wants, d.claim(wants, spillway.Requirement{}))
	require.Empty(t, assigned)
	require.Len(t, back, 1)
}

func TestAnotherMachineTakesTheJobOfOneThatVanished(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1), newPool("other", 0, 1))
	d.connect("m1", "linux", 1)
	d.AddPending(count(1))
	wants := d.Plan(d.now)
	d.Forget(d.now, "m1")
	d.connect("m2", "linux", 1)
	assigned, back := d.Claimed(d.now, wants, d.claim(wants, spillway.Requirement{}))
	require.Equal(t, []spillway.MachineID{"m2"}, machinesOf(assigned))
	require.Empty(t, back)

	d.connect("o1", "other", 1)
	d.AddPending(count(1))
	wants = d.Plan(d.now)
	d.Disconnect(d.now, "o1")
	assigned, back = d.Claimed(d.now, wants, d.claim(wants, spillway.Requirement{}))
	require.Empty(t, assigned)
	require.Len(t, back, 1)
}

func TestReconnectKeepsTheJobs(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 3))
	d.connect("m1", "linux", 3)
	a := d.run(3)
	running, ended, never := a[0].Ref, a[1].Ref, a[2].Ref
	d.Accepted(d.now, "m1", running)
	d.Accepted(d.now, "m1", ended)
	d.wait(time.Second)
	require.True(t, d.Disconnect(d.now, "m1"))
	require.False(t, d.machine("m1").Connected)
	require.Len(t, d.Held("m1"), 3)
	require.Empty(t, d.run(1))

	d.wait(10 * time.Second)
	d.connect("m1", "linux", 3, running)
	require.Len(t, d.Held("m1"), 3, "a result may still come")
	require.True(t, d.Finished(d.now, "m1", ended))
	d.wait(router.DefaultTimeouts().Assigned)
	release, lost := d.Expire(d.now)
	require.Equal(t, []router.JobRef{never}, release)
	require.Empty(t, lost)
	require.Equal(t, []router.JobRef{running}, d.Held("m1"))
	m := d.machine("m1")
	require.Equal(t, 3, m.Uses)
	require.Equal(t, dawn, m.RegisteredAt)
}

func TestAcceptedJobThatDoesNotComeBackIsLost(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	d.Accepted(d.now, "m1", a.Ref)
	d.connect("m1", "linux", 1)
	d.wait(router.DefaultTimeouts().Assigned)
	release, lost := d.Expire(d.now)
	require.Empty(t, release)
	require.Equal(t, []router.JobRef{a.Ref}, lost)
}

func TestReplicaLearnsOfJobsFromTheMachine(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	ref := router.JobRef{ID: "77", Class: "c", Attempt: 2}
	d.connect("m1", "linux", 2, ref)
	require.Equal(t, []router.JobRef{ref}, d.Held("m1"))
	require.Len(t, d.run(5), 1, "its place is taken")
	release, lost := d.Expire(d.now.Add(time.Hour))
	require.NotContains(t, append(release, lost...), ref, "a machine that has it needs not accept it")
}

func TestForgetReturnsWhatWasOnTheMachine(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	a := d.run(2)
	d.Refused(d.now, "m1", a[1].Ref, false)
	require.Equal(t, []router.JobRef{a[0].Ref}, d.Forget(d.now, "m1"))
	require.Empty(t, d.Forget(d.now, "m1"))
	require.Empty(t, d.Machines())
	_, ok := d.NextDeadline()
	require.False(t, ok, "nothing of it is left")
	require.False(t, d.Heartbeat(d.now, "m1", 0, false, nil))
	require.False(t, d.Order(d.now, "m1", true))
	require.False(t, d.DrainAck(d.now, "m1", true))
	require.False(t, d.Disconnect(d.now, "m1"))
}

func TestMachinesAreListedById(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	for _, id := range []spillway.MachineID{"c", "a", "b"} {
		d.connect(id, "linux", 1)
	}
	var ids []spillway.MachineID
	for _, m := range d.Machines() {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []spillway.MachineID{"a", "b", "c"}, ids)
	_, ok := d.Machine("nobody")
	require.False(t, ok)
	require.Empty(t, d.Held("nobody"))
}

func TestClockThatGoesBackwardsStandsStill(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.Heartbeat(d.now.Add(time.Minute), "m1", 0, false, nil)
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Equal(t, d.now.Add(time.Minute), d.machine("m1").HeardAt)
}
