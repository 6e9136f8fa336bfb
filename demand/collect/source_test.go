package collect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/webhook"
	"github.com/spillway-ci/spillway/router"
)

func TestASourceListsShowsAndPokes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(waiting(1, "a"), waiting(2, "a"), waiting(3, "b"), onRunner(4, 5, "m"))
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		r.requireDemand(map[string]int{"[a]": 2, "[b]": 1})
		require.Equal(t, 1, r.memory.poked())
		g.put(with(waiting(1, "a"), "running"))
		pass(DefaultEvery)
		r.requireDemand(map[string]int{"[a]": 1, "[b]": 1})
		require.Equal(t, 2, r.memory.poked())
		before := r.board().At
		pass(DefaultEvery)
		require.Equal(t, 2, r.memory.poked(), "nothing new wakes nobody")
		require.Equal(t, DefaultEvery, r.board().At.Sub(before), "but the board says that it is still so")
		s := r.status("gitlab/jobs")
		require.Equal(t, 4, s.Jobs)
		require.Empty(t, s.Err)
		require.Equal(t, int64(3), s.Calls)
		require.Less(t, s.Age(time.Now()), time.Second)
	})
}

// A list comes page by page: the jobs that came before its error are not used, and none
// that it did not get to is taken for over.
func TestOfAListThatBreaksOffNothingIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		old := waiting(9, "a") // looked at by itself, once a list is whole
		old.QueuedAt = time.Now().Add(-24 * time.Hour)
		g.put(waiting(1, "a"), waiting(2, "b"), onRunner(3, 5, "m"), old)
		g.change(func(f *fakeGitLab) { f.pipelines = map[int64]string{1009: "running"} })
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		before, looks, whole := map[string]int{"[a]": 2, "[b]": 1}, g.count("job"), r.board().At
		r.requireDemand(before)

		g.change(func(f *fakeGitLab) { f.jobs, f.broken = nil, errDown })
		for id := range int64(250) {
			g.put(waiting(100+id, "c")) // three pages of them, and no more of the others
		}
		g.put(with(waiting(2, "b"), "running"), onRunner(4, 5, "m"))
		pass(DefaultEvery)
		require.Equal(t, 2, g.count("jobs"))
		r.requireDemand(before)
		require.Equal(t, whole, r.board().At)
		require.Equal(t, looks, g.count("job"))
		require.Equal(t, 4, r.status("gitlab/jobs").Jobs)
		require.Contains(t, r.status("gitlab/jobs").Err, errDown.Error())

		g.change(func(f *fakeGitLab) { f.broken = nil })
		pass(DefaultEvery)
		r.requireDemand(map[string]int{"[c]": 250})
	})
}

// Sources count back since when a job waits, each time a little differently.
func TestATimeThatWaversIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(waiting(1, "a"))
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		oldest := r.board().Classes[0].Oldest
		later := g.jobs[1]
		later.QueuedAt = later.QueuedAt.Add(time.Millisecond)
		g.put(later)
		pass(DefaultEvery)
		require.Equal(t, oldest, r.board().Classes[0].Oldest)
		require.Equal(t, 1, r.memory.poked())
	})
}

func TestAHookReachesTheBoardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		r := start(t, newMemory(), "one", g, Options{Every: time.Hour, LeaseTTL: 4 * time.Hour})
		settle()
		pokes := r.memory.poked()
		g.change(func(f *fakeGitLab) { f.delay = 50 * time.Millisecond })
		g.put(waiting(1, "a"))
		r.hook(1, "pending")
		r.hook(1, "pending") // twice, as GitLab does
		pass(100 * time.Millisecond)
		r.requireDemand(map[string]int{"[a]": 1})
		require.Equal(t, pokes+2, r.memory.poked(), "once when it is heard of, once when its needs are known")
		require.Equal(t, 1, g.count("job"), "its tags are read once")
		r.hook(1, "running")
		settle()
		r.requireDemand(map[string]int{})
		require.Equal(t, 1, g.count("jobs"), "no list was needed")
	})
}

