package memstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// review claims jobs for review where the first or the second of two controllers is here.
func (r *rig) review(t require.TestingT, n int, first, second bool) []store.ForReview {
	got, err := r.ClaimForReview("a", []store.ReviewWant{{
		Class: need.Class(), N: n, Approvers: []store.Approver{{Name: "one", Here: first}, {Name: "two", Here: second}},
	}}, time.Minute)
	require.NoError(t, err)
	return got
}

func (r *rig) endReview(t require.TestingT, g store.ForReview, to spillway.JobState, approved ...string) error {
	result := spillway.JobResult{}
	if to.Terminal() {
		result = spillway.JobResult{State: to, Reason: spillway.AdmissionRejected}
	}
	errs, err := r.EndReviews([]store.ReviewEnd{{Ref: g.Ref, To: to, Approved: approved, Result: result}})
	require.NoError(t, err)
	return errs[0]
}

func TestReviewsGoToWhereTheNextControllerIs(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	require.Empty(t, r.review(t, 5, false, true), "it first needs the other one")
	first := r.review(t, 5, true, false)
	require.Len(t, first, 1)
	require.Empty(t, r.review(t, 5, true, true), "it is under review")
	require.NoError(t, r.endReview(t, first[0], spillway.Pending, "one"))
	require.Empty(t, r.review(t, 5, true, false))
	second := r.review(t, 5, false, true)
	require.Equal(t, []string{"one"}, second[0].Approved)
	require.ErrorIs(t, r.endReview(t, first[0], spillway.Admitted), store.ErrStaleAttempt)
	require.NoError(t, r.endReview(t, second[0], spillway.Admitted, "one", "two"))
	require.Empty(t, r.review(t, 5, true, true), "it is admitted")
}

func TestWhoNeedsApprovalIsClaimedWithIt(t *testing.T) {
	r := newRig()
	r.push(t, "approved", 1)
	got := r.review(t, 1, true, true)
	r.push(t, "other", 0)
	require.NoError(t, r.endReview(t, got[0], spillway.Admitted, "one", "two"))
	counts, err := r.Counts()
	require.NoError(t, err)
	require.Equal(t, []router.ClassCount{{
		Class: need.Class(), Requirement: need.Normalize(), Pending: 2, Admitted: 1, Oldest: r.now,
	}}, counts)
	claim := func(n int, admittedOnly bool) []router.Claimed {
		got, err := r.Claim("a", []router.ClaimWant{{Class: need.Class(), Pool: "p", N: n, AdmittedOnly: admittedOnly}})
		require.NoError(t, err)
		return got
	}
	taken := claim(5, true)
	require.Equal(t, []string{"approved"}, ids(taken))
	requeued, err := r.Release(store.Release{Ref: taken[0].Ref})
	require.NoError(t, err)
	require.True(t, requeued)
	rec, err := r.Job("approved")
	require.NoError(t, err)
	require.Equal(t, spillway.Admitted, rec.State, "nobody is asked again")
	require.Equal(t, []string{"approved", "other"}, ids(claim(5, false)), "the approved ones first, whatever their priority")
}

func TestAReviewThatNobodyGoesOnWithIsNoLoss(t *testing.T) {
	r := newRig()
	r.push(t, "j", 0)
	require.NoError(t, r.endReview(t, r.review(t, 1, true, true)[0], spillway.Pending, "one"))
	got := r.review(t, 1, true, true)
	require.Len(t, got, 1)
	counts, err := r.Counts()
	require.NoError(t, err)
	require.Equal(t, 1, counts[0].Unadmitted)
	require.Zero(t, counts[0].Claimed)
	r.now = r.now.Add(time.Minute)
	require.NoError(t, r.Reap())
	rec, err := r.Job("j")
	require.NoError(t, err)
	require.Equal(t, spillway.Pending, rec.State)
	require.Zero(t, rec.Lost)
	require.Equal(t, []string{"one"}, r.review(t, 1, true, true)[0].Approved)
}

func TestOnlyJobsOfTheAbsentControllerFail(t *testing.T) {
	r := newRig()
	r.push(t, "a", 0)
	require.NoError(t, r.endReview(t, r.review(t, 1, true, true)[0], spillway.Pending, "one"))
	r.push(t, "b", 0)
	r.now = r.now.Add(time.Minute)
	r.push(t, "young", 0)
	fail := func(name string) []spillway.JobRecord {
		failed, err := r.FailAbsent(need.Class(), []string{"one", "two"}, name, time.Minute, 9, spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout})
		require.NoError(t, err)
		return failed
	}
	failed := fail("two")
	require.Len(t, failed, 1)
	require.Equal(t, spillway.JobID("a"), failed[0].Job.ID)
	failed = fail("one")
	require.Len(t, failed, 1)
	require.Equal(t, spillway.JobID("b"), failed[0].Job.ID)
}

func TestPresenceIsBelievedForAWhile(t *testing.T) {
	r := newRig()
	said := []store.ControllerAt{{Controller: "one", Instances: 1}}
	_, err := r.AnnounceControllers("a", said, time.Minute)
	require.NoError(t, err)
	r.now = r.now.Add(59 * time.Second)
	all, err := r.AnnounceControllers("b", nil, time.Minute)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "a", all[0].Replica)
	r.now = r.now.Add(time.Second)
	all, err = r.AnnounceControllers("b", said, time.Minute)
	require.NoError(t, err)
	require.Len(t, all, 1)
	all, err = r.AnnounceControllers("b", nil, time.Minute)
	require.NoError(t, err)
	require.Empty(t, all, "it is taken back")
}

func TestSettingsAreKeptByKind(t *testing.T) {
	r := newRig()
	require.NoError(t, r.PutSetting("k", "n", []byte("v")))
	require.NoError(t, r.PutSetting("other", "n", []byte("w")))
	all, err := r.Settings("k")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"n": []byte("v")}, all)
	require.NoError(t, r.DropSetting("k", "n"))
	all, err = r.Settings("k")
	require.NoError(t, err)
	require.Empty(t, all)
	r.Fault = memstore.Down
	require.ErrorIs(t, r.PutSetting("k", "n", nil), store.ErrUnavailable)
	_, err = r.Settings("k")
	require.ErrorIs(t, err, store.ErrUnavailable)
}
