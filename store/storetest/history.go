package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// step is what a transition says but when.
type step struct {
	sequence int64
	state    spillway.JobState
	attempt  int
	pool     string
	machine  spillway.MachineID
	reason   string
}

// steps are a record's transitions. They are numbered without gaps, in the order of
// time, and the last is where the job is.
func steps(t *testing.T, r spillway.JobRecord) []step {
	t.Helper()
	require.NotEmpty(t, r.Transitions)
	require.LessOrEqual(t, len(r.Transitions), spillway.MaxTransitions)
	list := make([]step, len(r.Transitions))
	for i, tr := range r.Transitions {
		list[i] = step{tr.Sequence, tr.State, tr.Attempt, tr.Pool, tr.Machine, tr.Reason}
		if i > 0 {
			require.Equal(t, r.Transitions[i-1].Sequence+1, tr.Sequence)
			// The submission is known in µs, the others in ms.
			require.GreaterOrEqual(t, tr.At.Sub(r.Transitions[i-1].At), -time.Millisecond)
		}
	}
	last := list[len(list)-1]
	require.Equal(t, last.sequence, r.Sequence())
	require.Equal(t, r.State, last.state)
	require.Equal(t, r.Attempt, last.attempt)
	return list
}

var historyContract = []contract{
	{"a job's way is kept, numbered", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		require.Equal(t, []step{{sequence: 1, state: spillway.Pending}}, steps(t, get(t, s, "1")))
		first := claim(t, s, 1, "a")[0].Ref
		require.NoError(t, release(t, s, store.Release{Ref: first, Detail: "refused: full; really, 100%"}))
		second := claim(t, s, 1, "a")[0].Ref
		require.NoError(t, apply(t, s, running(second)))
		require.NoError(t, apply(t, s, running(second))) // again: no transition
		require.NoError(t, release(t, s, store.Release{Ref: second, Lost: true, Detail: "its machine is gone"}))
		third := claim(t, s, 1, "a")[0].Ref
		end := store.Transition{
			Ref: third, To: spillway.Failed, Pool: "green", Machine: "m-3",
			Result: spillway.JobResult{State: spillway.Failed, Reason: spillway.ScriptFailure, ExitCode: 1, Output: []byte("a\n#b\n;c")},
		}
		require.NoError(t, apply(t, s, end))
		require.NoError(t, apply(t, s, end)) // the same again
		require.ErrorIs(t, apply(t, s, completed(third)), store.ErrStaleAttempt)
		r := get(t, s, "1")
		require.Equal(t, []step{
			{1, spillway.Pending, 0, "", "", ""},
			{2, spillway.Assigned, 1, "blue", "", ""},
			{3, spillway.Pending, 1, "", "", "refused: full; really, 100%"},
			{4, spillway.Assigned, 2, "blue", "", ""},
			{5, spillway.Running, 2, "blue", "m 1", ""},
			{6, spillway.Pending, 2, "", "", "its machine is gone"},
			{7, spillway.Assigned, 3, "blue", "", ""},
			{8, spillway.Failed, 3, "green", "m-3", "script_failure"},
		}, steps(t, r))
		require.Equal(t, "a\n#b\n;c", string(r.Result.Output))
		require.Equal(t, r.FinishedAt, r.Transitions[7].At)
		require.Equal(t, r.Job.SubmittedAt, r.Transitions[0].At)
	}},
	{"ends of all kinds", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(4, "a")...)
		claimed := claim(t, s, 3, "a")
		require.NoError(t, apply(t, s, running(claimed[1].Ref)))
		_, err := s.Cancel(t.Context(), []spillway.JobID{"1", "2", "4"}, "not needed")
		require.NoError(t, err)
		require.NoError(t, release(t, s, store.Release{Ref: claimed[2].Ref}))
		_, err = s.Reject(t.Context(), classOf("a"), 0, 10, spillway.JobResult{State: spillway.Rejected, Reason: spillway.Unmatched})
		require.NoError(t, err)
		require.Equal(t, step{3, spillway.Canceled, 1, "blue", "", "job_canceled"}, steps(t, get(t, s, "1"))[2])
		require.Equal(t, step{4, spillway.Canceled, 1, "blue", "m 1", "job_canceled"}, steps(t, get(t, s, "2"))[3])
		require.Equal(t, step{4, spillway.Rejected, 1, "", "", "unmatched"}, steps(t, get(t, s, "3"))[3])
		require.Equal(t, []step{{1, spillway.Pending, 0, "", "", ""}, {2, spillway.Canceled, 0, "", "", "job_canceled"}}, steps(t, get(t, s, "4")))
	}},
	{"only the newest are kept, and their numbers go on", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		long := strings.Repeat("é", spillway.MaxTransitionReasonBytes)
		for n := int64(1); n < 3*spillway.MaxTransitions; n += 2 {
			c := claim(t, s, 1, "a")[0]
			require.NoError(t, release(t, s, store.Release{Ref: c.Ref, Detail: long}))
			list := steps(t, get(t, s, "1"))
			require.Equal(t, n+2, list[len(list)-1].sequence)
			require.Len(t, list, min(int(n)+2, spillway.MaxTransitions))
			require.Len(t, list[len(list)-1].reason, spillway.MaxTransitionReasonBytes)
		}
	}},
	{"what is told has the history along", store.Options{}, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := s.Subscribe(ctx)
		require.NoError(t, err)
		push(t, s, job("1", "a"))
		require.NoError(t, apply(t, s, completed(claim(t, s, 1, "a")[0].Ref)))
		var last []step
		for len(last) < 3 {
			for _, e := range receive(t, events).Events {
				last = steps(t, e.Record)
			}
		}
		require.Equal(t, []spillway.JobState{spillway.Pending, spillway.Assigned, spillway.Completed}, []spillway.JobState{last[0].state, last[1].state, last[2].state})
	}},
	{"a cancel reaches whoever has the job", store.Options{}, func(t *testing.T, s *store.Store) {
		canceled, err := s.Canceled(t.Context())
		require.NoError(t, err)
		push(t, s, numbered(4, "a")...)
		claimed := claim(t, s, 3, "a")
		require.NoError(t, apply(t, s, running(claimed[0].Ref)))
		require.NoError(t, apply(t, s, completed(claimed[1].Ref)))
		_, err = s.Cancel(t.Context(), []spillway.JobID{"1", "2", "3", "4", "9"}, "")
		require.NoError(t, err)
		require.Equal(t, []spillway.JobID{"1", "3"}, receive(t, canceled), "not those that had ended, nor those that waited")
		require.NoError(t, s.Close())
		closes(t, canceled)
	}},
	canceledContract,
}

