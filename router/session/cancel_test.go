package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

func (p *plane) cancel(ids ...string) {
	p.t.Helper()
	resp, err := p.jobs.Cancel(context.Background(), &jobsv1.CancelRequest{JobIds: ids, Reason: "not needed"})
	require.NoError(p.t, err)
	for _, r := range resp.GetResults() {
		require.Equal(p.t, canceled, r.GetState())
	}
}

// twoPlanes share a store. Claims are renewed far later than anybody waits here.
func twoPlanes(t *testing.T, wrap func(*store.Store) fullStore) (p, q *plane) {
	p = startPlane(t, planeConfig{wrap: wrap, options: session.Options{ClaimTTL: time.Hour}})
	return p, startPlane(t, planeConfig{store: p.store, options: session.Options{Replica: "replica-2", ClaimTTL: time.Hour}})
}

func TestA16_ACancelReachesTheMachineOfAnotherReplica(t *testing.T) {
	for _, state := range []typesv1.JobState{assigned, running} {
		t.Run(state.String(), func(t *testing.T) {
			p, q := twoPlanes(t, nil)
			r := p.linux("m1", 1)
			p.mustPush(job("j1"))
			a := r.assigned()
			if state == running {
				r.accept("j1", a.GetAttempt())
			}
			p.waitFor("j1", state)
			q.cancel("j1")
			c := expect(r, (*runnerv1.RouterMessage).GetCancelJob)
			require.Equal(t, "j1", c.GetJobId())
			require.Equal(t, a.GetAttempt(), c.GetAttempt())
			r.result("j1", a.GetAttempt(), &typesv1.JobResult{State: canceled})
			require.True(t, r.acked().GetStale())
			record := p.record("j1")
			require.Equal(t, canceled, record.GetState())
			require.Equal(t, "job_canceled", last(record.GetTransitions()).GetReason())
			p.mustPush(job("j2"))
			require.Equal(t, "j2", r.assigned().GetJob().GetId(), "the place is free")
		})
	}
}

func TestA16_ACancelOfAJobThatWaits(t *testing.T) {
	p, q := twoPlanes(t, nil)
	p.mustPush(job("j1"), job("j2"))
	q.cancel("j1")
	require.Equal(t, "j2", p.linux("m1", 1).assigned().GetJob().GetId())
	require.Len(t, p.record("j1").GetTransitions(), 2)
}

// slowClaims holds the answers of claims back.
type slowClaims struct {
	*store.Store

	claimed chan struct{} // one for each claim that got a job
	answer  chan struct{} // closed: answers come
}

func (s *slowClaims) Claim(ctx context.Context, owner string, wants []router.ClaimWant, ttl time.Duration) ([]router.Claimed, error) {
	got, err := s.Store.Claim(ctx, owner, wants, ttl)
	if len(got) > 0 {
		s.claimed <- struct{}{}
		<-s.answer
	}
	return got, err
}

func TestA16_ACancelMayOvertakeTheAnswerOfTheClaim(t *testing.T) {
	slow := &slowClaims{claimed: make(chan struct{}, 8), answer: make(chan struct{})}
	p, q := twoPlanes(t, func(s *store.Store) fullStore { slow.Store = s; return slow })
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	<-slow.claimed
	q.cancel("j1")
	p.cancel("j1") // once more, so that it is known when the dispatcher has heard of it
	require.False(t, r.assignedBeforeAnswer())
	before := p.seen.times("dispatched")
	close(slow.answer)
	require.Eventually(t, func() bool { return p.seen.times("dispatched") > before }, patience, tick)
	require.False(t, r.assignedBeforeAnswer(), "a job that has ended is not given to anybody")
	p.mustPush(job("j2"))
	require.Equal(t, "j2", r.assigned().GetJob().GetId())
}
