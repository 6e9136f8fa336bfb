package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// both is a chain of which a replica has every controller.
var both = []store.Approver{{Name: "first", Here: true}, {Name: "second", Here: true}}

var admissionContract = []contract{
	{"admitted jobs only, in the order of the queue", store.Options{}, func(t *testing.T, s *store.Store) {
		jobs := numbered(4, "a")
		jobs[3].Priority, jobs[0].Priority, jobs[1].Priority, jobs[2].Priority = 0, 5, 5, 5
		push(t, s, jobs...)
		require.Empty(t, claimAdmitted(t, s, 9, "a"), "nobody has approved any")
		under := review(t, s, 3, both, "a")
		require.Equal(t, []spillway.JobID{"4", "1", "2"}, reviewIDs(under))
		require.Equal(t, spillway.Routing, get(t, s, "4").State)
		c := count(t, s)
		require.Equal(t, []int{1, 0, 3, 0}, []int{c.Pending, c.Admitted, c.Unadmitted, c.Claimed})
		require.Equal(t, 0, c.Priority, "that of a job under review counts")
		for _, i := range []int{2, 0} { // not in their order
			require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[i].Ref, To: spillway.Admitted}))
		}
		require.Equal(t, spillway.Admitted, get(t, s, "4").State)
		c = count(t, s)
		require.Equal(t, []int{3, 2, 1, 0}, []int{c.Pending, c.Admitted, c.Unadmitted, c.Claimed})
		got := claimAdmitted(t, s, 9, "a")
		require.Equal(t, []spillway.JobID{"4", "2"}, idsOf(got))
		require.Equal(t, under[0].Ref.Attempt+1, got[0].Ref.Attempt)
		require.Equal(t, jobs[3].Script, got[0].Job.Script)
	}},
	{"a class that needs no admission has its admitted jobs claimed too", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: review(t, s, 1, both, "a")[0].Ref, To: spillway.Admitted}))
		require.Equal(t, []spillway.JobID{"1", "2"}, idsOf(claim(t, s, 9, "a")))
	}},
	{"handed on with its approvals, to whoever has the next controller", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(3, "a")...)
		only := func(name string) []store.Approver {
			return []store.Approver{{Name: "first", Here: name == "first"}, {Name: "second", Here: name == "second"}}
		}
		require.Empty(t, review(t, s, 9, only("second"), "a"), "the first one is asked first")
		require.Empty(t, review(t, s, 9, only(""), "a"))
		under := review(t, s, 2, only("first"), "a")
		require.Len(t, under, 2)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Pending, Approved: []string{"first"}, Reason: "handed on"}))
		require.Equal(t, spillway.Pending, get(t, s, "2").State)
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Pending}), store.ErrStaleAttempt)
		next := review(t, s, 9, only("second"), "a")
		require.Equal(t, []spillway.JobID{"2"}, reviewIDs(next), "past the one that still waits for the first")
		require.Equal(t, []string{"first"}, next[0].Approved)
		// Its replica dies: the approval stays, and no machine was lost.
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: next[0].Ref, To: spillway.Pending, Approved: []string{"first"}}))
		gone := reviewFor(t, s, 1, time.Millisecond, only("second"), "a")
		require.Len(t, gone, 1)
		reapAll(t, s, 1)
		require.Equal(t, 0, get(t, s, "2").Lost)
		again := review(t, s, 9, only("second"), "a")
		require.Equal(t, []string{"first"}, again[0].Approved)
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: gone[0].Ref, To: spillway.Admitted}), store.ErrStaleAttempt)
	}},
	{"a controller that was asked has one deadline, whoever claims the job next", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		under := review(t, s, 2, both, "a")
		require.Zero(t, under[0].Asked)
		asked := store.Asked{Controller: "second", For: 20 * time.Second}
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Pending, Approved: []string{"first"}, Asked: asked}))
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Pending, Asked: store.Asked{Controller: "first"}}))
		gone := reviewFor(t, s, 2, time.Millisecond, both, "a")
		require.Equal(t, []string{"first"}, gone[0].Approved)
		require.Empty(t, gone[1].Approved)
		reapAll(t, s, 2) // its replica dies
		next := review(t, s, 2, both, "a")
		require.Equal(t, []string{"first"}, next[0].Approved)
		require.Equal(t, "second", next[0].Asked.Controller)
		require.GreaterOrEqual(t, next[0].Asked.For, asked.For, "time goes on in the queue")
		require.Less(t, next[0].Asked.For, asked.For+within)
		require.Equal(t, "first", next[1].Asked.Controller)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: next[0].Ref, To: spillway.Pending, Approved: []string{"first", "second"}}))
		require.Zero(t, review(t, s, 1, nil, "a")[0].Asked, "the one after that was not")
	}},
	{"a job that needs nobody any more is claimed by anybody", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		under := review(t, s, 1, both, "a")
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Pending, Approved: []string{"first"}}))
		got := review(t, s, 1, []store.Approver{{Name: "first"}}, "a")
		require.Len(t, got, 1, "the second is configured no more")
	}},
	{"an approval outlives a machine, a refusal and a wiped claim", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: review(t, s, 1, both, "a")[0].Ref, To: spillway.Admitted}))
		require.NoError(t, release(t, s, store.Release{Ref: claimAdmitted(t, s, 1, "a")[0].Ref}))
		require.Equal(t, spillway.Admitted, get(t, s, "1").State)
		require.NoError(t, release(t, s, store.Release{Ref: claimAdmitted(t, s, 1, "a")[0].Ref, Lost: true}))
		require.Equal(t, spillway.Admitted, get(t, s, "1").State)
		require.Equal(t, 1, get(t, s, "1").Lost)
		require.Len(t, claimAdmitted(t, s, 1, "a"), 1)
	}},
	{"an approval holds through quarantine", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, job("1", "a"))
		under := review(t, s, 1, nil, "a")
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Admitted}))
		lose(t, s, 1, "a")
		require.Equal(t, []spillway.JobID{"1"}, quarantined(t, s))
		r, err := s.Retry(t.Context(), "1", "the disk was replaced")
		require.NoError(t, err)
		require.Equal(t, spillway.Admitted, r.State)
		require.Equal(t, []spillway.JobID{"1"}, idsOf(claimAdmitted(t, s, 1, "a")), "nobody is asked again")
	}},
	{"rejected and failed for good", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		under := review(t, s, 2, both, "a")
		no := spillway.JobResult{State: spillway.Rejected, Reason: spillway.AdmissionRejected, Detail: "admission controller first: no"}
		late := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: "silent"}
		for range 2 { // the same again is fine
			require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Rejected, Result: no}))
			require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Failed, Result: late}))
		}
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Admitted}), store.ErrStaleAttempt)
		require.Equal(t, no, get(t, s, "1").Result)
		require.Equal(t, late, get(t, s, "2").Result)
		pending, claimed := counts(t, s)
		require.Zero(t, pending+claimed)
		require.Empty(t, claim(t, s, 9, "a"))
		never := router.JobRef{ID: "9", Class: classOf("a"), Attempt: 1}
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: never, To: spillway.Admitted}), store.ErrUnknownJob)
		_, err := s.EndReviews(t.Context(), []store.ReviewEnd{{To: spillway.Completed}})
		require.Error(t, err)
	}},
	{"renewed like any claim, and canceled in any state", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		under := review(t, s, 2, both, "a")
		stale, err := s.Renew(t.Context(), []router.JobRef{under[0].Ref, under[1].Ref}, claimTTL)
		require.NoError(t, err)
		require.Empty(t, stale)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[1].Ref, To: spillway.Admitted}))
		outcomes, err := s.Cancel(t.Context(), []spillway.JobID{"1", "2"}, "not needed")
		require.NoError(t, err)
		for _, o := range outcomes {
			require.Equal(t, spillway.Canceled, o.State)
		}
		require.ErrorIs(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Admitted}), store.ErrStaleAttempt)
		require.Empty(t, claimAdmitted(t, s, 9, "a"))
		all, err := s.Counts(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	}},
	{"only who waits for the absent one fails", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(3, "a")...)
		under := review(t, s, 1, both, "a")
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: under[0].Ref, To: spillway.Pending, Approved: []string{"first"}}))
		result := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout, Detail: "second is out"}
		fail := func(name string, waited time.Duration, limit int) []spillway.JobRecord {
			failed, err := s.FailAbsent(t.Context(), classOf("a"), []string{"first", "second"}, name, waited, limit, result)
			require.NoError(t, err)
			return failed
		}
		require.Empty(t, fail("second", within, 9), "it has not waited for long enough")
		failed := fail("second", 0, 9)
		require.Len(t, failed, 1)
		require.Equal(t, spillway.JobID("1"), failed[0].Job.ID)
		require.Equal(t, result, get(t, s, "1").Result)
		require.Len(t, fail("first", 0, 1), 1)
		require.Equal(t, spillway.Pending, get(t, s, "3").State)
	}},
	{"waiting as admitted has an end", store.Options{}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: review(t, s, 1, both, "a")[0].Ref, To: spillway.Admitted}))
		late := spillway.JobResult{State: spillway.Failed, Reason: spillway.PendingTimeout}
		records, err := s.Reject(t.Context(), classOf("a"), 0, 9, late)
		require.NoError(t, err)
		require.Len(t, records, 2)
		require.Equal(t, spillway.Failed, get(t, s, "1").State)
	}},
	{"jobs under review take up room in the queue", store.Options{MaxQueued: 2}, func(t *testing.T, s *store.Store) {
		push(t, s, numbered(2, "a")...)
		require.NoError(t, endReview(t, s, store.ReviewEnd{Ref: review(t, s, 2, both, "a")[0].Ref, To: spillway.Admitted}))
		outcomes, err := s.Push(t.Context(), []spillway.Job{job("3", "a")})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Full}, outcomes)
	}},
	{"who is connected where", store.Options{}, func(t *testing.T, s *store.Store) {
		say := func(replica string, ttl time.Duration, here ...store.ControllerAt) map[string]store.ControllerAt {
			all, err := s.AnnounceControllers(t.Context(), replica, here, ttl)
			require.NoError(t, err)
			by := map[string]store.ControllerAt{}
			for _, c := range all {
				by[c.Replica+"/"+c.Controller] = c
			}
			return by
		}
		require.Len(t, say("one", claimTTL, store.ControllerAt{Controller: "a", Instances: 2, Silent: 3 * time.Second}), 1)
		all := say("two", claimTTL, store.ControllerAt{Controller: "a", Instances: 1}, store.ControllerAt{Controller: "b", Instances: 1, Waiting: 4, Asked: 5})
		require.Len(t, all, 3)
		require.Equal(t, 2, all["one/a"].Instances)
		require.Equal(t, 3*time.Second, all["one/a"].Silent)
		require.Equal(t, 4, all["two/b"].Waiting)
		require.WithinDuration(t, time.Now(), all["one/a"].At, within)
		require.Len(t, say("one", claimTTL), 2, "taken back")
		require.Eventually(t, func() bool { return len(say("three", 20*time.Millisecond)) == 0 }, within, every, "too old")
	}},
}

