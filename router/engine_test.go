package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// desk is a test's shell around an engine: a clock that it moves and a queue that
// always has what is wanted.
type desk struct {
	*router.Engine
	t    *testing.T
	now  time.Time
	jobs int
	// known is the classes that tell was told of.
	known map[spillway.JobClass]spillway.Requirement
}

var dawn = time.Unix(1_700_000_000, 0)

func newDesk(t *testing.T, pools ...spillway.Pool) *desk {
	return &desk{Engine: router.NewEngine(pools, router.Options{}), t: t, now: dawn}
}

func newPool(name string, priority, capacity int, tags ...string) spillway.Pool {
	return spillway.Pool{
		Name: name, Priority: priority, CapacityPerInstance: capacity,
		Capability: spillway.Capability{Tags: tags, RunUntagged: true},
	}
}

func (d *desk) wait(by time.Duration) { d.now = d.now.Add(by) }

func (d *desk) connect(id spillway.MachineID, pool string, capacity int, running ...router.JobRef) {
	require.Empty(d.t, d.Connect(d.now, router.Machine{ID: id, Pool: pool, Capacity: capacity}, running))
}

func count(n int, tags ...string) router.ClassCount {
	r := spillway.Requirement{Tags: tags}
	return router.ClassCount{Class: r.Class(), Requirement: r, Pending: n, Oldest: dawn}
}

// claim answers wants with new jobs of the requirement.
func (d *desk) claim(wants []router.ClaimWant, r spillway.Requirement) []router.Claimed {
	var got []router.Claimed
	for _, w := range wants {
		for range w.N {
			d.jobs++
			id := spillway.JobID(fmt.Sprintf("job-%d", d.jobs))
			got = append(got, router.Claimed{
				Job: spillway.Job{ID: id, Requirement: r}, Ref: router.JobRef{ID: id, Class: w.Class, Attempt: 1}, Pool: w.Pool,
			})
		}
	}
	return got
}

// run queues n jobs with the tags and returns the assignments that follow.
func (d *desk) run(n int, tags ...string) []router.Assignment {
	d.AddPending(count(n, tags...))
	wants := d.Plan(d.now)
	assigned, back := d.Claimed(d.now, wants, d.claim(wants, spillway.Requirement{Tags: tags}))
	require.Empty(d.t, back)
	return assigned
}

// runOne is run for a single job that must find a machine.
func (d *desk) runOne(tags ...string) router.Assignment {
	d.t.Helper()
	assigned := d.run(1, tags...)
	require.Len(d.t, assigned, 1)
	return assigned[0]
}

func machinesOf(list []router.Assignment) []spillway.MachineID {
	var ids []spillway.MachineID
	for _, a := range list {
		ids = append(ids, a.Machine)
	}
	return ids
}

func (d *desk) machine(id spillway.MachineID) router.Machine {
	d.t.Helper()
	m, ok := d.Machine(id)
	require.True(d.t, ok)
	return m
}

func TestJobFromQueueToEnd(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "docker"))
	d.connect("m1", "linux", 2)
	a := d.runOne("docker")
	require.Equal(t, spillway.MachineID("m1"), a.Machine)
	require.Equal(t, []router.JobRef{a.Ref}, d.Held("m1"))
	ref, on, ok := d.Holder(a.Ref.ID)
	require.True(t, ok)
	require.Equal(t, a.Ref, ref)
	require.Equal(t, spillway.MachineID("m1"), on)

	d.wait(time.Second)
	require.True(t, d.Accepted(d.now, "m1", a.Ref))
	require.True(t, d.Started(d.now, "m1", a.Ref))
	require.True(t, d.Heartbeat(d.now, "m1", 1, false, []router.JobRef{a.Ref}))
	m := d.machine("m1")
	require.Equal(t, []int{1, 1, 1}, []int{m.Busy, m.Assigned, m.Uses})

	d.wait(time.Second)
	require.True(t, d.Finished(d.now, "m1", a.Ref))
	require.False(t, d.Finished(d.now, "m1", a.Ref), "it has ended already")
	m = d.machine("m1")
	require.Equal(t, []int{0, 0, 1}, []int{m.Busy, m.Assigned, m.Uses}, "free without waiting for the next heartbeat")
	require.Equal(t, d.now, m.LastUsedAt)
	require.Empty(t, d.Held("m1"))
}

func TestReportsOfOthersAndOlderAttemptsChangeNothing(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	d.connect("m2", "linux", 1)
	a := d.runOne()
	other := map[spillway.MachineID]spillway.MachineID{"m1": "m2", "m2": "m1"}[a.Machine]
	older, newer := a.Ref, a.Ref
	older.Attempt, newer.Attempt = 0, 2
	for _, try := range []struct {
		machine spillway.MachineID
		ref     router.JobRef
	}{{other, a.Ref}, {a.Machine, older}, {a.Machine, newer}, {"nobody", a.Ref}, {a.Machine, router.JobRef{ID: "other", Attempt: 1}}} {
		require.False(t, d.Accepted(d.now, try.machine, try.ref))
		require.False(t, d.Started(d.now, try.machine, try.ref))
		require.False(t, d.Refused(d.now, try.machine, try.ref, true))
		require.False(t, d.Finished(d.now, try.machine, try.ref))
	}
	require.False(t, d.Drop(d.now, older))
	require.Equal(t, []router.JobRef{a.Ref}, d.Held(a.Machine))
	require.Len(t, d.run(1), 1, "the other one is still free")
}

