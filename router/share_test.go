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

func countOf(project int64, n int, tags ...string) router.ClassCount {
	r := spillway.Requirement{Tags: tags, Project: project}
	return router.ClassCount{Class: r.Class(), Requirement: r, Pending: n, Oldest: dawn}
}

// serve claims what the engine wants and returns the assignments by project.
func (d *desk) serve() map[int64][]router.Assignment {
	wants := d.Plan(d.now)
	assigned, back := d.Claimed(d.now, wants, d.claimAs(wants))
	require.Empty(d.t, back)
	by := make(map[int64][]router.Assignment)
	for _, a := range assigned {
		by[a.Job.Requirement.Project] = append(by[a.Job.Requirement.Project], a)
	}
	return by
}

// claimAs is claim for wants of several classes, which the desk was told of by tell.
func (d *desk) claimAs(wants []router.ClaimWant) (got []router.Claimed) {
	for _, w := range wants {
		got = append(got, d.claim([]router.ClaimWant{w}, d.known[w.Class])...)
	}
	return got
}

// tell counts the queue anew.
func (d *desk) tell(counts ...router.ClassCount) {
	if d.known == nil {
		d.known = make(map[spillway.JobClass]spillway.Requirement)
	}
	for _, c := range counts {
		d.known[c.Class] = c.Requirement
	}
	d.SetCounts(counts)
}

func TestProjectsShareAnInstancePoolJobByJob(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 4))
	d.connect("m1", "linux", 4)
	flood, small := countOf(1, 100), countOf(2, 2)
	flood.Oldest = dawn.Add(-time.Hour)
	d.tell(flood, small)
	got := d.serve()
	require.Len(t, got[1], 2)
	require.Len(t, got[2], 2, "not kept behind the older flood")
}

func TestProjectWithTheFewestRunningJobsGoesFirst(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 3))
	d.connect("m1", "linux", 3)
	busy, idle := countOf(1, 9), countOf(2, 9)
	busy.Claimed, busy.Oldest = 2, dawn.Add(-time.Hour) // at another replica
	d.tell(busy, idle)
	got := d.serve()
	require.Len(t, got[2], 2, "until both have two, and the older one goes on")
	require.Len(t, got[1], 1)
}

func TestRunningJobsOfAllClassesOfAProjectCount(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2, "a", "b"))
	d.connect("m1", "linux", 2)
	here, elsewhere, other := countOf(1, 5, "a"), countOf(1, 0, "b"), countOf(2, 5, "a")
	elsewhere.Claimed = 7
	here.Oldest = dawn.Add(-time.Hour)
	d.tell(here, elsewhere, other)
	require.Len(t, d.serve()[2], 2)
}

func TestPriorityGoesBeforeShare(t *testing.T) {
	d := newDesk(t, newPool("linux", 0, 2))
	d.connect("m1", "linux", 2)
	urgent, other := countOf(1, 5), countOf(2, 5)
	urgent.Claimed, other.Priority = 50, 1
	d.tell(urgent, other)
	require.Len(t, d.serve()[1], 2)
}

func TestGroupAndProjectPoolsServeTheOldestFirst(t *testing.T) {
	for _, scope := range []spillway.RunnerType{spillway.GroupType, spillway.ProjectType} {
		p := newPool("own", 0, 3)
		p.Capability.Type, p.Capability.Groups, p.Capability.Projects = scope, []int64{9}, []int64{1, 2}
		d := newDesk(t, p)
		d.connect("m1", "own", 3)
		old, young := countOf(1, 9), countOf(2, 9)
		old.Requirement.Groups, young.Requirement.Groups = []int64{9}, []int64{9}
		old.Class, young.Class = old.Requirement.Class(), young.Requirement.Class()
		old.Oldest, old.Claimed = dawn.Add(-time.Minute), 20
		d.tell(old, young)
		require.Len(t, d.serve()[1], 3, scope)
	}
}

func TestAnInstancePoolSharesWhatAGroupPoolServesInTurn(t *testing.T) {
	group := newPool("group", 0, 1)
	group.Capability.Type, group.Capability.Groups = spillway.GroupType, []int64{9}
	d := newDesk(t, group, newPool("shared", 1, 1))
	d.connect("g", "group", 1)
	d.connect("s", "shared", 1)
	old, young := countOf(1, 9), countOf(2, 9)
	old.Requirement.Groups, young.Requirement.Groups = []int64{9}, []int64{9}
	old.Class, young.Class = old.Requirement.Class(), young.Requirement.Class()
	old.Oldest, old.Claimed = dawn.Add(-time.Minute), 20
	d.tell(old, young)
	got := d.serve()
	require.Equal(t, []spillway.MachineID{"g"}, machinesOf(got[1]), "the oldest")
	require.Equal(t, []spillway.MachineID{"s"}, machinesOf(got[2]), "of the project with the fewest")
}

// Of projects that began alike and have jobs of the same kind waiting, none has two more
// running than another, whatever ends when.
func TestProjectsStayWithinOneJobOfEachOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t, newPool("linux", 0, 3), newPool("more", 1, 2))
		projects := rapid.IntRange(2, 5).Draw(rt, "projects")
		for i := range rapid.IntRange(1, 6).Draw(rt, "machines") {
			d.connect(spillway.MachineID(fmt.Sprint("m", i)), []string{"linux", "more"}[i%2], 3)
		}
		running := make(map[int64][]router.Assignment)
		counts := func() (list []router.ClassCount) {
			for p := range projects {
				c := countOf(int64(p+1), 50)
				c.Claimed, c.Oldest = len(running[int64(p+1)]), dawn.Add(time.Duration(p)*time.Second)
				list = append(list, c)
			}
			return list
		}
		for range rapid.IntRange(1, 12).Draw(rt, "rounds") {
			d.wait(time.Second)
			if rapid.Bool().Draw(rt, "counted") {
				d.tell(counts()...)
			}
			for p, list := range d.serve() {
				running[p] = append(running[p], list...)
			}
			least, most := len(running[1]), len(running[1])
			for p := range projects {
				n := len(running[int64(p+1)])
				least, most = min(least, n), max(most, n)
			}
			require.LessOrEqual(rt, most-least, 1)
			// As many end of each project: they stay alike but for the one.
			for p := range projects {
				list := running[int64(p+1)]
				if least > 0 && len(list) > 0 {
					require.True(rt, d.Finished(d.now, list[0].Machine, list[0].Ref))
					running[int64(p+1)] = list[1:]
				}
			}
		}
	})
}