func review(t *testing.T, s *store.Store, n int, chain []store.Approver, tags ...string) []store.ForReview {
	t.Helper()
	return reviewFor(t, s, n, claimTTL, chain, tags...)
}

func reviewFor(t *testing.T, s *store.Store, n int, ttl time.Duration, chain []store.Approver, tags ...string) []store.ForReview {
	t.Helper()
	got, err := s.ClaimForReview(t.Context(), []store.ReviewWant{{Class: classOf(tags...), N: n, Approvers: chain}}, ttl)
	require.NoError(t, err)
	return got
}

func reviewIDs(under []store.ForReview) []spillway.JobID {
	ids := make([]spillway.JobID, len(under))
	for i := range under {
		ids[i] = under[i].Ref.ID
	}
	return ids
}

func endReview(t *testing.T, s *store.Store, e store.ReviewEnd) error {
	t.Helper()
	errs, err := s.EndReviews(t.Context(), []store.ReviewEnd{e})
	require.NoError(t, err)
	require.Len(t, errs, 1)
	return errs[0]
}

func claimAdmitted(t *testing.T, s *store.Store, n int, tags ...string) []router.Claimed {
	t.Helper()
	claimed, err := s.Claim(t.Context(), "replica-1", []router.ClaimWant{{Class: classOf(tags...), Pool: "blue", N: n, AdmittedOnly: true}}, claimTTL)
	require.NoError(t, err)
	return claimed
}

// count is the counts of the only class.
func count(t *testing.T, s *store.Store) router.ClassCount {
	t.Helper()
	all, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

func reapAll(t *testing.T, s *store.Store, n int) {
	t.Helper()
	reaped := 0
	require.Eventually(t, func() bool {
		r, err := s.Reap(t.Context(), 100)
		require.NoError(t, err)
		reaped += len(r)
		return reaped >= n
	}, within, every)
}
