package router_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// outcomes are those of the pools, in the order in which they are considered.
func outcomes(x router.Choice) (list []router.Outcome) {
	for _, p := range x.Pools {
		list = append(list, p.Outcome)
	}
	return list
}

func TestEveryPoolIsExplained(t *testing.T) {
	names := []string{"a-grows", "b-cooled", "c-down", "d-full", "e-else", "f-free", "g-other"}
	var pools []spillway.Pool
	for i, name := range names {
		pools = append(pools, newPool(name, i, 2, "docker"))
	}
	pools[0].SpillAfter = time.Minute
	pools[6].Capability = spillway.Capability{Tags: []string{"mac"}}
	d := newDesk(t, pools...)
	d.connect("m1", "f-free", 2)
	d.SetPeers(true)
	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "e-else", Free: 3, At: d.now}})
	d.SetRoom(map[string]router.Room{
		"a-grows": {Jobs: 4, At: d.now}, "b-cooled": {Jobs: 4, At: d.now, CooledUntil: d.now.Add(time.Hour)}, "c-down": {Down: true, At: d.now},
	})
	d.tell(count(1, "docker"))
	job := &spillway.Job{Requirement: spillway.Requirement{Tags: []string{"docker"}}, SubmittedAt: d.now}
	x := d.ExplainChoice(d.now, job)
	require.Equal(t, []router.Outcome{
		router.OutcomeGrowing, router.OutcomeCooledOff, router.OutcomeDown, router.OutcomeFull, router.OutcomeElsewhere, router.OutcomeWaits, router.OutcomeNoMatch,
	}, outcomes(x))
	require.Equal(t, 1, x.Waiting)
	require.Equal(t, d.now.Add(time.Hour), x.Pools[1].Until)
	require.Equal(t, d.now.Add(time.Minute), x.Pools[5].Until)
	require.Contains(t, x.Pools[5].Detail, "waits for a-grows, which has room to grow")
	require.Equal(t, router.PredicateTags, x.Pools[6].Verdict.Predicate)

	job.SubmittedAt = d.now.Add(-30 * time.Second)
	require.Equal(t, router.OutcomeWaits, d.ExplainChoice(d.now, job).Pools[5].Outcome)
	job.SubmittedAt = d.now.Add(-time.Minute)
	x = d.ExplainChoice(d.now, job)
	require.Equal(t, router.OutcomeFree, x.Pools[5].Outcome, "it has waited for long enough")
	require.Equal(t, spillway.MachineID("m1"), x.Pools[5].Machines[0].Machine)
}

// What speaks against a machine is measured beside the machines of other pools, as when
// one is chosen: also for a job that has ended long ago.
func TestMachinesOfPoolsOfOnePriorityAreCompared(t *testing.T) {
	cheap, dear, later := newPool("cheap", 0, 1), newPool("dear", 0, 1), newPool("later", 1, 1)
	cheap.CostPerJob, dear.CostPerJob, later.CostPerJob = 1, 4, 100
	d := newDesk(t, cheap, dear, later)
	for _, pool := range []string{"cheap", "dear", "later"} {
		d.connect(spillway.MachineID("m-"+pool), pool, 1)
	}
	x := d.ExplainChoice(d.now, &spillway.Job{})
	var costs []float64
	for _, p := range x.Pools {
		require.Len(t, p.Machines, 1, "only its own")
		require.Equal(t, p.Pool, p.Machines[0].Pool)
		costs = append(costs, p.Machines[0].Cost)
	}
	require.Equal(t, []float64{0.25, 1, 1}, costs)
}

// A place of another pool of the same priority may be better than that of the cheapest.
func TestTheBestPlaceIsTheOneThatWouldBeChosen(t *testing.T) {
	first, second, later := newPool("first", 0, 2), newPool("second", 0, 2), newPool("later", 1, 2)
	d := newDesk(t, first, second, later)
	d.connect("m-later", "later", 2)
	d.connect("m-second", "second", 2)
	job := spillway.Job{Requirement: spillway.Requirement{Project: 7}}
	_, _, ok := (&router.Choice{}).Best()
	require.False(t, ok)
	d.tell(countOf(7, 1))
	require.Len(t, d.serve()[7], 1, "its cache is on m-second by now")
	d.connect("m-first", "first", 2)
	x := d.ExplainChoice(d.now, &job)
	require.Equal(t, []router.Outcome{router.OutcomeFree, router.OutcomeFree, router.OutcomeFree}, outcomes(x))
	pool, machine, ok := x.Best()
	require.True(t, ok)
	require.Equal(t, "second", pool)
	require.Equal(t, spillway.MachineID("m-second"), machine)
	d.tell(countOf(7, 1))
	require.Equal(t, []spillway.MachineID{machine}, machinesOf(d.serve()[7]))
}

// Pools that may not have the job are no measure either.
func TestMachinesAreNotComparedWithThoseOfBarredPools(t *testing.T) {
	cheap, dear := newPool("cheap", 0, 1), newPool("dear", 0, 1)
	cheap.CostPerJob, dear.CostPerJob = 1, 4
	d := newDesk(t, cheap, dear)
	d.connect("m-cheap", "cheap", 1)
	d.connect("m-dear", "dear", 1)
	job := &spillway.Job{ID: "odd"}
	d.SetBars("us", []string{"dear"}, []router.Bar{{Job: job.ID, Class: job.Requirement.Class(), Until: dawn.Add(time.Hour)}})
	x := d.ExplainChoice(d.now, job)
	require.Equal(t, []router.Outcome{router.OutcomeFree, router.OutcomeRefused}, outcomes(x))
	require.InDelta(t, 1, x.Pools[0].Machines[0].Cost, 0)
}