// A hook may say less than a list has said already, and may be older than that: what
// it says is asked for, not believed.
func TestALateHookOfAJobThatIsOverIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(with(waiting(1, "a"), "success"))
		r := start(t, newMemory(), "one", g, Options{})
		pass(time.Minute)
		s, ok := HookSighting(origin, webhook.Event{JobID: 1, ProjectID: 7, Status: "pending", At: time.Now().Add(-30 * time.Second)}, time.Now())
		require.True(t, ok)
		require.NoError(t, Tell(t.Context(), r.member, s))
		settle()
		r.requireDemand(map[string]int{})
	})
}

// Two replicas hear of one job, and the older news comes last.
func TestAHookThatComesLateTakesNoJobBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(waiting(1, "a"))
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		g.put(onRunner(1, 5, "m"))
		pass(time.Second)
		r.hook(1, "running")
		pass(time.Second)
		r.hook(1, "pending")
		settle()
		r.requireDemand(map[string]int{})
		g.put(with(waiting(1, "a"), "success"))
		r.hook(1, "success")
		pass(time.Second)
		r.hook(1, "pending")
		settle()
		r.requireDemand(map[string]int{})
	})
}

// A GitLab whose clock is behind ours tells of the new as if it were old.
func TestAHookFromASlowClockIsStillHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		r := start(t, newMemory(), "one", g, Options{})
		pass(time.Minute)
		g.put(waiting(1, "a"))
		s, ok := HookSighting(origin, webhook.Event{JobID: 1, ProjectID: 7, Status: "pending", At: time.Now().Add(-30 * time.Second)}, time.Now())
		require.True(t, ok)
		require.NoError(t, Tell(t.Context(), r.member, s))
		settle()
		r.requireDemand(map[string]int{"[a]": 1})
	})
}

func TestAHookFromTheFutureOverrulesNothingToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		ahead := pending(1, 0, "a")
		ahead.At = time.Now().Add(time.Hour)
		require.NoError(t, Tell(t.Context(), r.member, ahead))
		settle()
		r.requireDemand(map[string]int{"[a]": 1})
		pass(DefaultEvery)
		r.requireDemand(map[string]int{})
	})
}

func TestABurstOfHooksIsOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{delay: 10 * time.Millisecond}
		r := start(t, newMemory(), "one", g, Options{Every: time.Minute})
		pass(5 * time.Second)
		for id := range int64(200) {
			g.put(waiting(id+1, "a"))
			r.hook(id+1, "pending")
		}
		pass(500 * time.Millisecond)
		r.requireDemand(map[string]int{"[a]": 200})
		require.LessOrEqual(t, g.count("job"), maxQuestions+askers)
		require.Equal(t, 2, g.count("jobs"))
	})
}

func TestC08_AJobThatSeveralPoolsCouldTakeIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		shared := newMemory()
		held := new(kept)
		held.set(pending(1, 0, "a"), pending(2, 0, "a"))
		r := start(t, shared, "one", g, Options{Held: held, Runners: []int64{11, 12}})
		for id := range int64(6) {
			g.put(waiting(id+1, "a"))
			r.hook(id+1, "pending") // two sources tell of each, of two a third
		}
		pass(DefaultEvery)
		view, err := r.sources.Demand(t.Context())
		require.NoError(t, err)
		c := spillway.Capability{Tags: []string{"a"}, Origin: origin}
		pools := []demand.Supply{{Pool: "a", Capability: c, Launchable: 3}, {Pool: "b", Capability: c, Launchable: 10}}
		a := demand.Attribute(view.Classes, pools, router.Fits)
		require.Equal(t, 3, a.Pools["a"].Total())
		require.Equal(t, 3, a.Pools["b"].Total())

		// Three run on each pool's runner, and B's three end: A's are not touched.
		for id := range int64(6) {
			g.put(onRunner(id+1, 11+id/3, "m"))
		}
		held.set()
		pass(DefaultEvery)
		require.Equal(t, 3, r.board().Runners[11].Running)
		require.Equal(t, 3, r.board().Runners[12].Running)
		for id := range int64(3) {
			r.hook(id+4, "success")
		}
		settle()
		require.Equal(t, 3, r.board().Runners[11].Running)
		require.Equal(t, map[string]int{}, r.board().Runners[12].BySystem)
	})
}

