package admission_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
)

var t0 = time.Unix(1_000_000, 0)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

func item(id string, attempt int, approved ...string) admission.Item {
	r := spillway.Requirement{Project: 7, Groups: []int64{3}}
	return admission.Item{
		Ref:      router.JobRef{ID: spillway.JobID(id), Class: r.Class(), Attempt: attempt},
		Subject:  admission.Subject{ID: id, Job: spillway.Job{ID: spillway.JobID(id), Requirement: r}},
		Approved: approved,
	}
}

// three is a policy of three controllers, one of each scope.
func three(t require.TestingT) admission.Policy {
	return policy(t,
		admission.Controller{Name: "first", Scope: admission.Instance, Deadline: 10 * time.Second, Batch: 2},
		admission.Controller{Name: "second", Scope: admission.Group, Groups: []int64{3}, Deadline: 10 * time.Second},
		admission.Controller{Name: "third", Scope: admission.Project, Projects: []int64{7}, Deadline: 5 * time.Second},
	)
}

func connect(t require.TestingT, e *admission.Engine, s float64, id int, controller string) {
	_, err := e.Connect(at(s), admission.InstanceID(id), controller, "i"+strconv.Itoa(id), 0)
	require.NoError(t, err)
}

func yes(ids ...string) []admission.Verdict {
	var list []admission.Verdict
	for _, id := range ids {
		list = append(list, admission.Verdict{Subject: id, Allow: true})
	}
	return list
}

func show(b []admission.Batch) []string {
	var out []string
	for i := range b {
		ids := ""
		for _, s := range b[i].Subjects {
			ids += " " + s.ID
		}
		out = append(out, fmt.Sprintf("%d/%d:%s", b[i].Instance, b[i].ID, ids))
	}
	return out
}

func TestAJobPassesItsChainInOrder(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	for i, name := range []string{"third", "second", "first"} {
		connect(t, e, 0, i+1, name)
	}
	require.Empty(t, e.Take(at(1), item("1", 1)))
	for _, id := range []admission.InstanceID{3, 2, 1} {
		require.Equal(t, []string{fmt.Sprintf("%d/1: 1", id)}, show(e.Plan(at(1))))
		require.Empty(t, e.Plan(at(1)), "nobody else is asked before")
		decided, infos, err := e.Answer(at(2), id, 1, yes("1"))
		require.NoError(t, err)
		require.Len(t, infos, 1)
		if id > 1 {
			require.Empty(t, decided)
			continue
		}
		require.Len(t, decided, 1)
		require.Equal(t, admission.Approved, decided[0].Outcome)
		require.Equal(t, []string{"first", "second", "third"}, decided[0].Approved)
	}
	require.Empty(t, e.Held())
}

func TestOneRefusalEndsIt(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	connect(t, e, 0, 2, "second")
	e.Take(at(0), item("1", 1, "first"))
	require.Equal(t, []string{"2/1: 1"}, show(e.Plan(at(0))), "who has approved is not asked again")
	decided, infos, err := e.Answer(at(1), 2, 1, []admission.Verdict{{Subject: "1", Reason: "no\nway"}})
	require.NoError(t, err)
	require.Equal(t, admission.Rejected, decided[0].Outcome)
	require.Equal(t, "admission controller second: no way", decided[0].Reason)
	require.False(t, infos[0].Allow)
	require.Empty(t, e.Plan(at(1)))
}

func TestLiesChangeNothing(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	connect(t, e, 0, 2, "first")
	for _, id := range []string{"1", "2", "3"} {
		e.Take(at(0), item(id, 1))
	}
	require.Equal(t, []string{"1/1: 1 2", "2/1: 3"}, show(e.Plan(at(0))))
	for name, lie := range map[string]struct {
		batch    uint64
		verdicts []admission.Verdict
	}{
		"a job of somebody else":       {1, yes("1", "3")},
		"an unknown batch":             {2, yes("1")},
		"twice in one message":         {1, yes("1", "1")},
		"a job that it was never told": {1, yes("9")},
	} {
		_, _, err := e.Answer(at(1), 1, lie.batch, lie.verdicts)
		require.ErrorIs(t, err, admission.ErrLie, name)
	}
	require.Len(t, e.Held(), 3)
	decided, _, err := e.Answer(at(1), 1, 1, yes("1"))
	require.NoError(t, err)
	require.Equal(t, admission.HandedOn, decided[0].Outcome, "the second is not here")
	_, _, err = e.Answer(at(1), 1, 1, yes("1"))
	require.ErrorIs(t, err, admission.ErrLie, "a second verdict")
	_, _, err = e.Answer(at(1), 1, 1, yes("2"))
	require.NoError(t, err)
	_, _, err = e.Answer(at(1), 1, 1, yes("2"))
	require.ErrorIs(t, err, admission.ErrLie, "the batch is done")
}

