package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// TestQueueModel does random things to a queue and to a model of it, which is so
// small that it can be seen to be right: no job is lost, none is claimed twice at a
// time, attempts fence, and jobs come in order.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		clock := newClock()
		s, err := store.OpenEmbeddedAt(clock.now, store.Options{})
		require.NoError(rt, err)
		defer func() { require.NoError(rt, s.Close()) }()
		m := &queueModel{s: s, clock: clock, jobs: map[spillway.JobID]*modelJob{}}
		rt.Repeat(map[string]func(*rapid.T){
			"push": m.push, "claim": m.claim, "apply": m.apply, "release": m.release, "renew": m.renew,
			"reap": m.reap, "cancel": m.cancel, "reject": m.reject, "retry": m.retry,
			"wait": func(t *rapid.T) { clock.advance(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second) },
			"":     m.check,
		})
	})
}

var modelTags = []string{"a", "b"}

// modelJob is what is known of a job.
type modelJob struct {
	job           spillway.Job
	submitted     time.Time
	seq           int
	state         spillway.JobState
	attempt, lost int
	expires       time.Time // of the claim
	requeued      time.Time // when it lost a machine last
	quarantined   bool
	way           []spillway.JobState
}

// become notes a transition.
func (j *modelJob) become(state spillway.JobState) {
	j.state = state
	j.way = append(j.way, state)
}

func (j *modelJob) ref() router.JobRef {
	return router.JobRef{ID: j.job.ID, Class: j.job.Requirement.Class(), Attempt: j.attempt}
}

func (j *modelJob) claimed() bool { return j.state == spillway.Assigned || j.state == spillway.Running }

func (j *modelJob) lose(at time.Time) {
	j.lost++
	j.requeued = at
	if j.lost < j.job.EffectiveMaxAttempts() {
		j.become(spillway.Pending)
		return
	}
	j.become(spillway.Failed)
	j.quarantined = !j.job.NoRetry
}

type queueModel struct {
	s     *store.Store
	clock *clock
	jobs  map[spillway.JobID]*modelJob
	refs  []router.JobRef // every attempt there ever was
	seq   int
}

func (m *queueModel) push(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	jobs := make([]spillway.Job, n)
	var want []store.PushOutcome
	at := m.clock.now()
	for i := range jobs {
		id := spillway.JobID(strconv.Itoa(rapid.IntRange(1, 30).Draw(t, "id")))
		jobs[i] = spillway.Job{
			ID: id, Script: "true", Priority: rapid.SampledFrom([]int{0, 0, 3, 9}).Draw(t, "priority"),
			NoRetry:     rapid.IntRange(0, 9).Draw(t, "no retry") == 0,
			Requirement: spillway.Requirement{Tags: []string{rapid.SampledFrom(modelTags).Draw(t, "tag")}},
		}
		known, ok := m.jobs[id]
		switch {
		case !ok:
			m.seq++
			m.jobs[id] = &modelJob{job: jobs[i], seq: m.seq, submitted: at}
			m.jobs[id].become(spillway.Pending)
			want = append(want, store.Accepted)
		case known.job.Priority == jobs[i].Priority && known.job.NoRetry == jobs[i].NoRetry && known.job.Requirement.Tags[0] == jobs[i].Requirement.Tags[0]:
			want = append(want, store.Duplicate)
		default:
			want = append(want, store.Conflict)
		}
	}
	got, err := m.s.Push(t.Context(), jobs)
	require.NoError(t, err)
	require.Equal(t, want, got)
	m.clock.advance(time.Millisecond)
}

// pending returns the pending jobs of a class in the order of the queue.
func (m *queueModel) pending(tag string) []*modelJob {
	var list []*modelJob
	for _, j := range m.jobs {
		if j.state == spillway.Pending && j.job.Requirement.Tags[0] == tag {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *modelJob) int {
		if a.job.Priority != b.job.Priority {
			return a.job.Priority - b.job.Priority
		}
		return a.seq - b.seq
	})
	return list
}