func TestC09_PhantomsAreFoundOutAndTheOldButRealStaysCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{pipelines: map[int64]string{1003: "failed", 1004: "running"}}
		old := func(id int64, age time.Duration) gitlab.Job {
			j := waiting(id, "a")
			j.QueuedAt = time.Now().Add(-age)
			return j
		}
		g.phantoms = []gitlab.Job{old(1, 24*time.Hour), old(2, 24*time.Hour)}
		g.put(with(old(2, 24*time.Hour), "canceled"), old(3, 24*time.Hour), old(4, 26*time.Hour))
		stale := map[JobKey]string{}
		r := start(t, newMemory(), "one", g, Options{Events: &Events{Stale: func(k JobKey, why string) { stale[k] = why }}})
		settle()
		r.requireDemand(map[string]int{"[a]": 1}, "before anything was launched for a phantom")
		b := r.board()
		require.Equal(t, 3, b.Stale)
		require.Equal(t, []spillway.JobID{"4"}, b.Classes[0].Sample)
		require.Equal(t, map[JobKey]string{
			key(1): "GitLab knows no such job", key(2): "it is canceled", key(3): "its pipeline is failed",
		}, stale)

		looks := g.count("job")
		pass(10 * DefaultEvery)
		require.Equal(t, looks, g.count("job"), "what was found is believed for a while")
		pass(DefaultLookAgain)
		require.Greater(t, g.count("job"), looks)
		require.Equal(t, 3, r.board().Stale, "each is counted once")
		r.requireDemand(map[string]int{"[a]": 1})

		g.change(func(f *fakeGitLab) { f.pipelines[1003] = "running" }) // somebody retried in it
		pass(DefaultLookAgain + DefaultEvery)
		r.requireDemand(map[string]int{"[a]": 2}, "a verdict is not for ever")
	})
}

func TestC09_AThousandPhantomsDoNotEatTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		for id := range int64(100) {
			j := waiting(id+1, "a")
			j.QueuedAt = time.Now().Add(-24 * time.Hour)
			g.phantoms = append(g.phantoms, j)
		}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		require.Equal(t, maxStaleLooks, g.count("job"))
		r.requireDemand(map[string]int{"[a]": 100 - maxStaleLooks})
		pass(4 * DefaultEvery)
		r.requireDemand(map[string]int{})
	})
}

// A job that GitLab tells nothing of keeps the others from being looked at for one list,
// and one that is listed twice costs one look.
func TestC09_AJobThatCannotBeLookedAtIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{refused: map[int64]error{1: gitlab.ErrForbidden}}
		for _, id := range []int64{1, 2, 2, 3} {
			j := waiting(id, "a")
			j.QueuedAt = time.Now().Add(-24 * time.Hour)
			g.phantoms = append(g.phantoms, j)
		}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		require.Equal(t, 1, g.count("job"))
		r.requireDemand(map[string]int{"[a]": 3}, "nothing is known of any")
		pass(2 * DefaultEvery)
		require.Equal(t, 3, g.count("job"))
		r.requireDemand(map[string]int{"[a]": 1}, "only the one that nobody knows of counts")
	})
}

func TestC10_CancelsWithoutAnEventAreSeenByTheNextList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		for id := range int64(10) {
			g.put(waiting(id+1, "a"))
			r.hook(id+1, "pending")
		}
		settle()
		r.requireDemand(map[string]int{"[a]": 10})
		for id := range int64(10) {
			g.put(with(waiting(id+1, "a"), "canceled"))
		}
		pass(DefaultEvery)
		r.requireDemand(map[string]int{})
	})
}

