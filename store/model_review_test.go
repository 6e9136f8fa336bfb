package store_test

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

var modelControllers = []string{"image", "quota", "region"}

// chain draws a chain of controllers: configurations change, and replicas differ in who
// is connected to them.
func chain(t *rapid.T) []store.Approver {
	var approvers []store.Approver
	for _, name := range modelControllers {
		if rapid.IntRange(0, 3).Draw(t, name+" is configured") > 0 {
			approvers = append(approvers, store.Approver{Name: name, Here: rapid.Bool().Draw(t, name+" is here")})
		}
	}
	return approvers
}

// next is the first of a chain that has not approved the job; none: it needs nobody.
func (j *modelJob) next(approvers []store.Approver) (next store.Approver, any bool) {
	i := slices.IndexFunc(approvers, func(a store.Approver) bool { return !slices.Contains(j.approved, a.Name) })
	if i < 0 {
		return next, false
	}
	return approvers[i], true
}

func (m *queueModel) review(t *rapid.T) {
	tag, n := rapid.SampledFrom(modelTags).Draw(t, "tag"), rapid.IntRange(1, 4).Draw(t, "n")
	ttl := time.Duration(rapid.IntRange(5, 20).Draw(t, "ttl")) * time.Second
	approvers := chain(t)
	got, err := m.s.ClaimForReview(t.Context(), []store.ReviewWant{{Class: modelClass(tag), N: n, Approvers: approvers}}, ttl)
	require.NoError(t, err)
	var want []*modelJob
	for _, j := range m.in(spillway.Pending, tag) {
		if next, any := j.next(approvers); len(want) < n && (!any || next.Here) {
			want = append(want, j)
		}
	}
	require.Len(t, got, len(want))
	for i, j := range want {
		j.claim(m, spillway.Routing, ttl)
		require.Equal(t, j.ref(), got[i].Ref)
		require.Equal(t, j.job.Script, got[i].Job.Script)
		require.True(t, slices.Equal(j.approved, got[i].Approved), "job %s: approved by %v, said to be by %v", j.job.ID, j.approved, got[i].Approved)
		asked := store.Asked{Controller: j.askedBy}
		if j.askedBy != "" {
			asked.For = m.clock.now().Sub(j.askedAt).Truncate(time.Millisecond)
		}
		require.Equal(t, asked, got[i].Asked)
	}
}

func (m *queueModel) endReview(t *rapid.T) {
	ref, j := m.anyRef(t)
	to := rapid.SampledFrom([]spillway.JobState{spillway.Admitted, spillway.Pending, spillway.Rejected, spillway.Failed}).Draw(t, "to")
	end := store.ReviewEnd{Ref: ref, To: to}
	switch {
	case to.Terminal():
		end.Result = spillway.JobResult{State: to, Reason: spillway.AdmissionRejected, Detail: "no"}
	case to == spillway.Pending:
		end.Approved = modelControllers[:rapid.IntRange(0, len(modelControllers)).Draw(t, "approved")]
		end.Reason = "handed on"
		if rapid.Bool().Draw(t, "asked") {
			end.Asked = store.Asked{
				Controller: rapid.SampledFrom(modelControllers).Draw(t, "asked by"),
				For:        time.Duration(rapid.IntRange(0, 30_000).Draw(t, "asked for ms")) * time.Millisecond,
			}
		}
	}
	errs, err := m.s.EndReviews(t.Context(), []store.ReviewEnd{end})
	require.NoError(t, err)
	switch {
	case ref.Attempt == j.attempt && j.state == spillway.Routing:
		require.NoError(t, errs[0])
		m.decide(j, &end)
	case ref.Attempt == j.attempt && to == spillway.Admitted && j.state == to:
		require.NoError(t, errs[0], "the same decision again")
	case ref.Attempt == j.attempt && to.Terminal() && j.ended(end.Result):
		require.NoError(t, errs[0], "the same end again")
	default:
		require.ErrorIs(t, errs[0], store.ErrStaleAttempt)
	}
}

func (m *queueModel) decide(j *modelJob, end *store.ReviewEnd) {
	switch end.To {
	case spillway.Admitted:
		j.admitted, j.approved, j.askedBy = true, nil, ""
		j.become(spillway.Admitted)
	case spillway.Pending:
		j.approved = slices.Clone(end.Approved)
		j.askedBy, j.askedAt = end.Asked.Controller, m.clock.now().Add(-end.Asked.For)
		j.become(spillway.Pending)
	default:
		j.end(end.Result)
	}
}

func (m *queueModel) failAbsent(t *rapid.T) {
	tag, absent := rapid.SampledFrom(modelTags).Draw(t, "tag"), rapid.SampledFrom(modelControllers).Draw(t, "absent")
	waited := time.Duration(rapid.IntRange(1, 10).Draw(t, "age")) * time.Second
	before := m.clock.now().Add(-waited)
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	approvers := chain(t)
	var names []string
	for _, a := range approvers {
		names = append(names, a.Name)
	}
	result := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: absent}
	records, err := m.s.FailAbsent(t.Context(), modelClass(tag), names, absent, waited, limit, result)
	require.NoError(t, err)
	var want []spillway.JobID
	for _, j := range m.in(spillway.Pending, tag) {
		if next, _ := j.next(approvers); len(want) < limit && next.Name == absent && j.waitsSince(before) {
			j.end(result)
			want = append(want, j.job.ID)
		}
	}
	require.Equal(t, want, recordIDs(records))
}
