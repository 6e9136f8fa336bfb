package router_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

func TestPlanTwiceWantsOnce(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 4))
	d.connect("m1", "linux", 4)
	d.AddPending(count(3))
	first := d.Plan(d.now)
	require.Equal(t, []router.ClaimWant{{Class: count(0).Class, Pool: "linux", N: 3}}, first)
	require.Empty(t, d.Plan(d.now))
	d.AddPending(count(5))
	second := d.Plan(d.now)
	require.Equal(t, 1, second[0].N, "one place is left")
	require.Empty(t, d.Plan(d.now))

	assigned, back := d.Claimed(d.now, first, d.claim(first, spillway.Requirement{}))
	require.Len(t, assigned, 3)
	require.Empty(t, back)
	assigned, back = d.Claimed(d.now, second, d.claim(second, spillway.Requirement{}))
	require.Len(t, assigned, 1)
	require.Empty(t, back)
	require.Empty(t, d.Plan(d.now), "full")
}

func TestWhatIsNotGotIsNotWantedAgain(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 4))
	d.connect("m1", "linux", 4)
	d.AddPending(count(3))
	wants := d.Plan(d.now)
	d.Claimed(d.now, wants, nil) // another replica was quicker
	require.Empty(t, d.Plan(d.now))
	d.SetCounts([]router.ClassCount{count(2)})
	require.Equal(t, 2, d.Plan(d.now)[0].N, "a new picture of the queue is believed")
}

func TestPlacesNotUsedGoToOtherClasses(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "a", "b"))
	d.connect("m1", "linux", 2)
	urgent, later := count(2, "a"), count(2, "b")
	later.Priority = 5
	d.SetCounts([]router.ClassCount{later, urgent})
	wants := d.Plan(d.now)
	require.Equal(t, []router.ClaimWant{{Class: urgent.Class, Pool: "linux", N: 2}}, wants)
	d.Claimed(d.now, wants, nil)
	require.Equal(t, []router.ClaimWant{{Class: later.Class, Pool: "linux", N: 2}}, d.Plan(d.now))
}

func TestSetCountsReplacesThePicture(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 9, "a", "b"))
	d.SetCounts([]router.ClassCount{count(4, "a"), count(2, "b")})
	d.SetCounts([]router.ClassCount{count(1, "b")})
	d.connect("m1", "linux", 9)
	require.Equal(t, []router.ClaimWant{{Class: count(0, "b").Class, Pool: "linux", N: 1}}, d.Plan(d.now))
	d.SetCounts([]router.ClassCount{count(1, "b")})
	require.Empty(t, d.Plan(d.now), "the picture still holds the job that is being claimed")
}

func TestRequeuedJobIsPlannedAgain(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	require.True(t, d.Drop(d.now, a.Ref))
	require.Empty(t, d.Plan(d.now))
	require.True(t, d.Requeued(a.Ref))
	require.Len(t, d.Plan(d.now), 1)
	require.False(t, d.Requeued(router.JobRef{ID: "x", Class: "unheard of"}))
}

func TestSpilloverFillsHigherPriorityFirst(t *testing.T) {
	d := newDesk(t, newPool("spot", 0, 1), newPool("on-demand", 1, 1))
	d.connect("d1", "on-demand", 1)
	d.connect("s1", "spot", 1)
	require.Equal(t, spillway.MachineID("s1"), d.runOne().Machine)
	require.Equal(t, spillway.MachineID("d1"), d.runOne().Machine, "spot is full")
	require.Empty(t, d.run(1))
}

func TestFlexibleJobMakesRoomForOneThatIsNot(t *testing.T) {
	d := newDesk(t, newPool("gpu", 0, 1, "linux", "gpu"), newPool("plain", 1, 1, "linux"))
	d.connect("g", "gpu", 1)
	d.connect("p", "plain", 1)
	flexible, gpu := count(1, "linux"), count(1, "gpu")
	flexible.Oldest = dawn.Add(-time.Hour)
	d.SetCounts([]router.ClassCount{flexible, gpu})
	require.ElementsMatch(t, []router.ClaimWant{
		{Class: flexible.Class, Pool: "plain", N: 1}, {Class: gpu.Class, Pool: "gpu", N: 1},
	}, d.Plan(d.now))
}

