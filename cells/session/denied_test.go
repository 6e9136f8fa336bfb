package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells/session"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// refuse plays the peer's admission: it refuses the job when it comes.
func (p *peerCell) refuse(local spillway.JobID) {
	p.t.Helper()
	class := spillway.Requirement{Tags: []string{"linux"}, Origin: spillway.CellOrigin}.Class()
	require.Eventually(p.t, func() bool {
		got, err := p.store.ClaimForReview(p.t.Context(), []store.ReviewWant{
			{Class: class, N: 1, Approvers: []store.Approver{{Name: "rules", Here: true}}},
		}, time.Minute)
		if err != nil || len(got) == 0 {
			return false
		}
		require.Equal(p.t, local, got[0].Job.ID)
		errs, err := p.store.EndReviews(p.t.Context(), []store.ReviewEnd{{
			Ref: got[0].Ref, To: spillway.Rejected,
			Result: spillway.JobResult{State: spillway.Rejected, Reason: spillway.AdmissionRejected, Detail: "rules: no images of\nyours"},
		}})
		require.NoError(p.t, err)
		require.NoError(p.t, errs[0])
		return true
	}, within, every)
}

func (o *originCell) handed() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.mu.handed...)
}

func (o *originCell) choice(id spillway.JobID) router.PoolChoice {
	o.t.Helper()
	r, err := o.store.Get(o.t.Context(), id)
	require.NoError(o.t, err)
	x, err := o.dispatcher.ExplainChoice(o.t.Context(), &r.Job)
	require.NoError(o.t, err)
	require.Len(o.t, x.Pools, 1)
	return x.Pools[0]
}

// The peer's rules refuse a job. It is not offered there again, which its explanation says;
// the next one of its class goes there past it. Another replica of the origin knows.
func TestAJobThatThePeersRulesRefuseIsNotOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const why = "cell b refused it: admission_rejected: rules: no images of yours"
		b := startPeer(t, openStore(t), "b-1", nil)
		s := openStore(t)
		a := startOrigin(t, s, "a-1", b)
		a.push("1")
		b.refuse("cell/a/1/1")
		r := a.waitFor("1", spillway.Pending)
		require.Eventually(t, func() bool { return len(a.cameBack()) == 1 }, within, every)
		require.Equal(t, []string{"1/1 denied"}, a.cameBack())
		require.Eventually(t, func() bool {
			r = a.waitFor("1", spillway.Pending)
			return r.Attempt == 1 && len(r.Transitions) >= 3
		}, within, every)
		require.Contains(t, r.Transitions[len(r.Transitions)-1].Reason, "cell b refused it")
		require.Zero(t, r.Lost)
		require.Equal(t, router.OutcomeRefused, a.choice("1").Outcome)
		require.Contains(t, a.choice("1").Detail, why+"; it is not offered there before")

		a.push("2")
		m := b.machine(b.routes(), "m")
		second := m.accept()
		require.Equal(t, "cell/a/2", second.GetJob().GetId()[:8])
		m.end(second, &spillway.JobResult{State: spillway.Completed})
		a.waitFor("2", spillway.Completed)
		require.Equal(t, []string{"1/1", "2/1"}, a.handed(), "each was handed over once")

		kept, err := s.Settings(t.Context(), "cells-denied:b")
		require.NoError(t, err)
		require.Contains(t, kept, "1")
		a.stop()
		heir := startOrigin(t, s, "a-2", b)
		require.Eventually(t, func() bool { return heir.origin.Peers()[0].State == session.StateLinked }, within, every)
		require.Eventually(t, func() bool {
			x, err := heir.dispatcher.ExplainChoice(t.Context(), &spillway.Job{ID: "1", Requirement: r.Job.Requirement})
			return err == nil && len(x.Pools) == 1 && x.Pools[0].Outcome == router.OutcomeRefused
		}, within, every)
		require.Empty(t, heir.handed())

		// What has ended is forgotten.
		_, err = s.Cancel(t.Context(), []spillway.JobID{"1"}, "not needed")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			kept, err := s.Settings(t.Context(), "cells-denied:b")
			return err == nil && len(kept) == 0
		}, within, every)
	})
}
