package router_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// inbox is a queue of which the jobs are given out in order.
type inbox struct {
	*router.Engine
	now     time.Time
	jobs    map[spillway.JobClass][]spillway.Job
	of      map[spillway.JobID]spillway.MachineID
	claims  int // jobs that were claimed
	attempt int
}

func newInbox(pools ...spillway.Pool) *inbox {
	return &inbox{
		Engine: router.NewEngine(pools, router.Options{}), now: dawn,
		jobs: make(map[spillway.JobClass][]spillway.Job), of: make(map[spillway.JobID]spillway.MachineID),
	}
}

func (q *inbox) push(id spillway.JobID, project int64) {
	r := spillway.Requirement{Project: project}
	q.jobs[r.Class()] = append(q.jobs[r.Class()], spillway.Job{ID: id, Requirement: r})
}

// count counts the queue, with some jobs more that others have claimed since.
func (q *inbox) count(gone int) {
	var counts []router.ClassCount
	for class, jobs := range q.jobs {
		if len(jobs) > 0 {
			counts = append(counts, router.ClassCount{Class: class, Requirement: jobs[0].Requirement, Pending: len(jobs) + gone, Oldest: q.now})
		}
	}
	q.SetCounts(counts)
}

// dispatch plans and claims until nothing more is wanted; false if that has no end.
func (q *inbox) dispatch() bool {
	for range 100 {
		wants := q.Plan(q.now)
		if len(wants) == 0 {
			return true
		}
		var got []router.Claimed
		for _, w := range wants {
			n := min(w.N, len(q.jobs[w.Class]))
			for _, job := range q.jobs[w.Class][:n] {
				q.attempt++
				got = append(got, router.Claimed{Job: job, Pool: w.Pool, Ref: router.JobRef{ID: job.ID, Class: w.Class, Attempt: q.attempt}})
			}
			q.jobs[w.Class] = q.jobs[w.Class][n:]
		}
		q.claims += len(got)
		given, back := q.Claimed(q.now, wants, got)
		for _, a := range given {
			q.of[a.Job.ID] = a.Machine
		}
		for _, g := range slices.Backward(got) { // each to its old place
			if slices.Contains(back, g.Ref) {
				q.jobs[g.Ref.Class] = append([]spillway.Job{g.Job}, q.jobs[g.Ref.Class]...)
				q.Requeued(g.Ref)
			}
		}
	}
	return false
}

func (q *inbox) connect(pool string, capacity int) {
	q.Connect(q.now, router.Machine{ID: spillway.MachineID(pool), Pool: pool, Capacity: capacity}, nil)
}

func bars(project int64, ids ...spillway.JobID) (list []router.Bar) {
	for _, id := range ids {
		list = append(list, router.Bar{
			Job: id, Class: spillway.Requirement{Project: project}.Class(), Why: "cell us refused it: not here", Until: dawn.Add(time.Hour),
		})
	}
	return list
}

// The first of a class is barred: those behind it are not held up by it.
func TestABarredJobLetsOthersOfItsClassPass(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 2)
	q.SetBars("us", []string{"us"}, bars(1, "odd"))
	q.push("odd", 1)
	q.push("even-1", 1)
	q.push("even-2", 1)
	q.count(0)
	require.True(t, q.dispatch())
	require.Equal(t, map[spillway.JobID]spillway.MachineID{"even-1": "us", "even-2": "us"}, q.of)
	require.Equal(t, 3, q.claims, "the barred one was in the way once")
}

func TestNothingIsClaimedForAPoolThatBarsAllThatWait(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 4)
	q.SetBars("us", []string{"us"}, bars(1, "a", "b"))
	q.push("a", 1)
	q.push("b", 1)
	q.count(0)
	require.Empty(t, q.Plan(q.now))
	q.SetBars("us", []string{"us"}, bars(1, "a"))
	require.True(t, q.dispatch(), "and whoever is barred no more goes")
	require.Equal(t, map[spillway.JobID]spillway.MachineID{"b": "us"}, q.of)
}

func TestABarredJobGoesToOtherPools(t *testing.T) {
	cheap, dear := newPool("cheap", 999, 4), newPool("dear", 999, 4)
	dear.CostPerJob = 5
	q := newInbox(cheap, dear)
	q.connect("cheap", 4)
	q.connect("dear", 4)
	q.SetBars("cheap", []string{"cheap"}, bars(1, "odd"))
	q.push("odd", 1)
	q.push("even", 1)
	q.count(0)
	require.True(t, q.dispatch())
	require.Equal(t, spillway.MachineID("dear"), q.of["odd"])
	require.Len(t, q.of, 2)
}

