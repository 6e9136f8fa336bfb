package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

var pushContract = []contract{
	{"the same job twice is a duplicate", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a", "b"))
		again := job("1", "b", "a", "b") // the same set of tags
		again.SubmittedAt = time.Now()
		outcomes, err := s.Push(t.Context(), []spillway.Job{again, again})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Duplicate, store.Duplicate}, outcomes)
		pending, _ := counts(t, s)
		require.Equal(t, 1, pending)
	}},
	{"twice in one call too", store.Options{}, func(t *testing.T, s *store.Store) {
		other := job("1", "a")
		other.Script = "false"
		outcomes, err := s.Push(t.Context(), []spillway.Job{job("1", "a"), job("1", "a"), other})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Accepted, store.Duplicate, store.Conflict}, outcomes)
	}},
	{"another content is a conflict and changes nothing", store.Options{}, func(t *testing.T, s *store.Store) {
		first := job("1", "a")
		push(t, s, first)
		for name, change := range map[string]func(*spillway.Job){
			"script":   func(j *spillway.Job) { j.Script = "rm -rf ." },
			"env":      func(j *spillway.Job) { j.Env = map[string]string{"TOKEN": "other"} },
			"name":     func(j *spillway.Job) { j.Name = "other" },
			"priority": func(j *spillway.Job) { j.Priority = 1 },
			"timeout":  func(j *spillway.Job) { j.Timeout = time.Minute },
			"no_retry": func(j *spillway.Job) { j.NoRetry = true },
			"class":    func(j *spillway.Job) { j.Requirement.Tags = []string{"z"} },
		} {
			other := job("1", "a")
			change(&other)
			outcomes, err := s.Push(t.Context(), []spillway.Job{other})
			require.NoError(t, err)
			require.Equal(t, []store.PushOutcome{store.Conflict}, outcomes, name)
		}
		claimed := claim(t, s, 10, "a")
		require.Len(t, claimed, 1)
		require.Equal(t, first.Script, claimed[0].Job.Script)
		require.Empty(t, claim(t, s, 10, "z"))
	}},
	{"an ended job is still a duplicate", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		require.NoError(t, apply(t, s, completed(claim(t, s, 1, "a")[0].Ref)))
		outcomes, err := s.Push(t.Context(), []spillway.Job{job("1", "a")})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Duplicate}, outcomes)
		require.Equal(t, spillway.Completed, get(t, s, "1").State)
	}},
	{"the queue is full at its bound", store.Options{MaxQueued: 5}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(5, "a")...)
		outcomes, err := s.Push(t.Context(), []spillway.Job{job("1", "a"), job("6", "a"), job("5", "a")})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Duplicate, store.Full, store.Duplicate}, outcomes)
		require.NoError(t, apply(t, s, completed(claim(t, s, 1, "a")[0].Ref)))
		outcomes, err = s.Push(t.Context(), []spillway.Job{job("6", "b"), job("7", "b")})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Accepted, store.Full}, outcomes)
		_, err = s.Get(t.Context(), "7")
		require.ErrorIs(t, err, store.ErrUnknownJob)
	}},
	{"more than one batch", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2*store.MaxBatch+1, "a")...)
		pending, _ := counts(t, s)
		require.Equal(t, 2*store.MaxBatch+1, pending)
	}},
	{"a job that would break the order is refused", store.Options{}, func(t *testing.T, s *store.Store) {
		bad := job("1", "a")
		bad.Priority = spillway.MaxJobPriority + 1
		_, err := s.Push(t.Context(), []spillway.Job{bad})
		require.ErrorIs(t, err, spillway.ErrInvalid)
		_, err = s.Push(t.Context(), []spillway.Job{job("", "a")})
		require.ErrorIs(t, err, spillway.ErrInvalid)
		_, err = s.Push(t.Context(), []spillway.Job{job(strings.Repeat("x", spillway.MaxJobIDBytes+1), "a")})
		require.ErrorIs(t, err, spillway.ErrInvalid)
	}},
}

