package store_test

import (
	"reflect"
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
// time, attempts fence, jobs come in order, nobody gets one that was to be approved
// first, and who listens is told every transition.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		clock := newClock()
		s, err := store.OpenEmbeddedAt(clock.now, store.Options{})
		require.NoError(rt, err)
		defer func() { require.NoError(rt, s.Close()) }()
		m := newQueueModel(rt, s, clock)
		rt.Repeat(map[string]func(*rapid.T){
			"push": m.push, "claim": m.claim, "apply": m.apply, "release": m.release, "renew": m.renew,
			"reap": m.reap, "cancel": m.cancel, "reject": m.reject, "retry": m.retry,
			"review": m.review, "end review": m.endReview, "end review again": m.endReview, "fail absent": m.failAbsent,
			"wait": func(t *rapid.T) { clock.advance(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second) },
			"list": m.checkLists,
			"":     m.check,
		})
		m.checkLists(rt)
		m.hearAll(rt)
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
	quarantined   time.Time // when it came there; zero = it is not
	approved      []string  // by whom, while it is pending or under review
	askedBy       string    // the next controller, while it is pending or under review
	askedAt       time.Time // when it was
	admitted      bool      // by all of them
	result        spillway.JobResult
	way           []spillway.JobState
}

// become notes a transition.
func (j *modelJob) become(state spillway.JobState) {
	j.state = state
	j.way = append(j.way, state)
}

// end notes the last one.
func (j *modelJob) end(result spillway.JobResult) {
	j.become(result.State)
	j.result = result
}

// ended reports whether it has ended just so.
func (j *modelJob) ended(result spillway.JobResult) bool {
	return j.state.Terminal() && j.quarantined.IsZero() && reflect.DeepEqual(j.result, result)
}

func (j *modelJob) ref() router.JobRef {
	return router.JobRef{ID: j.job.ID, Class: j.job.Requirement.Class(), Attempt: j.attempt}
}

// active is on a machine, claimed is that or under review.
func (j *modelJob) active() bool  { return j.state == spillway.Assigned || j.state == spillway.Running }
func (j *modelJob) claimed() bool { return j.active() || j.state == spillway.Routing }

// waits puts it back to where it came from. Who was approved once stays so.
func (j *modelJob) waits() {
	if j.admitted {
		j.become(spillway.Admitted)
	} else {
		j.become(spillway.Pending)
	}
}

// lose takes its machine away from it. Under review it was on none.
func (j *modelJob) lose(at time.Time) {
	if !j.active() {
		j.waits()
		return
	}
	j.lost++
	j.requeued = at
	if j.lost < j.job.EffectiveMaxAttempts() {
		j.waits()
		return
	}
	j.end(spillway.JobResult{State: spillway.Failed, Reason: spillway.RunnerSystemFailure})
	if !j.job.NoRetry {
		j.quarantined = at
	}
}

type queueModel struct {
	s     *store.Store
	clock *clock
	jobs  map[spillway.JobID]*modelJob
	refs  []router.JobRef // every attempt there ever was
	seq   int
	heard listeners
}

func newQueueModel(t *rapid.T, s *store.Store, clock *clock) *queueModel {
	m := &queueModel{s: s, clock: clock, jobs: map[spillway.JobID]*modelJob{}}
	m.listen(t)
	return m
}

func anyJobID(t *rapid.T) spillway.JobID {
	return spillway.JobID(strconv.Itoa(rapid.IntRange(1, 30).Draw(t, "id")))
}

func modelClass(tag string) spillway.JobClass {
	return spillway.Requirement{Tags: []string{tag}}.Class()
}