// canceledContract is about jobs that admission controllers look at.
var canceledContract = contract{
	"a cancel under review and after it", store.Options{}, func(t *testing.T, s *store.Store) {
		heard, err := s.Canceled(t.Context())
		require.NoError(t, err)
		push(t, s, numbered(2, "a")...)
		under := review(t, s, 2, both, "a")
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Admitted}))
		_, err = s.Cancel(t.Context(), []spillway.JobID{"1", "2"}, "not needed")
		require.NoError(t, err)
		require.Equal(t, []spillway.JobID{"1"}, receive(t, heard), "a replica has it reviewed; the other one only waited")
		for id, way := range map[spillway.JobID][]spillway.JobState{
			"1": {spillway.Pending, spillway.Routing, spillway.Canceled},
			"2": {spillway.Pending, spillway.Routing, spillway.Admitted, spillway.Canceled},
		} {
			var states []spillway.JobState
			for _, step := range steps(t, get(t, s, id)) {
				states = append(states, step.state)
			}
			require.Equal(t, way, states)
		}
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Admitted}), store.ErrStaleAttempt)
		require.Empty(t, claimAdmitted(t, s, 9, "a"))
		c, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Empty(t, c, "nothing of them is left in any queue")
	},
}

// lose makes jobs lose a machine each until they are in quarantine.
func lose(t *testing.T, s *store.Store, n int, tags ...string) {
	t.Helper()
	for range spillway.DefaultMaxAttempts {
		for _, c := range claim(t, s, n, tags...) {
			_, err := s.Release(t.Context(), []store.Release{{Ref: c.Ref, Lost: true, Detail: "its machine is gone"}})
			if err != nil {
				require.ErrorIs(t, err, store.ErrQuarantined)
			}
		}
	}
}

func quarantined(t *testing.T, s *store.Store) (ids []spillway.JobID) {
	t.Helper()
	for token := ""; ; {
		records, next, err := s.Quarantined(t.Context(), 2, token)
		require.NoError(t, err)
		require.LessOrEqual(t, len(records), 2)
		for _, r := range records {
			require.True(t, r.Quarantined)
			require.Empty(t, r.Job.Script)
			ids = append(ids, r.Job.ID)
		}
		if token = next; token == "" {
			return ids
		}
	}
}

