package collect

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

func TestC20_WhatGitLabSaysOfAPoolsRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r5 := gitlab.Runner{
			ID: 5, Type: spillway.GroupType, Tags: []string{"b", "a"}, Protected: true, Groups: []int64{3},
			Managers: []gitlab.Manager{{SystemID: "m2"}, {SystemID: "m1"}},
		}
		g := &fakeGitLab{runners: map[int64]gitlab.Runner{5: r5}}
		g.put(onRunner(1, 5, "m1"), onRunner(2, 5, "m1"), onRunner(3, 5, "m2"), onRunner(4, 9, "x"))
		r := start(t, newMemory(), "one", g, Options{Runners: []int64{5, 6}})
		settle()
		b := r.board()
		require.Equal(t, RunnerState{
			At: b.At, Whole: true, Running: 3, BySystem: map[string]int{"m1": 2, "m2": 1}, Systems: []string{"m1", "m2"},
			Declares: &Declared{Capability: spillway.Capability{
				Origin: origin, Tags: []string{"a", "b"}, Protected: true, Type: spillway.GroupType, Groups: []int64{3},
			}},
		}, b.Runners[5])
		require.True(t, b.Runners[6].Deleted, "GitLab has no such runner")
		require.True(t, b.Runners[6].Whole)

		r5.Paused = true
		g.change(func(f *fakeGitLab) { f.runners[5] = r5 })
		pass(DefaultEvery)
		require.True(t, r.board().Runners[5].Paused)
		g.change(func(f *fakeGitLab) { delete(f.runners, 5) })
		pass(DefaultEvery)
		require.True(t, r.board().Runners[5].Deleted, "within one interval")
		require.Equal(t, 3, r.board().Runners[5].Running)
	})
}

func TestNothingIsProvenIdleByAListThatMayMissJobs(t *testing.T) {
	runner := map[int64]gitlab.Runner{5: {ID: 5}}
	whole := func(t *testing.T, g *fakeGitLab, o Options) bool {
		t.Helper()
		o.Runners = []int64{5}
		r := start(t, newMemory(), "one", g, o)
		settle()
		return r.board().Runners[5].Whole
	}
	synctest.Test(t, func(t *testing.T) {
		require.True(t, whole(t, &fakeGitLab{runners: runner}, Options{}))
	})
	synctest.Test(t, func(t *testing.T) { // a job that runs nobody knows where may run here
		g := &fakeGitLab{runners: runner}
		g.put(onRunner(1, 0, ""))
		require.False(t, whole(t, g, Options{}))
	})
	synctest.Test(t, func(t *testing.T) { // the runner may run jobs of other groups
		scope := gitlab.Scope{Kind: gitlab.Groups, Paths: []string{"g"}}
		require.False(t, whole(t, &fakeGitLab{runners: runner}, Options{Scope: scope}))
	})
	synctest.Test(t, func(t *testing.T) { // unless somebody knows that it doesn't
		scope := gitlab.Scope{Kind: gitlab.Groups, Paths: []string{"g"}}
		covers := func(r gitlab.Runner) bool { return r.ID == 5 }
		require.True(t, whole(t, &fakeGitLab{runners: runner}, Options{Scope: scope, Covers: covers}))
	})
}

func TestARunnerThatCanNotBeLookedAtKeepsWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{runners: map[int64]gitlab.Runner{5: {ID: 5, Paused: true}}}
		r := start(t, newMemory(), "one", g, Options{Runners: []int64{5}})
		settle()
		g.change(func(f *fakeGitLab) { f.err = gitlab.ErrForbidden })
		pass(DefaultEvery)
		s := r.board().Runners[5]
		require.True(t, s.Paused)
		require.Contains(t, s.Problem, "lacks a right")
		require.Contains(t, r.status("gitlab/runners").Err, "lacks a right")
	})
}

func TestManyRunnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{runners: map[int64]gitlab.Runner{}}
		var ids []int64
		for id := range int64(25) {
			ids = append(ids, id+1)
			g.runners[id+1] = gitlab.Runner{ID: id + 1}
		}
		r := start(t, newMemory(), "one", g, Options{Runners: ids})
		settle()
		require.Equal(t, maxRunnerLooks, g.count("runner"))
		require.NotEmpty(t, r.board().Runners[25].Problem)
		pass(2 * DefaultEvery)
		for _, id := range ids {
			require.Empty(t, r.board().Runners[id].Problem, "runner %d", id)
		}
	})
}

func TestGroupsAreAskedForOnlyWhereSomePoolServesThem(t *testing.T) {
	jobs := func() *fakeGitLab {
		g := &fakeGitLab{groups: map[int64][]int64{7: {2, 3, 4}}}
		g.put(waiting(1, "a"), waiting(2, "a"), waiting(3, "z"))
		return g
	}
	instance := spillway.Pool{Capability: spillway.Capability{Tags: []string{"a"}, Origin: origin}}
	group := spillway.Pool{Capability: spillway.Capability{Tags: []string{"a"}, Origin: origin, Type: spillway.GroupType, Groups: []int64{3, 9}}}
	project := spillway.Pool{Capability: spillway.Capability{Tags: []string{"a"}, Origin: origin, Type: spillway.ProjectType, Projects: []int64{7, 8}}}
	synctest.Test(t, func(t *testing.T) {
		g := jobs()
		r := start(t, newMemory(), "one", g, Options{Pools: []spillway.Pool{instance}})
		settle()
		require.Zero(t, g.count("ancestors"))
		for _, w := range r.board().Classes {
			require.Zero(t, w.Requirement.Project, "no pool asks which project it is")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := jobs()
		r := start(t, newMemory(), "one", g, Options{Pools: []spillway.Pool{instance, group, project}})
		settle()
		require.Equal(t, 1, g.count("ancestors"), "once for the project, and not for jobs that the pool can't take")
		b := r.board()
		require.Len(t, b.Classes, 2)
		require.Equal(t, spillway.Requirement{Origin: origin, Tags: []string{"a"}, Project: 7, Groups: []int64{3}}, b.Classes[0].Requirement)
		require.Equal(t, spillway.Requirement{Origin: origin, Tags: []string{"z"}, Project: 7}, b.Classes[1].Requirement)
	})
	synctest.Test(t, func(t *testing.T) {
		g := jobs()
		g.change(func(f *fakeGitLab) { f.groups = nil })
		r := start(t, newMemory(), "one", g, Options{Pools: []spillway.Pool{group}})
		settle()
		jobs, partial := r.demand()
		require.Equal(t, map[string]int{"[z]": 1}, jobs)
		require.True(t, partial, "what two of them need isn't known")
		require.Equal(t, 1, g.count("ancestors"), "after a failure no more is asked")
		g.change(func(f *fakeGitLab) { f.groups = map[int64][]int64{7: {3}} })
		pass(DefaultEvery)
		r.requireDemand(map[string]int{"[a]": 2, "[z]": 1})
		g.change(func(f *fakeGitLab) { f.groups = nil })
		pass(DefaultEvery)
		r.requireDemand(map[string]int{"[a]": 2, "[z]": 1}, "what a job needs doesn't change")
	})
}

func TestAJobThatNoRunnerAtAllCanTakeIsLeftOut(t *testing.T) {
	n := newNeeds(origin, nil)
	long := waiting(1, string(make([]byte, spillway.MaxTagBytes+1)))
	for range 2 { // once worked out, once remembered
		_, ok := n.of(&long, nil)
		require.False(t, ok)
	}
	short := waiting(1, "b", "a")
	first, ok := n.of(&short, nil)
	require.True(t, ok)
	other := waiting(2, "a", "b", "a")
	second, ok := n.of(&other, nil)
	require.True(t, ok)
	require.Same(t, first, second)
	require.Equal(t, []string{"a", "b"}, first.Tags)
}

func TestAListThatTakesTooLongIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{delay: 15 * time.Second}
		r := start(t, newMemory(), "one", g, Options{})
		pass(20 * time.Second)
		require.Contains(t, r.status("gitlab/jobs").Why, "a list takes 15s")
	})
}