var claimContract = []contract{
	{"a job comes back as it was pushed", store.Options{}, func(t *testing.T, s *store.Store) {
		j := spillway.Job{
			ID: "build:7/x{1}", Name: "compile", Priority: 3, Script: "set -e\nmake\n", Timeout: 90 * time.Second, MaxAttempts: 2, NoRetry: true,
			Env: map[string]string{"A": "1", "B": "two\nlines"},
			Requirement: spillway.Requirement{
				Tags: []string{"linux", "docker"}, Protected: true, Project: 9, Groups: []int64{4, 2},
				Resources: spillway.Resources{MilliCPU: 1500, MemoryMiB: 2048, Features: []string{"kvm"}},
			},
		}
		push(t, s, j)
		class := j.Requirement.Class()
		before, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Len(t, before, 1)
		require.Equal(t, j.Requirement.Normalize(), before[0].Requirement)
		require.Equal(t, 3, before[0].Priority)
		claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{{Class: class, Pool: "blue", N: 1}}, claimTTL)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		got := claimed[0]
		require.Equal(t, router.JobRef{ID: j.ID, Class: class, Attempt: 1}, got.Ref)
		require.Equal(t, "blue", got.Pool)
		require.Equal(t, before[0].Oldest, got.Job.SubmittedAt)
		require.WithinDuration(t, time.Now(), got.Job.SubmittedAt, within)
		j.SubmittedAt, j.Requirement = got.Job.SubmittedAt, j.Requirement.Normalize()
		require.Equal(t, j, got.Job)
	}},
	{"by priority, then submission", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(6, "a")
		for i, p := range []int{2, 0, 9, 0, 2, 1} {
			jobs[i].Priority = p
		}
		push(t, s, jobs[:3]...)
		push(t, s, jobs[3:]...)
		require.Equal(t, []spillway.JobID{"2", "4", "6"}, idsOf(claim(t, s, 3, "a")))
		all, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, all[0].Priority)
		require.Equal(t, 3, all[0].Pending)
		require.Equal(t, 3, all[0].Claimed)
		require.Equal(t, []spillway.JobID{"1", "5", "3"}, idsOf(claim(t, s, 10, "a")))
		require.Empty(t, claim(t, s, 10, "a"))
	}},
	{"counted by how long they have waited", store.Options{}, func(t *testing.T, s *store.Store) {
		all, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
		old := numbered(4, "a")
		for i := range old {
			old[i].Priority = i % 2
		}
		push(t, s, old...)
		all, err = s.Counts(t.Context())
		require.NoError(t, err)
		require.Nil(t, all[0].Waited, "nobody has asked")

		const age = 50 * time.Millisecond
		s.CountAges([]time.Duration{time.Hour, age, age})
		require.Eventually(t, func() bool {
			all, err := s.Counts(t.Context())
			require.NoError(t, err)
			require.Equal(t, []time.Duration{age, time.Hour}, []time.Duration{all[0].Waited[0].For, all[0].Waited[1].For})
			require.Zero(t, all[0].Waited[1].Jobs)
			return all[0].Waited[0].Jobs == len(old)
		}, within, every)
		// Whatever a pause of the test makes of their age, those that came first are as old.
		young := job("young", "a")
		push(t, s, young, job("alone", "b"))
		all, err = s.Counts(t.Context())
		require.NoError(t, err)
		for _, c := range all {
			require.LessOrEqual(t, c.Waited[0].Jobs, c.Pending)
			if c.Pending > 1 {
				require.GreaterOrEqual(t, c.Waited[0].Jobs, len(old))
			}
		}
		s.CountAges(nil)
		all, err = s.Counts(t.Context())
		require.NoError(t, err)
		require.Nil(t, all[0].Waited)
	}},
	{"the oldest job counts, whatever its priority", store.Options{}, func(t *testing.T, s *store.Store) {
		old, urgent := job("1", "a"), job("2", "a")
		old.Priority = 5
		push(t, s, old)
		all, err := s.Counts(t.Context())
		require.NoError(t, err)
		oldest := all[0].Oldest
		push(t, s, urgent)
		all, err = s.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, 0, all[0].Priority)
		require.Equal(t, oldest, all[0].Oldest)
	}},
	{"several wants in one call", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"), job("2", "a"), job("3", "b"))
		claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{
			{Class: classOf("a"), Pool: "blue", N: 1},
			{Class: classOf("a"), Pool: "green", N: 5},
			{Class: classOf("b"), Pool: "blue", N: 1},
			{Class: classOf("none"), Pool: "blue", N: 1},
			{Class: classOf("b"), Pool: "blue", N: -1},
		}, claimTTL)
		require.NoError(t, err)
		require.Equal(t, []spillway.JobID{"1", "2", "3"}, idsOf(claimed))
		require.Equal(t, "green", claimed[1].Pool)
		require.Equal(t, "green", get(t, s, "2").Pool)
	}},
	{"a large answer is cut", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(200, "a")
		for i := range jobs {
			jobs[i].Script = strings.Repeat("x", spillway.MaxScriptBytes/2)
		}
		for part := range slices.Chunk(jobs, 20) { // some MiB at a time: a slow machine needs time for each
			push(t, s, part...)
		}
		first := claim(t, s, 200, "a")
		require.NotEmpty(t, first)
		require.Less(t, len(first), 200)
		require.Len(t, claim(t, s, 200, "a"), min(200-len(first), len(first)))
	}},
	{"a claim lives as long as it is renewed", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"), job("2", "a"))
		claimed := claimFor(t, s, 2, 10*time.Millisecond, "a")
		kept, lost := claimed[0].Ref, claimed[1].Ref
		stale, err := s.Renew(t.Context(), []router.JobRef{kept}, claimTTL)
		require.NoError(t, err)
		require.Empty(t, stale)
		var reaped []spillway.JobRecord
		require.Eventually(t, func() bool {
			r, err := s.Reap(t.Context(), 100)
			require.NoError(t, err)
			reaped = append(reaped, r...)
			return len(reaped) > 0
		}, within, every)
		require.Len(t, reaped, 1)
		require.Equal(t, lost.ID, reaped[0].Job.ID)
		unknown := router.JobRef{ID: "9", Class: classOf("a"), Attempt: 1}
		stale, err = s.Renew(t.Context(), []router.JobRef{lost, kept, unknown}, claimTTL)
		require.NoError(t, err)
		require.Equal(t, []router.JobRef{lost, unknown}, stale)
	}},
}