func TestSilenceFailsWhatWasAskedAndEndsTheInstance(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		e.Take(at(1), item(id, 1))
	}
	require.Equal(t, []string{"1/1: 1 2", "1/2: 3 4"}, show(e.Plan(at(1))), "as many reviews as it may have open")
	require.Empty(t, e.Plan(at(2)))
	next, ok := e.NextDeadline()
	require.True(t, ok)
	require.Equal(t, at(11), next)
	decided, silent := e.Expire(at(10.9))
	require.Empty(t, decided)
	require.Empty(t, silent)
	decided, silent = e.Expire(at(11))
	require.Len(t, decided, 4)
	require.Equal(t, admission.TimedOut, decided[0].Outcome)
	require.Equal(t, "admission controller first did not answer within 10s", decided[0].Reason)
	require.Equal(t, []admission.InstanceID{1}, silent)
	require.Equal(t, at(1), e.Presences(at(11))[0].GoodAt, "since when it owes an answer")
	// Late verdicts are no lies.
	_, infos, err := e.Answer(at(12), 1, 1, yes("1", "2"))
	require.NoError(t, err)
	require.Empty(t, infos)
	back := e.Disconnect(at(12), 1)
	require.Len(t, back, 1, "what was not asked is handed on")
	require.Equal(t, admission.HandedOn, back[0].Outcome)
}

func TestADisconnectedInstancesJobsGoToAnother(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	e.Take(at(1), item("1", 1))
	e.Plan(at(1))
	connect(t, e, 2, 2, "first")
	require.Empty(t, e.Disconnect(at(5), 1))
	require.Equal(t, []string{"2/1: 1"}, show(e.Plan(at(5))))
	decided, silent := e.Expire(at(11))
	require.Len(t, decided, 1, "its deadline counts from when it was first asked")
	require.Empty(t, silent, "the second one has time until 15")
	// Without another one, it is for another replica.
	e.Take(at(12), item("2", 1))
	e.Plan(at(12))
	decided = e.Disconnect(at(13), 2)
	require.Equal(t, admission.HandedOn, decided[0].Outcome)
	require.Empty(t, e.Held())
}

func TestAJobThatTakesControllersDownEnds(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	e.Take(at(1), item("1", admission.MaxMoves))
	e.Plan(at(1))
	require.Empty(t, e.Disconnect(at(2), 1), "it has moved often enough")
	decided, _ := e.Expire(at(11))
	require.Equal(t, admission.TimedOut, decided[0].Outcome)
	// Nor does one move on that comes without its controller here.
	require.Empty(t, e.Take(at(20), item("2", admission.MaxMoves)))
	decided, _ = e.Expire(at(30))
	require.Len(t, decided, 1)
	require.Contains(t, decided[0].Reason, "is not connected")
}

func TestDryRunIsNeverObeyedNorWaitedFor(t *testing.T) {
	p := policy(t,
		admission.Controller{Name: "real", Scope: admission.Instance, Deadline: 10 * time.Second},
		admission.Controller{Name: "dry", Scope: admission.Instance, Deadline: 10 * time.Second, DryRun: true},
	)
	e := admission.NewEngine(t0, p)
	connect(t, e, 0, 1, "real")
	require.False(t, e.Observe(at(0), "dry", item("1", 1).Subject), "it is not here: the job goes on")
	connect(t, e, 0, 2, "dry")
	require.True(t, e.Observe(at(0), "dry", item("1", 1).Subject))
	require.False(t, e.Observe(at(0), "real", item("1", 1).Subject), "only dry_run controllers are observers")
	e.Take(at(0), item("1", 1))
	e.Plan(at(0))
	decided, infos, err := e.Answer(at(1), 2, 1, []admission.Verdict{{Subject: "1", Reason: "never"}})
	require.NoError(t, err)
	require.True(t, infos[0].DryRun)
	require.Equal(t, admission.Observation, decided[0].Kind)
	decided, _, err = e.Answer(at(1), 1, 1, yes("1"))
	require.NoError(t, err)
	require.Equal(t, admission.Approved, decided[0].Outcome)
}

