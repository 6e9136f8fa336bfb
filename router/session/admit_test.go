package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// approvals needs approval for the jobs of one project.
type approvals struct {
	mu struct {
		sync.Mutex
		pushed, waiting int
		dispatched      []spillway.JobID
	}
}

func (g *approvals) Sort(c router.ClassCount) router.ClassCount {
	if c.Requirement.Project == 7 {
		c.Unadmitted += c.Pending - c.Admitted
		c.Pending = c.Admitted
	}
	return c
}

func (g *approvals) Waiting(counts []router.ClassCount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range counts {
		g.mu.waiting = max(g.mu.waiting, c.Unadmitted)
	}
}

func (g *approvals) Pushed(c router.ClassCount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.pushed += c.Unadmitted
}

func (g *approvals) Dispatched(job *spillway.Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.dispatched = append(g.mu.dispatched, job.ID)
}

// What nobody has approved is given to no machine; what is approved is, and the jobs
// beside it never wait.
func TestOnlyApprovedJobsAreGivenOut(t *testing.T) {
	g := &approvals{}
	p := startPlane(t, planeConfig{options: session.Options{Admission: g, CountsEvery: 20 * time.Millisecond}})
	a := p.attach("within")
	gated := job("gated")
	gated.Requirement.Project = 7
	p.mustPush(gated, job("free"))
	require.Equal(t, "free", hears(p, a, (*runnerv1.RouterMessage).GetAssign).GetJob().GetId())
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.mu.pushed == 1 && g.mu.waiting == 1
	}, patience, tick)

	r := spillway.Requirement{Tags: gated.GetRequirement().GetTags(), Project: 7}
	under, err := p.store.ClaimForReview(t.Context(), []store.ReviewWant{{Class: r.Class(), N: 9, Approvers: []store.Approver{{Name: "a", Here: true}}}}, time.Minute)
	require.NoError(t, err)
	require.Len(t, under, 1)
	_, err = p.store.EndReviews(t.Context(), []store.ReviewEnd{{Ref: under[0].Ref, To: spillway.Admitted}})
	require.NoError(t, err)
	other := p.attach("other")
	assign := hears(p, other, (*runnerv1.RouterMessage).GetAssign)
	require.Equal(t, "gated", assign.GetJob().GetId())
	require.Equal(t, int32(2), assign.GetAttempt(), "the review was the first")
	g.mu.Lock()
	defer g.mu.Unlock()
	require.ElementsMatch(t, []spillway.JobID{"gated", "free"}, g.mu.dispatched)
}