var quarantineContract = []contract{
	{"a poison job is kept, and tried again at an operator's word only", store.Options{FinishedTTL: time.Millisecond}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"), job("2", "a"))
		_, err := s.Retry(t.Context(), "1", "x")
		require.ErrorIs(t, err, store.ErrNotQuarantined, "it waits")
		lose(t, s, 2, "a")
		require.ElementsMatch(t, []spillway.JobID{"1", "2"}, quarantined(t, s))
		r := get(t, s, "1")
		require.True(t, r.Quarantined)
		require.Equal(t, spillway.Failed, r.State)
		require.Equal(t, spillway.RunnerSystemFailure, r.Result.Reason)
		require.Equal(t, 3, r.Lost)
		require.Equal(t, step{7, spillway.Failed, 3, "blue", "", "runner_system_failure"}, steps(t, r)[6])
		_, err = s.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, quarantined(t, s), 2, "records of jobs that have ended are forgotten, these are not")

		r, err = s.Retry(t.Context(), "1", "the disk was replaced")
		require.NoError(t, err)
		require.Equal(t, spillway.Pending, r.State)
		require.Zero(t, r.Lost)
		require.False(t, r.Quarantined)
		require.Equal(t, step{8, spillway.Pending, 3, "", "", "the disk was replaced"}, steps(t, r)[7])
		require.Equal(t, step{7, spillway.Failed, 3, "blue", "", "runner_system_failure"}, steps(t, r)[6])
		_, err = s.Retry(t.Context(), "1", "twice")
		require.ErrorIs(t, err, store.ErrNotQuarantined)
		require.Equal(t, []spillway.JobID{"2"}, quarantined(t, s))

		again := claim(t, s, 1, "a")[0]
		require.Equal(t, 4, again.Ref.Attempt, "the same id, the next attempt: what comes of the older ones is stale")
		require.Equal(t, "echo 1", again.Job.Script)
		require.Equal(t, "secret-1", again.Job.Env["TOKEN"])
		require.NoError(t, release(t, s, store.Release{Ref: again.Ref, Lost: true}), "it may lose machines again")
		require.NoError(t, apply(t, s, completed(claim(t, s, 1, "a")[0].Ref)))
	}},
	{"only what is in quarantine comes out of it", store.Options{}, func(t *testing.T, s *store.Store) {
		once := job("2", "a")
		once.NoRetry = true
		push(t, s, job("1", "a"), once)
		claimed := claim(t, s, 2, "a")
		require.ErrorIs(t, second(s.Retry(t.Context(), "1", "")), store.ErrNotQuarantined)
		require.NoError(t, apply(t, s, completed(claimed[0].Ref)))
		require.NoError(t, release(t, s, store.Release{Ref: claimed[1].Ref, Lost: true}))
		for id, state := range map[spillway.JobID]spillway.JobState{"1": spillway.Completed, "2": spillway.Failed} {
			r, err := s.Retry(t.Context(), id, "")
			require.ErrorIs(t, err, store.ErrNotQuarantined)
			require.Equal(t, state, r.State)
			require.Equal(t, state, get(t, s, id).State)
		}
		require.ErrorIs(t, second(s.Retry(t.Context(), "9", "")), store.ErrUnknownJob)
	}},
	{"a reaped claim may be the last", store.Options{}, func(t *testing.T, s *store.Store) {
		j := job("1", "a")
		j.MaxAttempts = 1
		push(t, s, j)
		claimFor(t, s, 1, time.Millisecond, "a")
		require.True(t, reapUntil(t, s, 1)[0].Quarantined)
		require.Equal(t, []spillway.JobID{"1"}, quarantined(t, s))
		outcomes, err := s.Cancel(t.Context(), []spillway.JobID{"1"}, "")
		require.NoError(t, err)
		require.Equal(t, spillway.Failed, outcomes[0].State, "it has ended")
	}},
	{"nobody's quarantine ends", store.Options{QuarantineTTL: 20 * time.Millisecond}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		lose(t, s, 1, "a")
		require.Eventually(t, func() bool {
			_, err := s.Reap(t.Context(), 10)
			require.NoError(t, err)
			_, err = s.Get(t.Context(), "1")
			return err != nil
		}, within, every)
		require.Empty(t, quarantined(t, s))
		push(t, s, job("1", "b")) // forgotten, so new
	}},
	{"quarantine is bounded", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(store.MaxQuarantined+2, "a")...)
		lose(t, s, store.MaxQuarantined+2, "a")
		_, err := s.Reap(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, quarantined(t, s), store.MaxQuarantined)
	}},
	{"the job comes to the queue of every replica", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		lose(t, s, 1, "a")
		pokes, err := s.Pokes(t.Context())
		require.NoError(t, err)
		_, err = s.Retry(t.Context(), "1", "")
		require.NoError(t, err)
		receive(t, pokes)
		pending, _ := counts(t, s)
		require.Equal(t, 1, pending)
	}},
}

func second[T any](_ T, err error) error { return err }