func TestUnacceptedJobIsReleased(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	silent, accepted := d.runOne(), d.runOne()
	d.Accepted(d.now, "m1", accepted.Ref)
	at, ok := d.NextDeadline()
	require.True(t, ok)
	require.Equal(t, d.now.Add(router.DefaultTimeouts().Assigned), at)

	release, lost := d.Expire(at.Add(-1))
	require.Empty(t, release)
	require.Empty(t, lost)
	release, lost = d.Expire(at)
	require.Equal(t, []router.JobRef{silent.Ref}, release)
	require.Empty(t, lost)
	require.False(t, d.Accepted(at, "m1", silent.Ref), "too late")
	require.Equal(t, []router.JobRef{accepted.Ref}, d.Held("m1"))
}

func TestI10_NewerAttemptWins(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	newer := a.Ref
	newer.Attempt = 2
	d.connect("m2", "linux", 1, newer)
	require.Empty(t, d.Held("m1"))
	require.Equal(t, []router.JobRef{newer}, d.Held("m2"))

	for _, stale := range []router.JobRef{a.Ref, newer} {
		superseded := d.Connect(d.now, router.Machine{ID: "m3", Pool: "linux", Capacity: 1}, []router.JobRef{stale})
		require.Equal(t, []router.JobRef{stale}, superseded)
		require.Empty(t, d.Held("m3"))
		require.Equal(t, 1, d.machine("m3").Busy, "it runs there until the machine has ended it")
	}
}

func TestI10_ClaimOfAJobThatIsOnAMachine(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	d.connect("m2", "linux", 1)
	again := router.Claimed{Job: a.Job, Ref: a.Ref, Pool: "linux"}
	assigned, back := d.Claimed(d.now, nil, []router.Claimed{again})
	require.Empty(t, assigned, "the same answer twice")
	require.Empty(t, back, "giving it back would take it from m1")

	again.Ref.Attempt++
	assigned, _ = d.Claimed(d.now, nil, []router.Claimed{again})
	require.Len(t, assigned, 1)
	on := assigned[0].Machine
	require.Equal(t, []router.JobRef{again.Ref}, d.Held(on))
	require.False(t, d.Finished(d.now, "m1", a.Ref), "a result of the older attempt is refused")
}

func TestPlaceOfADroppedJobIsFreeWhenTheMachineSaysSo(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("m1", "linux", 1)
	a := d.runOne()
	d.Heartbeat(d.now, "m1", 1, false, []router.JobRef{a.Ref})
	require.True(t, d.Drop(d.now, a.Ref))
	require.Empty(t, d.run(1), "canceled, but not ended yet")
	d.Heartbeat(d.now, "m1", 0, false, nil)
	require.Len(t, d.Plan(d.now), 1)
}

func TestA7_ReloadOfThePools(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "a"))
	d.connect("m1", "linux", 2)
	d.connect("w1", "windows", 2)
	require.Len(t, d.run(1, "a"), 1)
	require.Empty(t, d.run(1, "w"), "no pool of that name yet")

	d.SetPools([]spillway.Pool{newPool("windows", 0, 1, "w")})
	require.Len(t, d.Held("m1"), 1, "its jobs go on")
	wants := d.Plan(d.now)
	require.Equal(t, []router.ClaimWant{{Class: count(0, "w").Class, Pool: "windows", N: 1}}, wants)
	require.Equal(t, 1, d.machine("w1").Capacity)

	d.SetPools([]spillway.Pool{newPool("windows", 0, 1, "other")})
	assigned, back := d.Claimed(d.now, wants, d.claim(wants, spillway.Requirement{Tags: []string{"w"}}))
	require.Empty(t, assigned, "the pool can't take it any more")
	require.Len(t, back, 1)

	d.SetPools([]spillway.Pool{newPool("linux", 0, 3, "a")})
	require.Equal(t, 2, d.machine("m1").Capacity, "no more than it said itself")
	require.Equal(t, []spillway.MachineID{"m1"}, machinesOf(d.run(5, "a")))
}

func TestPriorityChangesWithoutRestart(t *testing.T) {
	d := newDesk(t, newPool("x", 0, 1), newPool("y", 1, 1))
	d.connect("x1", "x", 1)
	d.connect("y1", "y", 1)
	d.SetPools([]spillway.Pool{newPool("x", 1, 1), newPool("y", 0, 1)})
	require.Equal(t, spillway.MachineID("y1"), d.runOne().Machine)
}

func TestC14_AUsedUpMachineGetsNoMoreJobs(t *testing.T) {
	p := newPool("linux", 0, 2, "docker")
	p.MaxUses = 3
	d := newDesk(t, p)
	d.connect("m1", "linux", 2)
	first := d.run(5, "docker")
	require.Len(t, first, 2)
	for _, a := range first {
		require.True(t, d.Accepted(d.now, a.Machine, a.Ref))
		require.True(t, d.Finished(d.now, a.Machine, a.Ref))
	}
	last := d.run(0, "docker")
	require.Len(t, last, 1, "its third and last")
	require.True(t, d.Accepted(d.now, last[0].Machine, last[0].Ref))
	require.True(t, d.Finished(d.now, last[0].Machine, last[0].Ref))
	require.Empty(t, d.run(0, "docker"))
	require.Equal(t, 3, d.machine("m1").Uses)
}
