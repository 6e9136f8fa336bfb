package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// place gives one job a place for the named pool.
func (d *desk) place(pool string, job spillway.Job) router.Assignment {
	d.t.Helper()
	d.jobs++
	job.ID = spillway.JobID(fmt.Sprintf("job-%d", d.jobs))
	class := job.Requirement.Class()
	d.AddPending(router.ClassCount{Class: class, Requirement: job.Requirement, Pending: 1, Oldest: d.now})
	wants := d.Plan(d.now)
	require.Equal(d.t, []router.ClaimWant{{Class: class, Pool: pool, N: 1}}, wants)
	got := router.Claimed{Job: job, Ref: router.JobRef{ID: job.ID, Class: class, Attempt: 1}, Pool: pool}
	assigned, back := d.Claimed(d.now, wants, []router.Claimed{got})
	require.Empty(d.t, back)
	return assigned[0]
}

// finish ends a job after it has run for a while.
func (d *desk) finish(a router.Assignment, after time.Duration) {
	require.True(d.t, d.Accepted(d.now, a.Machine, a.Ref))
	d.wait(after)
	for _, m := range d.Machines() {
		d.Heartbeat(d.now, m.ID, m.Assigned, false, d.Held(m.ID))
	}
	require.True(d.t, d.Finished(d.now, a.Machine, a.Ref))
}

func ofProject(id int64) spillway.Job {
	return spillway.Job{Requirement: spillway.Requirement{Project: id}}
}

func TestAProjectReturnsToTheMachineThatItUsedLast(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("a", "linux", 1)
	d.connect("b", "linux", 1)
	one, two := d.place("linux", ofProject(1)), d.place("linux", ofProject(2))
	require.Equal(t, []spillway.MachineID{"a", "b"}, machinesOf([]router.Assignment{one, two}))
	d.finish(one, time.Second)
	d.finish(two, time.Second) // b was used last
	require.Equal(t, spillway.MachineID("a"), d.place("linux", ofProject(1)).Machine)
}

func TestAffinityIsByItsWordWhereThereIsOne(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	d.connect("a", "linux", 1)
	d.connect("b", "linux", 1)
	cached := ofProject(1)
	cached.Affinity = "gradle"
	one, two := d.place("linux", cached), d.place("linux", ofProject(2))
	d.finish(one, time.Second)
	d.finish(two, time.Second)
	other := ofProject(3)
	other.Affinity = "gradle"
	require.Equal(t, spillway.MachineID("a"), d.place("linux", other).Machine)
}

func TestJobsToBeKeptApartAreKeptApart(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("a", "linux", 2)
	d.connect("b", "linux", 2)
	load := spillway.Job{AntiAffinity: "load-test"}
	require.Equal(t, spillway.MachineID("a"), d.place("linux", load).Machine)
	require.Equal(t, spillway.MachineID("b"), d.place("linux", load).Machine, "though a was used last")
	require.Equal(t, spillway.MachineID("a"), d.place("linux", load).Machine, "better than not at all: alike again, by id")
}

func TestTheNearestMachineGoesFirst(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	for id, distance := range map[spillway.MachineID]string{"a": "300", "b": "10", "c": "20", "d": "far"} {
		m := router.Machine{ID: id, Pool: "linux", Capacity: 1, Labels: map[string]string{router.LabelDistance: distance}}
		d.Connect(d.now, m, nil)
	}
	var order []spillway.MachineID
	for range 4 {
		order = append(order, d.place("linux", spillway.Job{}).Machine)
	}
	require.Equal(t, []spillway.MachineID{"d", "b", "c", "a"}, order, "no number is no distance")
}

func TestTheZoneOfTheLastMachineIsNext(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 1))
	for id, zone := range map[spillway.MachineID]string{"a": "north", "b": "south", "c": "south", "d": "north"} {
		d.Connect(d.now, router.Machine{ID: id, Pool: "linux", Capacity: 1, Labels: map[string]string{router.LabelZone: zone}}, nil)
	}
	require.Equal(t, spillway.MachineID("a"), d.place("linux", ofProject(1)).Machine)
	require.Equal(t, spillway.MachineID("d"), d.place("linux", ofProject(1)).Machine)
}