func (m *queueModel) claim(t *rapid.T) {
	tag, n := rapid.SampledFrom(modelTags).Draw(t, "tag"), rapid.IntRange(1, 4).Draw(t, "n")
	ttl := time.Duration(rapid.IntRange(5, 20).Draw(t, "ttl")) * time.Second
	class := spillway.Requirement{Tags: []string{tag}}.Class()
	got, err := m.s.Claim(t.Context(), "r", []router.ClaimWant{{Class: class, Pool: "p", N: n}}, ttl)
	require.NoError(t, err)
	want := m.pending(tag)
	want = want[:min(n, len(want))]
	require.Len(t, got, len(want))
	for i, j := range want {
		j.expires = m.clock.now().Add(ttl)
		j.become(spillway.Assigned)
		j.attempt++
		require.Equal(t, j.ref(), got[i].Ref)
		require.Equal(t, j.job.Script, got[i].Job.Script)
		m.refs = append(m.refs, j.ref())
	}
}

// anyRef is an attempt that is or was.
func (m *queueModel) anyRef(t *rapid.T) (router.JobRef, *modelJob) {
	if len(m.refs) == 0 {
		t.Skip("nothing was claimed yet")
	}
	ref := rapid.SampledFrom(m.refs).Draw(t, "ref")
	return ref, m.jobs[ref.ID]
}

func (m *queueModel) apply(t *rapid.T) {
	ref, j := m.anyRef(t)
	to := rapid.SampledFrom([]spillway.JobState{spillway.Running, spillway.Completed, spillway.Failed}).Draw(t, "to")
	result := spillway.JobResult{State: to, Reason: "chosen"}
	errs, err := m.s.Apply(t.Context(), []store.Transition{{Ref: ref, To: to, Result: result}})
	require.NoError(t, err)
	switch {
	case ref.Attempt == j.attempt && j.claimed():
		require.NoError(t, errs[0])
		if to != j.state {
			j.become(to)
		}
	case ref.Attempt == j.attempt && j.state == to && m.chosenEnd(t, ref.ID):
		require.NoError(t, errs[0], "the same end again")
	default:
		require.ErrorIs(t, errs[0], store.ErrStaleAttempt)
	}
}

// chosenEnd says whether the job's end came from apply.
func (m *queueModel) chosenEnd(t *rapid.T, id spillway.JobID) bool {
	r, err := m.s.Get(t.Context(), id)
	require.NoError(t, err)
	return r.Result.Reason == "chosen"
}

func (m *queueModel) release(t *rapid.T) {
	ref, j := m.anyRef(t)
	lost := rapid.Bool().Draw(t, "lost")
	errs, err := m.s.Release(t.Context(), []store.Release{{Ref: ref, Lost: lost}})
	require.NoError(t, err)
	if ref.Attempt != j.attempt || !j.claimed() {
		require.ErrorIs(t, errs[0], store.ErrStaleAttempt)
		return
	}
	if lost {
		j.lose(m.clock.now())
	} else {
		j.become(spillway.Pending)
	}
	if j.quarantined {
		require.ErrorIs(t, errs[0], store.ErrQuarantined)
	} else {
		require.NoError(t, errs[0])
	}
}

func (m *queueModel) retry(t *rapid.T) {
	id := spillway.JobID(strconv.Itoa(rapid.IntRange(1, 30).Draw(t, "id")))
	_, err := m.s.Retry(t.Context(), id, "why")
	switch j, ok := m.jobs[id]; {
	case !ok:
		require.ErrorIs(t, err, store.ErrUnknownJob)
	case !j.quarantined:
		require.ErrorIs(t, err, store.ErrNotQuarantined)
	default:
		require.NoError(t, err)
		j.quarantined, j.lost, j.requeued = false, 0, m.clock.now()
		j.become(spillway.Pending)
	}
}

func (m *queueModel) renew(t *rapid.T) {
	ref, j := m.anyRef(t)
	stale, err := m.s.Renew(t.Context(), []router.JobRef{ref}, 30*time.Second)
	require.NoError(t, err)
	if ref.Attempt == j.attempt && j.claimed() {
		require.Empty(t, stale)
		j.expires = m.clock.now().Add(30 * time.Second)
	} else {
		require.Equal(t, []router.JobRef{ref}, stale)
	}
}

