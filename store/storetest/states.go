package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// The store moves jobs by scripts of its own; router.Next is the one table of what
// may become of a job. Each operation in each state must agree with it.
var stateContract = []contract{
	{"every operation in every state agrees with router.Next", store.Options{}, func(t *testing.T, s *store.Store) {
		for _, from := range []spillway.JobState{
			spillway.Pending, spillway.Routing, spillway.Admitted, spillway.Assigned, spillway.Running,
			spillway.Completed, spillway.Failed, spillway.Rejected, spillway.Canceled,
		} {
			for event, do := range operations {
				if from == spillway.Admitted && event == router.Claim {
					continue // it takes the admitted jobs first: they are assigned
				}
				id := string(from) + "-" + string(event)
				ref := bring(t, s, id, from)
				require.Equal(t, from, stateOf(t, s, ref), id)
				want, err := after(from, event)
				if err != nil {
					want = from // refused: it stays where it is
				}
				do(t, s, ref)
				require.Equal(t, want, stateOf(t, s, ref), id)
			}
		}
	}},
}

// after is router.Next. A claim goes through routing and admission at once, since
// there are no controllers.
func after(from spillway.JobState, event router.Event) (spillway.JobState, error) {
	to, err := router.Next(from, event)
	for _, next := range []router.Event{router.Admit, router.Assign} {
		if err == nil && event == router.Claim {
			to, err = router.Next(to, next)
		}
	}
	return to, err
}

// operations are what the store does for each event. Whether it answers with an
// error is the other contracts' question; this one is about where the job is then.
var operations = map[router.Event]func(*testing.T, *store.Store, router.JobRef){
	router.Claim: func(t *testing.T, s *store.Store, ref router.JobRef) { claim(t, s, 1, string(ref.ID)) },
	router.Start: func(t *testing.T, s *store.Store, ref router.JobRef) {
		_ = apply(t, s, store.Transition{Ref: ref, To: spillway.Running})
	},
	router.Complete: func(t *testing.T, s *store.Store, ref router.JobRef) {
		_ = apply(t, s, store.Transition{Ref: ref, To: spillway.Completed, Result: spillway.JobResult{State: spillway.Completed}})
	},
	router.Admit: func(t *testing.T, s *store.Store, ref router.JobRef) {
		_ = endReview(t, s, store.ReviewEnd{Ref: ref, To: spillway.Admitted})
	},
	router.Assign: func(t *testing.T, s *store.Store, ref router.JobRef) { claimAdmitted(t, s, 1, string(ref.ID)) },
	router.Fail: func(t *testing.T, s *store.Store, ref router.JobRef) {
		late := spillway.JobResult{State: spillway.Failed, Reason: spillway.AdmissionTimeout}
		if endReview(t, s, store.ReviewEnd{Ref: ref, To: spillway.Failed, Result: late}) == nil {
			return
		}
		_ = apply(t, s, store.Transition{Ref: ref, To: spillway.Failed, Result: spillway.JobResult{State: spillway.Failed, Reason: spillway.ScriptFailure}})
	},
	router.Release: func(t *testing.T, s *store.Store, ref router.JobRef) {
		_, err := s.Release(t.Context(), []store.Release{{Ref: ref}})
		require.NoError(t, err)
	},
	router.Cancel: func(t *testing.T, s *store.Store, ref router.JobRef) {
		_, err := s.Cancel(t.Context(), []spillway.JobID{ref.ID}, "not needed")
		require.NoError(t, err)
	},
	router.Reject: reject,
}

func reject(t *testing.T, s *store.Store, ref router.JobRef) {
	t.Helper()
	no := spillway.JobResult{State: spillway.Rejected, Reason: spillway.AdmissionRejected}
	if endReview(t, s, store.ReviewEnd{Ref: ref, To: spillway.Rejected, Result: no}) == nil {
		return
	}
	_, err := s.Reject(t.Context(), ref.Class, 0, 1,
		spillway.JobResult{State: spillway.Rejected, Reason: spillway.Unmatched})
	require.NoError(t, err)
}

// bring pushes a job of a class of its own and brings it to a state.
func bring(t *testing.T, s *store.Store, id string, to spillway.JobState) router.JobRef {
	t.Helper()
	push(t, s, job(id, id))
	ref := router.JobRef{ID: spillway.JobID(id), Class: classOf(id), Attempt: 1}
	switch to {
	case spillway.Assigned, spillway.Running, spillway.Completed, spillway.Failed:
		claim(t, s, 1, id)
	case spillway.Routing, spillway.Admitted:
		review(t, s, 1, both, id)
	default:
	}
	for _, event := range map[spillway.JobState][]router.Event{
		spillway.Admitted: {router.Admit}, spillway.Running: {router.Start}, spillway.Completed: {router.Start, router.Complete},
		spillway.Failed: {router.Start, router.Fail}, spillway.Rejected: {router.Reject}, spillway.Canceled: {router.Cancel},
	}[to] {
		operations[event](t, s, ref)
	}
	return ref
}

func stateOf(t *testing.T, s *store.Store, ref router.JobRef) spillway.JobState {
	t.Helper()
	record, err := s.Get(t.Context(), ref.ID)
	require.NoError(t, err)
	return record.State
}