func TestThePoolThatIsFasterForTheNameGoesFirst(t *testing.T) {
	d := newDesk(t, newPool("old", 0, 4), newPool("slow", 0, 4))
	d.connect("o", "old", 4)
	d.connect("s", "slow", 4)
	job := spillway.Job{Name: "compile"}
	// Both are tried while the other is full.
	for range 4 {
		d.finish(d.place("old", job), 10*time.Minute)
	}
	d.Order(d.now, "o", true)
	d.finish(d.place("slow", job), time.Minute)
	d.Order(d.now, "o", false)
	d.Heartbeat(d.now, "o", 0, false, nil)
	require.Equal(t, spillway.MachineID("s"), d.place("old", job).Machine, "claimed for the other, which is of the same priority")
	require.Equal(t, spillway.MachineID("o"), d.place("old", spillway.Job{Name: "lint"}).Machine, "of that nothing is known")
}

func TestTheFasterPoolIsNotChosenOverAHigherPriority(t *testing.T) {
	d := newDesk(t, newPool("first", 0, 4), newPool("second", 1, 4))
	d.connect("f", "first", 4)
	d.connect("s", "second", 4)
	job := spillway.Job{Name: "compile"}
	d.finish(d.place("first", job), time.Hour)
	d.Order(d.now, "f", true)
	d.finish(d.place("second", job), time.Second)
	d.Order(d.now, "f", false)
	d.Heartbeat(d.now, "f", 0, false, nil)
	require.Equal(t, spillway.MachineID("f"), d.place("first", job).Machine)
}

func TestAPlaceThatAnotherJobWasPromisedIsNotTaken(t *testing.T) {
	cheap, dear := newPool("cheap", 0, 1, "x"), newPool("dear", 0, 1, "x", "y")
	dear.CostPerJob = 0.1
	d := newDesk(t, cheap, dear)
	d.connect("c", "cheap", 1)
	d.connect("d", "dear", 1)
	flexible, fixed := count(1, "x"), count(1, "y")
	d.tell(flexible, fixed)
	wants := d.Plan(d.now)
	got := d.claimAs(wants)
	for i := range got {
		got[i].Job.AntiAffinity = "kept apart" // so that every machine is weighed
	}
	assigned, back := d.Claimed(d.now, wants, got)
	require.Empty(t, back)
	require.ElementsMatch(t, []spillway.MachineID{"c", "d"}, machinesOf(assigned))
}

func TestWithoutWeightsTheLastUsedMachineGoesFirst(t *testing.T) {
	d := &desk{t: t, now: dawn, Engine: router.NewEngine([]spillway.Pool{newPool("linux", 0, 1)}, router.Options{Weights: &router.Weights{}})}
	d.connect("a", "linux", 1)
	d.connect("b", "linux", 1)
	one, two := d.place("linux", ofProject(1)), d.place("linux", ofProject(2))
	d.finish(one, time.Second)
	d.finish(two, time.Second)
	require.Equal(t, spillway.MachineID("b"), d.place("linux", ofProject(1)).Machine)
}

// Equal stories have equal ends.
func TestChoicesAreDeterministic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct{ project, name, apart, ends int }
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			draw := rapid.IntRange(0, 2)
			return step{draw.Draw(t, "project"), draw.Draw(t, "name"), draw.Draw(t, "apart"), draw.Draw(t, "ends")}
		}), 1, 12).Draw(rt, "steps")
		play := func() (story []spillway.MachineID) {
			d := newDesk(t, newPool("p", 0, 2), newPool("q", 0, 2), newPool("r", 1, 2))
			for i := range 9 {
				d.Connect(d.now, router.Machine{
					ID: spillway.MachineID(fmt.Sprint("m", i)), Pool: []string{"p", "q", "r"}[i%3], Capacity: 2,
					Labels: map[string]string{router.LabelZone: fmt.Sprint(i % 2), router.LabelDistance: fmt.Sprint(i * 7 % 5)},
				}, nil)
			}
			var running []router.Assignment
			for _, s := range steps {
				r := spillway.Requirement{Project: int64(s.project)}
				d.AddPending(router.ClassCount{Class: r.Class(), Requirement: r, Pending: 1, Oldest: d.now})
				wants := d.Plan(d.now)
				got := d.claim(wants, r)
				for i := range got {
					got[i].Job.Name, got[i].Job.AntiAffinity = fmt.Sprint(s.name), fmt.Sprint(s.apart)
				}
				assigned, _ := d.Claimed(d.now, wants, got)
				running = append(running, assigned...)
				story = append(story, machinesOf(assigned)...)
				for range min(s.ends, len(running)) {
					d.finish(running[0], time.Duration(len(story))*time.Second)
					running = running[1:]
				}
			}
			return story
		}
		require.Equal(rt, play(), play())
	})
}