func (m *queueModel) reap(t *rapid.T) {
	records, err := m.s.Reap(t.Context(), 1000)
	require.NoError(t, err)
	reaped := map[spillway.JobID]spillway.JobState{}
	for _, r := range records {
		reaped[r.Job.ID] = r.State
	}
	want := map[spillway.JobID]spillway.JobState{}
	for id, j := range m.jobs {
		if j.claimed() && !j.expires.After(m.clock.now()) {
			j.lose(m.clock.now())
			want[id] = j.state
		}
	}
	require.Equal(t, want, reaped)
}

func (m *queueModel) cancel(t *rapid.T) {
	id := spillway.JobID(strconv.Itoa(rapid.IntRange(1, 30).Draw(t, "id")))
	got, err := m.s.Cancel(t.Context(), []spillway.JobID{id}, "why")
	require.NoError(t, err)
	j, ok := m.jobs[id]
	if ok && !j.state.Terminal() {
		j.become(spillway.Canceled)
	}
	want := store.CancelOutcome{ID: id, Found: ok}
	if ok {
		want.State = j.state
	}
	require.Equal(t, []store.CancelOutcome{want}, got)
}

func (m *queueModel) reject(t *rapid.T) {
	tag := rapid.SampledFrom(modelTags).Draw(t, "tag")
	before := m.clock.now().Add(-time.Duration(rapid.IntRange(5, 20).Draw(t, "age")) * time.Second)
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	records, err := m.s.Reject(t.Context(), spillway.Requirement{Tags: []string{tag}}.Class(), before, limit,
		spillway.JobResult{State: spillway.Rejected, Reason: spillway.Unmatched})
	require.NoError(t, err)
	var want []spillway.JobID
	for _, j := range m.pending(tag) {
		if len(want) < limit && j.submitted.Before(before) && j.requeued.Before(before) {
			j.become(spillway.Rejected)
			want = append(want, j.job.ID)
		}
	}
	var got []spillway.JobID
	for _, r := range records {
		got = append(got, r.Job.ID)
	}
	require.Equal(t, want, got)
}

// check compares everything that can be seen.
func (m *queueModel) check(t *rapid.T) {
	counts, err := m.s.Counts(t.Context())
	require.NoError(t, err)
	got := map[spillway.JobClass]string{}
	for _, c := range counts {
		got[c.Class] = fmt.Sprintf("%d pending, %d claimed, priority %d", c.Pending, c.Claimed, c.Priority)
	}
	want := map[spillway.JobClass]string{}
	for _, tag := range modelTags {
		pending, claimed, priority := m.pending(tag), 0, 0
		for _, j := range m.jobs {
			if j.claimed() && j.job.Requirement.Tags[0] == tag {
				claimed++
			}
		}
		if len(pending) > 0 {
			priority = pending[0].job.Priority
		}
		if len(pending)+claimed > 0 {
			want[spillway.Requirement{Tags: []string{tag}}.Class()] = fmt.Sprintf("%d pending, %d claimed, priority %d", len(pending), claimed, priority)
		}
	}
	require.Equal(t, want, got)
	for id, j := range m.jobs {
		r, err := m.s.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, j.state, r.State, "job %s", id)
		require.Equal(t, j.attempt, r.Attempt, "job %s", id)
		require.Equal(t, j.lost, r.Lost, "job %s", id)
		require.Equal(t, j.quarantined, r.Quarantined, "job %s", id)
		require.Equal(t, int64(len(j.way)), r.Sequence(), "job %s", id)
		require.Len(t, r.Transitions, min(len(j.way), spillway.MaxTransitions), "job %s", id)
		for i, tr := range r.Transitions {
			require.Equal(t, r.Sequence()-int64(len(r.Transitions)-1-i), tr.Sequence, "job %s", id)
			require.Equal(t, j.way[tr.Sequence-1], tr.State, "job %s", id)
		}
		require.WithinDuration(t, j.submitted, r.Job.SubmittedAt, time.Millisecond)
	}
	_, err = m.s.Get(t.Context(), "31")
	require.True(t, errors.Is(err, store.ErrUnknownJob))
}