func TestC12_NoDataIsNotZero(t *testing.T) {
	faults := map[string]func(*fakeGitLab){
		"500":                                func(f *fakeGitLab) { f.err = errDown },
		"timeout":                            func(f *fakeGitLab) { f.hang = true },
		"200 [] while the machines are busy": func(f *fakeGitLab) { f.empty = true },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &fakeGitLab{}
				for id := range int64(8) {
					g.put(onRunner(id+1, 5, "m"))
				}
				g.put(waiting(20, "a"), waiting(21, "a"), waiting(22, "a"))
				g.change(func(f *fakeGitLab) { f.runners = map[int64]gitlab.Runner{5: {ID: 5}} })
				busy := func(context.Context) (int, error) { return 8, nil }
				r := start(t, newMemory(), "one", g, Options{Busy: busy, Runners: []int64{5}})
				settle()
				r.requireDemand(map[string]int{"[a]": 3})
				require.True(t, r.board().Runners[5].Whole)
				g.change(fault)
				pass(DefaultEvery)
				require.False(t, name == "200 [] while the machines are busy" && r.board().Runners[5].Whole, "a list that isn't believed proves nothing")
				for range 30 {
					pass(DefaultEvery)
					jobs, _ := r.demand()
					require.Equal(t, map[string]int{"[a]": 3}, jobs)
				}
				view, err := r.sources.Demand(t.Context())
				require.NoError(t, err)
				require.True(t, view.Partial)
				require.NotEmpty(t, view.Lacking[origin])
				runner := r.board().Runners[5]
				require.Equal(t, 8, runner.Running)
				require.False(t, runner.Whole && time.Since(runner.At) < r.sources.StaleAfter(), "nothing proves a machine idle now")

				// The end of the fault is the end of the doubt, and an honest zero is one.
				g.change(func(f *fakeGitLab) { f.err, f.hang, f.empty = nil, false, false })
				pass(listTimeout + 3*DefaultEvery)
				r.requireDemand(map[string]int{"[a]": 3})
			})
		})
	}
}

func TestC12_AnHonestZeroIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		idle := func(context.Context) (int, error) { return 0, nil }
		r := start(t, newMemory(), "one", g, Options{Busy: idle})
		settle()
		r.requireDemand(map[string]int{})
		require.Empty(t, r.board().Why)
	})
}

func TestC12_ABoardThatNobodyWritesAnyMoreIsALowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(waiting(1, "a"))
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		r.kill()
		pass(r.sources.StaleAfter() - time.Second)
		view, err := r.sources.Demand(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Now(), view.At)
		require.Equal(t, r.board().At, view.Listed[origin], "a look doesn't make the list younger")
		r.requireDemand(map[string]int{"[a]": 1})
		pass(2 * time.Second)
		jobs, partial := r.demand()
		require.Equal(t, map[string]int{"[a]": 1}, jobs)
		require.True(t, partial)
		pass(minBoardTTL)
		_, err = r.sources.Demand(t.Context())
		require.ErrorIs(t, err, errNoBoard, "and in the end nothing is known, which is not nothing")
	})
}

func TestX07_AListThatIsTooLongIsAnErrorAndNotAShorterList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		for id := range int64(250) {
			g.put(waiting(id+1, "a"))
		}
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		r.requireDemand(map[string]int{"[a]": 250})
		g.change(func(f *fakeGitLab) { f.err = gitlab.ErrTooMany })
		pass(4 * DefaultEvery)
		jobs, partial := r.demand()
		require.Equal(t, map[string]int{"[a]": 250}, jobs)
		require.True(t, partial)
		require.Contains(t, r.status("gitlab/jobs").Err, "too long")
		require.Contains(t, r.board().Why, "too long")
	})
}

func TestGitLabIsDownAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{err: errDown}
		r := start(t, newMemory(), "one", g, Options{})
		queue := Queue{counter{counts: []router.ClassCount{{Class: "q", Pending: 4}}}}
		both := NewSources(SourcesOptions{Queue: queue, Boards: r.memory.member(), Origin: origin})
		view, err := both.Demand(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, jobsOf(view.Classes), "the pools of the queue go on")
		settle()
		view, err = both.Demand(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, jobsOf(view.Classes))
		require.Contains(t, view.Lacking[origin], "GitLab could not be asked: GitLab is not available: status 500")
		require.NotContains(t, view.Lacking, "", "of the queue it is whole")
		require.Contains(t, r.status("gitlab/jobs").Err, "GitLab is not available: status 500")
		require.NotEmpty(t, r.trouble.all())

		g.change(func(f *fakeGitLab) { f.err = nil })
		g.put(waiting(1, "a"))
		pass(DefaultEvery)
		r.requireDemand(map[string]int{"[a]": 1})
		require.Empty(t, r.board().Why)
	})
}

func TestARefusedTokenIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{err: gitlab.ErrUnauthorized}
		r := start(t, newMemory(), "one", g, Options{})
		pass(10 * time.Minute)
		require.LessOrEqual(t, g.count("jobs"), 11)
		require.Contains(t, r.status("gitlab/jobs").Err, "does not accept the token")
	})
}

func TestGitLabSaysWhenToComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{err: &gitlab.Limited{RetryAfter: 2 * time.Minute}}
		r := start(t, newMemory(), "one", g, Options{})
		pass(time.Second)
		r.hook(1, "pending")
		pass(118 * time.Second)
		require.Equal(t, 1, g.count("jobs"))
		pass(2 * time.Second)
		require.Equal(t, 2, g.count("jobs"))
	})
}

func TestATakeOverNeverShowsLessThanBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		for id := range int64(20) {
			g.put(waiting(id+1, "a"))
		}
		shared := newMemory()
		first := start(t, shared, "one", g, Options{})
		settle()
		second := start(t, shared, "two", g, Options{})
		settle()
		require.True(t, second.status("gitlab/jobs").Standby)
		require.Equal(t, 1, g.count("jobs"), "one lists for all")
		g.change(func(f *fakeGitLab) { f.err = errDown }) // the new one can't list at first
		first.kill()
		for range 25 {
			pass(time.Second)
			jobs, _ := second.demand()
			require.Equal(t, map[string]int{"[a]": 20}, jobs)
		}
		require.False(t, second.status("gitlab/jobs").Standby)
		g.change(func(f *fakeGitLab) { f.err = nil })
		pass(DefaultEvery)
		second.requireDemand(map[string]int{"[a]": 20})
	})
}

func TestAStopGivesTheLeaseBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		shared := newMemory()
		first := start(t, shared, "one", g, Options{})
		settle()
		second := start(t, shared, "two", g, Options{})
		settle()
		first.stop()
		pass(second.source.renewEvery())
		require.False(t, second.status("gitlab/jobs").Standby)
	})
}

func TestNewRefusesWhatCanTellNothing(t *testing.T) {
	_, err := New(Options{URL: origin, Store: newMemory().member(), Replica: "one"})
	require.ErrorContains(t, err, "nothing tells of jobs")
	_, err = New(Options{API: &fakeGitLab{}, Store: newMemory().member(), Replica: "one"})
	require.ErrorContains(t, err, "needs a URL")
}

var errQueue = errors.New("the store is away")

func TestUnknownIsNotZeroInTheUnion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGitLab{}
		g.put(waiting(1, "a"))
		r := start(t, newMemory(), "one", g, Options{})
		settle()
		both := NewSources(SourcesOptions{Queue: Queue{counter{err: errQueue}}, Boards: r.memory.member(), Origin: origin})
		view, err := both.Demand(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, jobsOf(view.Classes))
		require.True(t, view.Partial)
		require.Contains(t, view.Lacking, "")
		require.NotContains(t, view.Lacking, origin)
		require.Contains(t, both.Status()[0].Err, "away")

		dead := r.memory.member()
		close(dead.dead)
		none := NewSources(SourcesOptions{Queue: Queue{counter{err: errQueue}}, Boards: dead, Origin: origin})
		_, err = none.Demand(t.Context())
		require.ErrorIs(t, err, errQueue)
		require.ErrorIs(t, err, errDead)
		_, err = NewSources(SourcesOptions{}).Demand(t.Context())
		require.ErrorIs(t, err, errNoSource)
	})
}