// The place that a barred job can't have is another project's, whoever's turn it is.
func TestABarredJobTakesNoTurn(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 1)
	q.SetBars("us", []string{"us"}, bars(1, "odd"))
	q.push("odd", 1)
	q.push("other", 2)
	q.push("more", 2)
	q.count(0)
	require.True(t, q.dispatch())
	require.Equal(t, map[spillway.JobID]spillway.MachineID{"other": "us"}, q.of)
}

// A bar of a job that is gone counts for another one until it is taken back.
func TestABarOfAJobThatIsGoneIsTakenBack(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 4)
	q.SetBars("us", []string{"us"}, bars(1, "gone"))
	q.push("even", 1)
	q.count(0)
	require.Empty(t, q.Plan(q.now))
	q.SetBars("us", []string{"us"}, nil)
	require.True(t, q.dispatch())
	require.Len(t, q.of, 1)
}

func TestBarsAreBounded(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 4)
	var ids []spillway.JobID
	for i := range router.MaxBars {
		ids = append(ids, spillway.JobID(fmt.Sprint("ended-", i)))
	}
	q.SetBars("us", []string{"us"}, append(bars(2, ids...), bars(1, "odd")...))
	q.push("odd", 1)
	q.count(0)
	require.Len(t, q.Plan(q.now), 1, "the one beyond is offered")
}

func TestARefusalIsExplained(t *testing.T) {
	q := newInbox(newPool("us", 999, 4))
	q.connect("us", 4)
	q.push("odd", 1)
	q.count(0)
	q.SetBars("us", []string{"us"}, bars(1, "odd"))
	job := &spillway.Job{ID: "odd", Requirement: spillway.Requirement{Project: 1}, SubmittedAt: dawn}
	x := q.ExplainChoice(q.now, job).Pools[0]
	require.Equal(t, router.OutcomeRefused, x.Outcome)
	require.Equal(t, dawn.Add(time.Hour), x.Until)
	require.True(t, strings.HasPrefix(x.Detail, "cell us refused it: not here; it is not offered there before "), x.Detail)
	job.ID = "even"
	require.Equal(t, router.OutcomeFree, q.ExplainChoice(q.now, job).Pools[0].Outcome)
	q.SetBars("us", []string{"us"}, nil)
	job.ID = "odd"
	require.Equal(t, router.OutcomeFree, q.ExplainChoice(q.now, job).Pools[0].Outcome)
}

// Whatever is barred from where: dispatching ends, nobody gets what it bars, and no place
// stays free for which a job waits that may have it.
func TestBarredJobsWaitAndNothingElseDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pools []spillway.Pool
		for i := range rapid.IntRange(1, 4).Draw(t, "pools") {
			p := newPool(fmt.Sprint("p", i), rapid.SampledFrom([]int{0, 999}).Draw(t, "priority"), 5)
			p.CostPerJob = float64(rapid.IntRange(0, 1).Draw(t, "cost"))
			if rapid.Bool().Draw(t, "group") {
				p.Capability.Type, p.Capability.Groups = spillway.GroupType, []int64{1}
			}
			pools = append(pools, p)
		}
		q := newInbox(pools...)
		projects := rapid.IntRange(1, 3).Draw(t, "projects")
		projectOf := make(map[spillway.JobID]int64)
		var ids []spillway.JobID
		for i := range rapid.IntRange(0, 12).Draw(t, "jobs") {
			id, project := spillway.JobID(fmt.Sprint("j", i)), int64(rapid.IntRange(1, projects).Draw(t, "project"))
			ids, projectOf[id] = append(ids, id), project
			r := spillway.Requirement{Project: project, Groups: []int64{1}}
			q.jobs[r.Class()] = append(q.jobs[r.Class()], spillway.Job{ID: id, Requirement: r})
		}
		barred := make(map[string]map[spillway.JobID]bool)
		for _, p := range pools {
			var list []router.Bar
			barred[p.Name] = make(map[spillway.JobID]bool)
			for _, id := range ids {
				if rapid.IntRange(0, 2).Draw(t, "barred") == 0 {
					r := spillway.Requirement{Project: projectOf[id], Groups: []int64{1}}
					list = append(list, router.Bar{Job: id, Class: r.Class()})
					barred[p.Name][id] = true
				}
			}
			q.SetBars(p.Name, []string{p.Name}, list)
			q.connect(p.Name, rapid.IntRange(0, 5).Draw(t, "places"))
		}
		q.count(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "gone"))
		require.True(t, q.dispatch(), "no end")
		for id, m := range q.of {
			require.False(t, barred[string(m)][id], "%s is on %s", id, m)
		}
		for _, m := range q.Machines() {
			for _, jobs := range q.jobs {
				for _, job := range jobs {
					require.False(t, m.Assigned < m.Capacity && !barred[m.Pool][job.ID], "%s has a place for %s", m.ID, job.ID)
				}
			}
		}
	})
}