func TestASlowControllerDelaysOnlyItsOwnJobs(t *testing.T) {
	p := policy(t,
		admission.Controller{Name: "slow", Scope: admission.Project, Projects: []int64{1}, Batch: 1, Deadline: time.Minute},
		admission.Controller{Name: "quick", Scope: admission.Project, Projects: []int64{2}, Batch: 1, Deadline: time.Minute},
	)
	e := admission.NewEngine(t0, p)
	connect(t, e, 0, 1, "slow")
	connect(t, e, 0, 2, "quick")
	of := func(id string, project int64) admission.Item {
		i := item(id, 1)
		i.Subject.Job.Requirement = spillway.Requirement{Project: project}
		return i
	}
	slow, quick := spillway.Requirement{Project: 1}, spillway.Requirement{Project: 2}
	room := e.Room(&slow)
	require.Equal(t, 1*(admission.MaxReviews+1), room)
	for n := range room {
		e.Take(at(0), of(fmt.Sprint("s", n), 1))
	}
	e.Plan(at(0))
	require.Zero(t, e.Room(&slow), "no more is claimed than it is soon shown")
	require.Equal(t, room, e.Room(&quick))
	for n := range 100 {
		id := fmt.Sprint("q", n)
		e.Take(at(1), of(id, 2))
		b := e.Plan(at(1))
		require.Len(t, b, 1)
		decided, _, err := e.Answer(at(1), 2, b[0].ID, yes(id))
		require.NoError(t, err)
		require.Equal(t, admission.Approved, decided[0].Outcome)
	}
	nobody := spillway.Requirement{Project: 3}
	require.Zero(t, e.Room(&nobody), "nobody has to be asked, so nothing is claimed for review")
}

func TestQuestionsHaveADeadlineOfTheirOwn(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	s := admission.Subject{ID: "gitlab 1"}
	require.False(t, e.Ask(at(0), 1, "nobody", s))
	require.True(t, e.Ask(at(0), 1, "first", s))
	require.False(t, e.Ask(at(0), 2, "first", s), "it is being asked of that job")
	decided, _ := e.Expire(at(10))
	require.Equal(t, admission.TimedOut, decided[0].Outcome)
	require.Equal(t, uint64(1), decided[0].Question)
	require.Contains(t, decided[0].Reason, "is not connected")
	require.True(t, e.Ask(at(11), 3, "first", s))
	connect(t, e, 11, 1, "first")
	require.Equal(t, []string{"1/1: gitlab 1"}, show(e.Plan(at(11))))
	decided, _, err := e.Answer(at(12), 1, 1, yes("gitlab 1"))
	require.NoError(t, err)
	require.Equal(t, admission.Approved, decided[0].Outcome, "one controller, and no chain")
}

func TestReviewsAreBounded(t *testing.T) {
	p := policy(t, admission.Controller{Name: "a", Scope: admission.Instance, Send: admission.Send{Script: true}, Batch: 9})
	e := admission.NewEngine(t0, p)
	connect(t, e, 0, 1, "a")
	for n := range 9 {
		i := item(strconv.Itoa(n), 1)
		i.Subject.Job.Script = string(make([]byte, 300<<10))
		e.Take(at(0), i)
	}
	require.Equal(t, []string{"1/1: 0 1 2", "1/2: 3 4 5"}, show(e.Plan(at(0))), "by their bytes too")
	for n := 2; n <= admission.MaxInstances; n++ {
		connect(t, e, 0, n, "a")
	}
	_, err := e.Connect(at(0), admission.MaxInstances+1, "a", "x", 0)
	require.ErrorIs(t, err, admission.ErrTooMany)
	_, err = e.Connect(at(0), admission.MaxInstances+1, "b", "x", 0)
	require.ErrorIs(t, err, admission.ErrUnknownController)
}

func TestANewPolicyLooksAtEverythingAnew(t *testing.T) {
	e := admission.NewEngine(t0, three(t))
	connect(t, e, 0, 1, "first")
	connect(t, e, 0, 2, "second")
	e.Take(at(0), item("1", 1))
	e.Plan(at(0))
	e.Take(at(0), item("2", 1, "first"))
	decided, gone := e.SetPolicy(at(1), policy(t, admission.Controller{Name: "first", Scope: admission.Instance}))
	require.Equal(t, []admission.InstanceID{2}, gone)
	require.Len(t, decided, 2)
	require.Equal(t, []string{"first"}, decided[1].Approved)
	decided = e.Take(at(1), item("2", 2, "first"))
	require.Equal(t, admission.Approved, decided[0].Outcome, "the second is asked no more")
	_, infos, err := e.Answer(at(1), 1, 1, yes("1"))
	require.NoError(t, err)
	require.Empty(t, infos, "the answer to an old review is no lie")
}
