package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Results are written together: one that is no text must not hold up the others for ever.
func TestAResultThatIsNoTextIsStoredAllTheSame(t *testing.T) {
	s := openAt(t, newClock(), store.Options{})
	jobs := []spillway.Job{{ID: "a", Script: "true"}, {ID: "b", Script: "true"}}
	_, err := s.Push(t.Context(), jobs)
	require.NoError(t, err)
	claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{{Class: jobs[0].Requirement.Class(), Pool: "p", N: 2}}, time.Minute)
	require.NoError(t, err)
	ended := make([]store.Transition, len(claimed))
	for i := range claimed {
		ended[i] = store.Transition{Ref: claimed[i].Ref, To: spillway.Failed, Result: spillway.JobResult{Reason: spillway.ScriptFailure, Detail: "fine"}}
	}
	ended[0].Result.Detail = "no\xfftext"
	for range 2 { // the same again is the same
		errs, err := s.Apply(t.Context(), ended)
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil}, errs)
	}
	r, err := s.Get(t.Context(), claimed[0].Ref.ID)
	require.NoError(t, err)
	require.Equal(t, "no\uFFFDtext", r.Result.Detail)
}