func TestMostRecentlyUsedMachineGoesFirst(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	for _, id := range []spillway.MachineID{"c", "a", "b"} {
		d.connect(id, "linux", 2)
	}
	require.Equal(t, []spillway.MachineID{"a", "a", "b"}, machinesOf(d.run(3)), "ties by id; a machine is filled before the next is begun")
	d.wait(10 * time.Second)
	require.True(t, d.Finished(d.now, "b", d.Held("b")[0]))
	d.wait(time.Second)
	require.True(t, d.Finished(d.now, "a", d.Held("a")[0]))
	require.Equal(t, []spillway.MachineID{"a", "b", "b", "c", "c"}, machinesOf(d.run(9)))
}

func TestMachineThatIsUsedAgainGoesFirstAgain(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 3))
	d.connect("a", "linux", 3)
	d.connect("b", "linux", 3)
	a := d.run(4) // a is full, b has two places
	d.wait(time.Second)
	require.True(t, d.Finished(d.now, "a", a[0].Ref))
	d.wait(time.Second)
	require.True(t, d.Finished(d.now, "b", a[3].Ref))
	require.Equal(t, []spillway.MachineID{"b"}, machinesOf(d.run(1)))
	d.wait(time.Second)
	require.True(t, d.Finished(d.now, "a", a[1].Ref))
	require.Equal(t, []spillway.MachineID{"a"}, machinesOf(d.run(1)))
}

func TestTiesOfPoolsGoByCost(t *testing.T) {
	cheap, dear := newPool("b", 0, 1), newPool("a", 0, 1)
	cheap.CostPerJob, dear.CostPerJob = 0.1, 0.2
	d := newDesk(t, cheap, dear)
	d.connect("dear", "a", 1)
	d.connect("cheap", "b", 1)
	require.Equal(t, spillway.MachineID("cheap"), d.runOne().Machine)
}

func TestOldestClassOfAPriorityGoesFirst(t *testing.T) {
	for _, tags := range [][]string{{"a", "b"}, {"b", "a"}} { // ids of classes are in some order, so both ways
		d := newDesk(t, newPool("linux", 0, 1, "a", "b", "c"))
		d.connect("m1", "linux", 1)
		young, old, urgent := count(1, tags[0]), count(1, tags[1]), count(1, "c")
		young.Priority, old.Priority = 2, 2
		old.Oldest = dawn.Add(-time.Minute)
		d.SetCounts([]router.ClassCount{young, old, urgent})
		for _, next := range []router.ClassCount{urgent, old, young} {
			wants := d.Plan(d.now)
			require.Equal(t, []router.ClaimWant{{Class: next.Class, Pool: "linux", N: 1}}, wants)
			d.Claimed(d.now, wants, nil)
		}
	}
}

func TestRefusedClassStaysAwayForAMoment(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "a", "b"), newPool("spare", 1, 1, "a"))
	d.connect("m1", "linux", 2)
	d.connect("s1", "spare", 1)
	a := d.runOne("a")
	require.Equal(t, spillway.MachineID("m1"), a.Machine)
	require.True(t, d.Refused(d.now, "m1", a.Ref, false))
	require.Empty(t, d.Held("m1"))

	d.Requeued(a.Ref)
	d.AddPending(count(2, "b"))
	require.ElementsMatch(t, []router.ClaimWant{
		{Class: count(0, "a").Class, Pool: "spare", N: 1}, // not kept waiting
		{Class: count(0, "b").Class, Pool: "linux", N: 2}, // other classes have the places
	}, d.Plan(d.now))
}

func TestRefusedClassComesBackAfterTheMoment(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	d.Refused(d.now, "m1", a.Ref, false)
	d.Requeued(a.Ref)
	require.Empty(t, d.Plan(d.now))
	at, ok := d.NextDeadline()
	require.True(t, ok)
	require.Equal(t, d.now.Add(router.DefaultRefusalPause), at)
	d.now = at.Add(-1)
	require.Empty(t, d.Plan(d.now))
	d.now = at
	require.Len(t, d.Plan(d.now), 1)
}

func TestRefusedClassGoesToTheNextMachineOfThePool(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.connect("m2", "linux", 1)
	first := d.runOne()
	d.Refused(d.now, first.Machine, first.Ref, false)
	second := d.runOne()
	require.NotEqual(t, first.Machine, second.Machine, "though the first is the most recently used")
}

func TestIdlePlanCostsNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.AddPending(count(9))
	d.Plan(d.now)
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Plan(d.now) }))
}
