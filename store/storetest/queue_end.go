package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// reapUntil reaps until n jobs have been given back or ended.
func reapUntil(t *testing.T, s *store.Store, n int) []spillway.JobRecord {
	t.Helper()
	var all []spillway.JobRecord
	require.Eventually(t, func() bool {
		records, err := s.Reap(t.Context(), 1_000)
		require.NoError(t, err)
		all = append(all, records...)
		return len(all) >= n
	}, within, every)
	require.Len(t, all, n)
	return all
}

var reapContract = []contract{
	{"an expired claim is a loss", store.Options{}, func(t *testing.T, s *store.Store) {
		once := job("2", "a")
		once.NoRetry = true
		push(t, s, job("1", "a"), once, job("3", "b"))
		old := claimFor(t, s, 2, time.Millisecond, "a")
		kept := claim(t, s, 1, "b")
		states := map[spillway.JobID]spillway.JobState{}
		for _, r := range reapUntil(t, s, 2) {
			require.Equal(t, 1, r.Lost)
			states[r.Job.ID] = r.State
		}
		require.Equal(t, map[spillway.JobID]spillway.JobState{"1": spillway.Pending, "2": spillway.Failed}, states)
		require.ErrorIs(t, apply(t, s, completed(old[0].Ref)), store.ErrStaleAttempt)
		require.Equal(t, spillway.RunnerSystemFailure, get(t, s, "2").Result.Reason)
		require.NoError(t, apply(t, s, completed(kept[0].Ref)))
		require.Equal(t, 2, claim(t, s, 1, "a")[0].Ref.Attempt)
	}},
	{"at most the limit", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(10, "a")...)
		claimFor(t, s, 10, time.Millisecond, "a")
		require.Eventually(t, func() bool {
			records, err := s.Reap(t.Context(), 4)
			require.NoError(t, err)
			require.LessOrEqual(t, len(records), 4)
			pending, _ := counts(t, s)
			return pending == 10
		}, within, every)
	}},
	{"records expire", store.Options{FinishedTTL: 20 * time.Millisecond}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		require.NoError(t, apply(t, s, completed(claim(t, s, 1, "a")[0].Ref)))
		require.Eventually(t, func() bool {
			_, err := s.Reap(t.Context(), 10)
			require.NoError(t, err)
			_, err = s.Get(t.Context(), "1")
			return err != nil
		}, within, every)
		_, err := s.Get(t.Context(), "1")
		require.ErrorIs(t, err, store.ErrUnknownJob)
		push(t, s, job("1", "b")) // even in another class
	}},
	{"records of all classes together are bounded", store.Options{MaxFinished: 4}, func(t *testing.T, s *store.Store) {
		for i, tag := range []string{"a", "b", "c", "d"} {
			id := string(rune('1' + i))
			push(t, s, job(id, tag), job(id+"0", tag))
			for _, c := range claim(t, s, 2, tag) {
				require.NoError(t, apply(t, s, completed(c.Ref)))
			}
		}
		_, err := s.Reap(t.Context(), 10)
		require.NoError(t, err)
		records, _, err := s.List(t.Context(), nil, 0, "")
		require.NoError(t, err)
		require.Len(t, records, 4)
	}},
}

