package scaler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// limited is a world whose machines others hand jobs to.
type limited struct {
	*world
	limits Limits
	begun  int
	at     time.Time // when they had begun; zero = after every list
	unseen int
}

func (l *limited) Unseen(string) int { return l.unseen }

func (l *limited) Limits(string) Limits { return l.limits }

func (l *limited) Begun(_ string, after time.Time) int {
	if after.IsZero() || (!l.at.IsZero() && !l.at.After(after)) {
		return 0
	}
	return l.begun
}

// limitedRig is busy(n) whose machines say what can't be done.
func limitedRig(t *testing.T, n int) (*rig, *limited) {
	t.Helper()
	r := busy(t, n)
	l := &limited{world: r.world}
	r.fleet.machines = l
	return r, l
}

func TestNothingGoesWhereNothingCanBeDrained(t *testing.T) {
	r, l := limitedRig(t, 3)
	for i := range r.machines {
		r.machines[i].Busy = 0
	}
	l.limits.CannotDrain = "nothing makes a runner take no more jobs"
	r.pass(20 * time.Minute)
	require.Empty(t, r.next(0))
	st := r.pool.Status()
	require.Equal(t, policy.ReasonCannotDrain, st.Hold)
	require.Equal(t, "cannot_drain: nothing makes a runner take no more jobs", st.Finding)
	l.limits.CannotDrain = ""
	require.Len(t, r.next(5*time.Second), 3, "what changes is seen at once")
	require.Empty(t, r.pool.Status().Finding)
}

func TestNobodyLaunchesForRunnersThatGetNoJobs(t *testing.T) {
	r, l := limitedRig(t, 1)
	r.pend(4)
	l.limits.CannotServe = "of its 1 runners 1 are deleted"
	require.Empty(t, r.next(5*time.Second))
	require.Empty(t, r.next(5*time.Second))
	require.Equal(t, policy.ReasonRunnerGone, r.pool.Status().Decision.LimitedBy)
	require.Equal(t, "runner_gone: of its 1 runners 1 are deleted", r.pool.Status().Finding)
	l.limits.CannotServe = ""
	r.next(5 * time.Second)
	r.next(5 * time.Second)
	require.Equal(t, 5, r.pool.Status().Desired)
}

func TestWhoWasNeverHeardOfIsOnlyToldOfWhereNobodyCouldHear(t *testing.T) {
	w := newWorld()
	r := newRig(w)
	l := &limited{world: w, limits: Limits{Unaccounted: "GitLab isn't asked"}}
	r.fleet.machines = l
	r.pend(2)
	r.tick()
	for i := range w.list {
		w.list[i].State = pluginsdk.StateRunning
	}
	r.taken()
	r.pend(0)
	for range 140 {
		r.pass(5 * time.Second)
		r.tick()
	}
	require.Empty(t, r.taken(), "no word was heard of them, and nobody could have heard one")
	require.Contains(t, r.pool.Status().Finding, "unheard: 2 instances were never heard of and are not removed: GitLab isn't asked")
	l.limits = Limits{}
	require.Equal(t, []string{"remove[i-0 i-1]"}, r.next(5*time.Second))
}

func TestAJobThatHasBegunSinceTheListNeedsNoFurtherPlace(t *testing.T) {
	r, l := limitedRig(t, 2)
	r.pend(1) // the list is older than the machine's word
	l.begun = 1
	require.Empty(t, r.next(5*time.Second))
	r.pend(2)
	require.Equal(t, []string{"set3|2"}, r.next(5*time.Second), "one of the two does")
	r.pend(1)
	require.Empty(t, r.next(5*time.Second))
	d := r.pool.Status().Decision
	require.Equal(t, 3, d.Desired, "nor is what was launched for one that waits taken back")
	require.Equal(t, "1 more jobs wait still, or have just begun", d.Trace[1].Why)
}

// A view is as young as the look that reads it; the list in it is not.
func TestWhatHasBegunIsComparedWithTheListOfItsOrigin(t *testing.T) {
	r, l := limitedRig(t, 2)
	origin := r.pool.Definition().Capability.Origin
	listed := r.now
	r.fleet.demand = &oldList{l.world, map[string]time.Time{origin: listed}}
	r.pend(1)
	l.begun, l.at = 1, listed.Add(time.Second)
	require.Empty(t, r.next(5*time.Second), "it began after the list")
	l.at = listed
	require.Equal(t, []string{"set3|2"}, r.next(5*time.Second), "the list has it already")
}

// oldList is waiting jobs that were listed some time before they are read.
type oldList struct {
	*world
	listed map[string]time.Time
}

func (l *oldList) Demand(ctx context.Context) (demand.View, error) {
	view, err := l.world.Demand(ctx)
	view.Listed = l.listed
	return view, err
}

func TestACountIsTheDemandWhereNothingElseTells(t *testing.T) {
	r := busy(t, 2)
	source := &said{jobs: 5, drives: true}
	r.fleet.SetCounts(source)
	r.fail["demand"] = errors.New("there is no queue")
	require.Equal(t, []string{"set5|2"}, r.next(5*time.Second))
	require.Equal(t, 3, r.pool.Status().Pending)
	require.Equal(t, "a count says 5 jobs, 1 per instance, 2 instances in use", r.pool.Status().Decision.Trace[0].Why)

	source.err = errors.New("no data")
	require.Empty(t, r.next(5*time.Second))
	require.Equal(t, policy.ReasonHoldStale, r.pool.Status().Decision.LimitedBy, "an unknown count is unknown demand")
	source.err = nil
	source.drives = false
	source.jobs = 9
	require.Empty(t, r.next(5*time.Second), "elsewhere a count launches nothing")
}

func TestAJobThatNoMachineTellsOfYetKeepsItsPlace(t *testing.T) {
	r, l := limitedRig(t, 2)
	l.unseen = 1
	r.machines[0].Busy, r.machines[1].Busy = 0, 0
	require.Len(t, r.next(20*time.Minute), 1, "one of the two may go")
	require.Equal(t, policy.ReasonDemand, r.pool.Status().Decision.LimitedBy)
}