// Nor does a job wait for a pool that may not have it.
func TestNobodyWaitsForABarredPool(t *testing.T) {
	d := twoPools(t, time.Minute)
	d.SetRoom(room(5))
	odd, even := &spillway.Job{ID: "odd", SubmittedAt: dawn}, &spillway.Job{ID: "even", SubmittedAt: dawn}
	d.SetBars("us", []string{"first"}, []router.Bar{{Job: odd.ID, Class: odd.Requirement.Class(), Until: dawn.Add(time.Hour)}})
	require.Equal(t, []router.Outcome{router.OutcomeRefused, router.OutcomeFree}, outcomes(d.ExplainChoice(d.now, odd)))
	require.Equal(t, []router.Outcome{router.OutcomeGrowing, router.OutcomeWaits}, outcomes(d.ExplainChoice(d.now, even)))
}

// What was true a while ago, or at replicas that are gone, is not told as if it were now.
func TestOldNewsIsNotExplained(t *testing.T) {
	d := newDesk(t, newPool("cooled", 0, 1), newPool("down", 1, 1), newPool("elsewhere", 2, 1), newPool("room", 3, 1))
	explained := func() []router.Outcome { return outcomes(d.ExplainChoice(d.now, &spillway.Job{SubmittedAt: dawn})) }
	d.SetPeers(true)
	d.SetRemote(d.now, []router.RemotePlaces{{Pool: "elsewhere", Free: 3, At: d.now}})
	d.SetRoom(map[string]router.Room{
		"cooled": {CooledUntil: d.now.Add(time.Hour), At: d.now}, "down": {Down: true, At: d.now}, "elsewhere": {At: d.now}, "room": {Jobs: 1, At: d.now},
	})
	require.Equal(t, []router.Outcome{router.OutcomeCooledOff, router.OutcomeDown, router.OutcomeElsewhere, router.OutcomeGrowing}, explained())
	d.SetPeers(false)
	require.Equal(t, router.OutcomeFull, explained()[2])
	d.SetPeers(true)
	d.wait(router.RoomFresh + 1)
	for _, p := range d.ExplainChoice(d.now, &spillway.Job{SubmittedAt: dawn}).Pools {
		require.Equal(t, router.OutcomeFull, p.Outcome, p.Pool)
		require.Equal(t, "no place, and nothing has been heard of whether it can get more", p.Detail)
		require.Zero(t, p.Room+p.Remote)
	}
}

func TestExplainingChangesNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	d.tell(countOf(1, 3), countOf(2, 1))
	for range 3 {
		d.ExplainChoice(d.now, &spillway.Job{Requirement: spillway.Requirement{Project: 1}})
	}
	require.Equal(t, 2, wanted(d.Plan(d.now), "linux"))
}

func TestWhoIsServedBefore(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	urgent, busy, mine := countOf(3, 2), countOf(1, 9), countOf(2, 9)
	mine.Priority, busy.Priority = 1, 1
	mine.Claimed, busy.Claimed = 4, 1
	busy.Oldest = dawn.Add(-time.Hour)
	d.tell(urgent, busy, mine)
	x := d.ExplainChoice(d.now, &spillway.Job{Requirement: mine.Requirement})
	require.Equal(t, 4, x.Running)
	require.Equal(t, 2+4, x.ServedBefore, "the urgent ones, and of the other project until it has as many running and one more")
	require.Equal(t, 2, d.ExplainChoice(d.now, &spillway.Job{Requirement: busy.Requirement}).ServedBefore)
}

// A project's jobs of all classes together are served until it has as many running.
func TestProjectsAreServedBeforeAndNotTheirClasses(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1, "a", "b", "c"))
	mine := countOf(1, 1, "a")
	mine.Claimed, mine.Oldest = 3, dawn.Add(-time.Hour)
	d.tell(mine, countOf(2, 9, "a"), countOf(2, 9, "b"), countOf(2, 9, "c"))
	require.Equal(t, 3, d.ExplainChoice(d.now, &spillway.Job{Requirement: mine.Requirement}).ServedBefore)
}

func TestJobsUnderReviewAreExplained(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	c := count(0)
	c.Unadmitted = 2
	d.tell(c)
	require.Empty(t, d.Plan(d.now), "they are nobody's yet")
	x := d.ExplainChoice(d.now, &spillway.Job{})
	require.Equal(t, []router.Outcome{router.OutcomeUnadmitted}, outcomes(x))
	require.Equal(t, 2, x.Unadmitted)
	reason, _ := d.WaitReason("linux")
	require.Equal(t, router.WaitAdmission, reason)
}

func TestWhyAMachineWaits(t *testing.T) {
	d := twoPools(t, time.Minute)
	reason := func() string { r, _ := d.WaitReason("second"); return r }
	require.Equal(t, router.WaitNoJobs, reason())
	d.SetRoom(room(1))
	d.AddPending(count(1))
	require.Empty(t, d.Plan(d.now))
	why, until := d.WaitReason("second")
	require.Equal(t, router.WaitSpillover, why)
	require.Equal(t, dawn.Add(time.Minute), until)
	d.SetRoom(nil)
	require.Len(t, d.Plan(d.now), 1)
	require.Equal(t, router.WaitTaken, reason())
	require.Equal(t, router.WaitNoJobs, func() string { r, _ := d.WaitReason("nobody's"); return r }())
}