var extendContract = []contract{
	{"a claim that was extended is not cut short", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"), job("2", "a"))
		claimed := claimFor(t, s, 2, 10*time.Millisecond, "a")
		_, err := s.Renew(t.Context(), []router.JobRef{claimed[0].Ref}, time.Hour)
		require.NoError(t, err)
		_, err = s.Renew(t.Context(), []router.JobRef{claimed[0].Ref}, 10*time.Millisecond)
		require.NoError(t, err)
		var reaped []spillway.JobRecord
		require.Eventually(t, func() bool {
			r, err := s.Reap(t.Context(), 100)
			require.NoError(t, err)
			reaped = append(reaped, r...)
			return len(reaped) > 0
		}, within, every)
		require.Len(t, reaped, 1)
		require.Equal(t, spillway.JobID("2"), reaped[0].Job.ID)
	}},
	{"a job of another cell stays one", store.Options{}, func(t *testing.T, s *store.Store) {
		j := job("1", "a")
		j.Requirement.Origin = spillway.CellOrigin
		push(t, s, j)
		require.Equal(t, spillway.CellOrigin, get(t, s, "1").Job.Requirement.Origin)
		counts, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, spillway.CellOrigin, counts[0].Requirement.Origin)
	}},
}

var applyContract = []contract{
	{"from claim to result", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		require.Equal(t, spillway.Pending, get(t, s, "1").State)
		ref := claim(t, s, 1, "a")[0].Ref
		require.Equal(t, spillway.Assigned, get(t, s, "1").State)
		require.NoError(t, apply(t, s, running(ref)))
		require.NoError(t, apply(t, s, running(ref)))
		r := get(t, s, "1")
		require.Equal(t, spillway.Running, r.State)
		require.Equal(t, spillway.MachineID("m 1"), r.Machine)
		require.False(t, r.StartedAt.IsZero())
		require.Zero(t, r.FinishedAt)
		end := completed(ref)
		end.To, end.Result = spillway.Failed, spillway.JobResult{
			State: spillway.Failed, Reason: spillway.ScriptFailure, Detail: "exit status 2", ExitCode: 2, Output: []byte("a\nb \x00\xff"),
		}
		require.NoError(t, apply(t, s, end))
		r = get(t, s, "1")
		require.Equal(t, spillway.Failed, r.State)
		require.Equal(t, end.Result, r.Result)
		require.Equal(t, spillway.MachineID("m-1"), r.Machine)
		require.Equal(t, "blue", r.Pool)
		require.Equal(t, 1, r.Attempt)
		require.False(t, r.FinishedAt.Before(r.StartedAt) || r.StartedAt.Before(r.ClaimedAt))
		require.Empty(t, r.Job.Script)
		require.Empty(t, r.Job.Env)
		pending, claimed := counts(t, s)
		require.Zero(t, pending+claimed)
	}},
	{"the same end again is fine, another one is stale", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		end := completed(claim(t, s, 1, "a")[0].Ref)
		require.NoError(t, apply(t, s, end))
		require.NoError(t, apply(t, s, end))
		other := end
		other.To = spillway.Failed
		require.ErrorIs(t, apply(t, s, other), store.ErrStaleAttempt)
		require.ErrorIs(t, apply(t, s, running(end.Ref)), store.ErrStaleAttempt)
		require.Equal(t, spillway.Completed, get(t, s, "1").State)
	}},
	{"an older attempt is stale", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		old := claim(t, s, 1, "a")[0].Ref
		require.NoError(t, release(t, s, store.Release{Ref: old}))
		require.ErrorIs(t, apply(t, s, completed(old)), store.ErrStaleAttempt)
		young := claim(t, s, 1, "a")[0].Ref
		require.Equal(t, 2, young.Attempt)
		require.ErrorIs(t, apply(t, s, running(old)), store.ErrStaleAttempt)
		require.ErrorIs(t, apply(t, s, completed(old)), store.ErrStaleAttempt)
		require.NoError(t, apply(t, s, completed(young)))
	}},
	{"each item has its own answer", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"), job("2", "b"), job("3", "a"))
		a, b := claim(t, s, 1, "a")[0].Ref, claim(t, s, 1, "b")[0].Ref
		never := router.JobRef{ID: "3", Class: classOf("a"), Attempt: 1}
		unknown := router.JobRef{ID: "9", Class: classOf("a"), Attempt: 1}
		errs, err := s.Apply(t.Context(), []store.Transition{
			running(a), completed(unknown), completed(b), completed(a), completed(never), running(a),
		})
		require.NoError(t, err)
		require.Len(t, errs, 6)
		for i, want := range []error{nil, store.ErrUnknownJob, nil, nil, store.ErrStaleAttempt, store.ErrStaleAttempt} {
			require.ErrorIs(t, errs[i], want, "item %d", i)
		}
		require.Equal(t, spillway.Pending, get(t, s, "3").State)
	}},
	{"only known ends", store.Options{}, func(t *testing.T, s *store.Store) {
		_, err := s.Apply(t.Context(), []store.Transition{{To: spillway.Pending}})
		require.Error(t, err)
	}},
	{"records are bounded in number", store.Options{MaxFinished: 3}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(5, "a")...)
		for _, c := range claim(t, s, 5, "a") {
			require.NoError(t, apply(t, s, completed(c.Ref)))
		}
		for i := 1; i <= 5; i++ {
			id := spillway.JobID(fmt.Sprint(i))
			_, err := s.Get(t.Context(), id)
			if i <= 2 {
				require.ErrorIs(t, err, store.ErrUnknownJob, "job %s", id)
			} else {
				require.NoError(t, err, "job %s", id)
			}
		}
		push(t, s, job("1", "a")) // forgotten, so new
	}},
}