var cancelContract = []contract{
	{"in every state", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(5, "a")...)
		claimed := claim(t, s, 4, "a")
		require.NoError(t, release(t, s, store.Release{Ref: claimed[0].Ref}))
		require.NoError(t, apply(t, s, running(claimed[1].Ref)))
		require.NoError(t, apply(t, s, completed(claimed[3].Ref)))
		outcomes, err := s.Cancel(t.Context(), []spillway.JobID{"1", "2", "3", "4", "5", "9"}, "not needed any more")
		require.NoError(t, err)
		require.Equal(t, []store.CancelOutcome{
			{ID: "1", Found: true, State: spillway.Canceled},
			{ID: "2", Found: true, State: spillway.Canceled},
			{ID: "3", Found: true, State: spillway.Canceled},
			{ID: "4", Found: true, State: spillway.Completed},
			{ID: "5", Found: true, State: spillway.Canceled},
			{ID: "9"},
		}, outcomes)
		require.ErrorIs(t, apply(t, s, completed(claimed[1].Ref)), store.ErrStaleAttempt)
		require.ErrorIs(t, release(t, s, store.Release{Ref: claimed[2].Ref, Lost: true}), store.ErrStaleAttempt)
		require.Empty(t, claim(t, s, 10, "a"))
		r := get(t, s, "2")
		require.Equal(t, spillway.JobCanceled, r.Result.Reason)
		require.Equal(t, "not needed any more", r.Result.Detail)
		require.Equal(t, spillway.MachineID("m 1"), r.Machine)
		pending, left := counts(t, s)
		require.Zero(t, pending+left)
	}},
	{"reject what waited too long", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(3, "a")
		jobs[1].Priority = 7
		push(t, s, jobs...)
		claimed := claim(t, s, 1, "a")
		result := spillway.JobResult{State: spillway.Failed, Reason: spillway.PendingTimeout, Detail: "waited too long"}
		records, err := s.Reject(t.Context(), classOf("a"), time.Hour, 10, result)
		require.NoError(t, err)
		require.Empty(t, records, "none has waited for so long")
		records, err = s.Reject(t.Context(), classOf("a"), 0, 1, result)
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Equal(t, spillway.JobID("3"), records[0].Job.ID)
		require.Equal(t, result, records[0].Result)
		records, err = s.Reject(t.Context(), classOf("a"), 0, 10, result)
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Equal(t, spillway.JobID("2"), records[0].Job.ID)
		require.Equal(t, spillway.Failed, get(t, s, "2").State)
		require.Equal(t, spillway.Assigned, get(t, s, "1").State)
		require.NoError(t, release(t, s, store.Release{Ref: claimed[0].Ref, Lost: true}))
		records, err = s.Reject(t.Context(), classOf("a"), 0, 10, result)
		require.NoError(t, err)
		require.Len(t, records, 1)
	}},
	{"reject needs a state", store.Options{}, func(t *testing.T, s *store.Store) {
		_, err := s.Reject(t.Context(), classOf("a"), 0, 1, spillway.JobResult{State: spillway.Completed})
		require.Error(t, err)
	}},
}

var readContract = []contract{
	{"unknown", store.Options{}, func(t *testing.T, s *store.Store) {
		_, err := s.Get(t.Context(), "9")
		require.ErrorIs(t, err, store.ErrUnknownJob)
	}},
	{"list, newest first, in pages", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(25, "a")
		for i := range jobs {
			jobs[i].Requirement.Tags = []string{string(rune('a' + i%3))}
			jobs[i].Priority = i % 4
		}
		push(t, s, jobs...)
		var got []spillway.JobID
		for token, pages := "", 0; ; pages++ {
			require.Less(t, pages, 10)
			records, next, err := s.List(t.Context(), nil, 7, token)
			require.NoError(t, err)
			for _, r := range records {
				require.Empty(t, r.Job.Script)
				require.Empty(t, r.Job.Env)
				got = append(got, r.Job.ID)
			}
			if token = next; token == "" {
				break
			}
		}
		require.Len(t, got, 25)
		for i, id := range got {
			require.Equal(t, jobs[24-i].ID, id)
		}
	}},
	{"X07: more jobs than a page or a batch holds are all counted and all listed", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(store.MaxPage+store.MaxBatch+1, "a")
		push(t, s, jobs...)
		pending, _ := counts(t, s)
		require.Equal(t, len(jobs), pending)
		left := make(map[spillway.JobID]bool, len(jobs))
		for i := range jobs {
			left[jobs[i].ID] = true
		}
		for token, last := "", false; !last; last = token == "" {
			records, next, err := s.List(t.Context(), nil, store.MaxPage, token)
			require.NoError(t, err)
			for _, r := range records {
				require.True(t, left[r.Job.ID], "%s is listed twice", r.Job.ID)
				delete(left, r.Job.ID)
			}
			token = next
		}
		require.Empty(t, left, "never listed")
	}},
	{"list by state", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(6, "a")...)
		claimed := claim(t, s, 4, "a")
		require.NoError(t, apply(t, s, completed(claimed[0].Ref)))
		require.NoError(t, apply(t, s, running(claimed[1].Ref)))
		for state, want := range map[spillway.JobState]int{
			spillway.Pending: 2, spillway.Assigned: 2, spillway.Running: 1, spillway.Completed: 1, spillway.Failed: 0,
		} {
			records, next, err := s.List(t.Context(), []spillway.JobState{state}, 0, "")
			require.NoError(t, err)
			require.Empty(t, next)
			require.Len(t, records, want, state)
		}
	}},
	{"a token of somebody else", store.Options{}, func(t *testing.T, s *store.Store) {
		for _, token := range []string{"x", "-1.a", "!.a", "."} {
			_, _, err := s.List(t.Context(), nil, 1, token)
			require.ErrorIs(t, err, store.ErrPageToken, token)
		}
	}},
}