func (m *queueModel) push(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	jobs := make([]spillway.Job, n)
	var want []store.PushOutcome
	at := m.clock.now()
	for i := range jobs {
		id := anyJobID(t)
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

// in returns the jobs of a class that are in a state, in the order of the queue.
func (m *queueModel) in(state spillway.JobState, tag string) []*modelJob {
	var list []*modelJob
	for _, j := range m.jobs {
		if j.state == state && j.job.Requirement.Tags[0] == tag {
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
	admittedOnly := rapid.Bool().Draw(t, "admitted only")
	got, err := m.s.Claim(t.Context(), "r", []router.ClaimWant{{Class: modelClass(tag), Pool: "p", N: n, AdmittedOnly: admittedOnly}}, ttl)
	require.NoError(t, err)
	want := m.in(spillway.Admitted, tag)
	if !admittedOnly {
		want = append(want, m.in(spillway.Pending, tag)...)
	}
	want = want[:min(n, len(want))]
	require.Len(t, got, len(want))
	for i, j := range want {
		j.approved, j.askedBy = nil, "" // a machine has it: the next review, if any, begins anew
		j.claim(m, spillway.Assigned, ttl)
		require.Equal(t, j.ref(), got[i].Ref)
		require.Equal(t, j.job.Script, got[i].Job.Script)
	}
}

// claim makes it somebody's for a while.
func (j *modelJob) claim(m *queueModel, state spillway.JobState, ttl time.Duration) {
	j.expires = m.clock.now().Add(ttl)
	j.become(state)
	j.attempt++
	m.refs = append(m.refs, j.ref())
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
	case ref.Attempt == j.attempt && j.active():
		require.NoError(t, errs[0])
		switch {
		case to.Terminal():
			j.end(result)
		case to != j.state:
			j.become(to)
		}
	case ref.Attempt == j.attempt && j.ended(result):
		require.NoError(t, errs[0], "the same end again")
	default:
		require.ErrorIs(t, errs[0], store.ErrStaleAttempt)
	}
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
		j.waits()
	}
	if !j.quarantined.IsZero() {
		require.ErrorIs(t, errs[0], store.ErrQuarantined)
	} else {
		require.NoError(t, errs[0])
	}
}

func (m *queueModel) retry(t *rapid.T) {
	id := anyJobID(t)
	_, err := m.s.Retry(t.Context(), id, "why")
	switch j, ok := m.jobs[id]; {
	case !ok:
		require.ErrorIs(t, err, store.ErrUnknownJob)
	case j.quarantined.IsZero():
		require.ErrorIs(t, err, store.ErrNotQuarantined)
	default:
		require.NoError(t, err)
		j.quarantined, j.lost, j.requeued = time.Time{}, 0, m.clock.now()
		j.result = spillway.JobResult{}
		j.waits()
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
	id := anyJobID(t)
	got, err := m.s.Cancel(t.Context(), []spillway.JobID{id}, "why")
	require.NoError(t, err)
	j, ok := m.jobs[id]
	if ok && !j.state.Terminal() {
		if j.claimed() {
			m.heard.stop(id)
		}
		j.end(spillway.JobResult{State: spillway.Canceled, Reason: spillway.JobCanceled, Detail: "why"})
	}
	want := store.CancelOutcome{ID: id, Found: ok}
	if ok {
		want.State = j.state
	}
	require.Equal(t, []store.CancelOutcome{want}, got)
}

func (m *queueModel) reject(t *rapid.T) {
	tag := rapid.SampledFrom(modelTags).Draw(t, "tag")
	waited := time.Duration(rapid.IntRange(5, 20).Draw(t, "age")) * time.Second
	before := m.clock.now().Add(-waited)
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	result := spillway.JobResult{State: spillway.Rejected, Reason: spillway.Unmatched}
	records, err := m.s.Reject(t.Context(), modelClass(tag), waited, limit, result)
	require.NoError(t, err)
	var want []spillway.JobID
	for _, j := range append(m.in(spillway.Pending, tag), m.in(spillway.Admitted, tag)...) {
		if len(want) < limit && j.waitsSince(before) {
			j.end(result)
			want = append(want, j.job.ID)
		}
	}
	require.Equal(t, want, recordIDs(records))
}

// waitsSince reports whether it was submitted, and has lost its last machine, at a time or
// before.
func (j *modelJob) waitsSince(at time.Time) bool {
	return !j.submitted.After(at) && !j.requeued.After(at)
}

func recordIDs(records []spillway.JobRecord) (ids []spillway.JobID) {
	for _, r := range records {
		ids = append(ids, r.Job.ID)
	}
	return ids
}