var releaseContract = []contract{
	{"back at its old place", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(3, "a")...)
		claimed := claim(t, s, 2, "a")
		submitted := claimed[1].Job.SubmittedAt
		require.NoError(t, release(t, s, store.Release{Ref: claimed[1].Ref}))
		require.NoError(t, release(t, s, store.Release{Ref: claimed[0].Ref, Lost: true}))
		require.ErrorIs(t, release(t, s, store.Release{Ref: claimed[0].Ref, Lost: true}), store.ErrStaleAttempt)
		again := claim(t, s, 3, "a")
		require.Equal(t, []spillway.JobID{"1", "2", "3"}, idsOf(again))
		require.Equal(t, 2, again[1].Ref.Attempt)
		require.Equal(t, submitted, again[1].Job.SubmittedAt)
		require.Equal(t, claimed[0].Job.Script, again[0].Job.Script)
		require.Equal(t, 1, get(t, s, "1").Lost)
		require.Equal(t, 0, get(t, s, "2").Lost)
	}},
	{"lost too often", store.Options{}, func(t *testing.T, s *store.Store) {
		j := job("1", "a")
		j.MaxAttempts = 2
		push(t, s, j)
		require.NoError(t, release(t, s, store.Release{Ref: claim(t, s, 1, "a")[0].Ref})) // a refusal is no loss
		require.NoError(t, release(t, s, store.Release{Ref: claim(t, s, 1, "a")[0].Ref, Lost: true, Detail: "first"}))
		last := claim(t, s, 1, "a")[0].Ref
		require.ErrorIs(t, release(t, s, store.Release{Ref: last, Lost: true, Detail: "second"}), store.ErrQuarantined)
		require.ErrorIs(t, release(t, s, store.Release{Ref: last, Lost: true, Detail: "second"}), store.ErrStaleAttempt)
		r := get(t, s, "1")
		require.Equal(t, spillway.Failed, r.State)
		require.Equal(t, spillway.RunnerSystemFailure, r.Result.Reason)
		require.Equal(t, "second", r.Result.Detail)
		require.Equal(t, 3, r.Attempt)
		require.Equal(t, 2, r.Lost)
		require.Empty(t, claim(t, s, 1, "a"))
	}},
	{"a job that must not run twice fails at once", store.Options{}, func(t *testing.T, s *store.Store) {
		j := job("1", "a")
		j.NoRetry = true
		push(t, s, j)
		require.NoError(t, release(t, s, store.Release{Ref: claim(t, s, 1, "a")[0].Ref, Lost: true}))
		require.Equal(t, spillway.Failed, get(t, s, "1").State)
		require.False(t, get(t, s, "1").Quarantined, "nobody may have it tried again")
	}},
	{"unknown", store.Options{}, func(t *testing.T, s *store.Store) {
		ref := router.JobRef{ID: "9", Class: classOf("a"), Attempt: 1}
		require.ErrorIs(t, release(t, s, store.Release{Ref: ref}), store.ErrUnknownJob)
	}},
}
