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
