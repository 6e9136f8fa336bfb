package scaler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// lacking is a view of which something could not be read.
type lacking struct {
	*world
	of    map[string]string // by origin; nil = of any
	pools map[string]string
}

func (l *lacking) Demand(ctx context.Context) (demand.View, error) {
	view, err := l.world.Demand(ctx)
	view.Partial, view.Lacking, view.LackingPools = true, l.of, l.pools
	return view, err
}

// A source that is away holds the pools that it serves, and no others.
func TestOnlyPoolsWhoseJobsAreNotKnownHold(t *testing.T) {
	r := busy(t, 3)
	for i := range r.machines {
		r.machines[i].Busy = 0
	}
	l := &lacking{world: r.world, of: map[string]string{"": "our own queue could not be read"}}
	r.fleet.demand = l
	r.pass(20 * time.Minute)
	require.Empty(t, r.next(0))
	require.Equal(t, policy.ReasonHoldPartial, r.pool.Status().Hold)
	l.of = nil
	require.Empty(t, r.next(5*time.Second), "it may be of any")
	require.Equal(t, policy.ReasonHoldPartial, r.pool.Status().Hold)
	l.of = map[string]string{"https://gitlab.example.com": "GitLab could not be asked"}
	require.Len(t, r.next(5*time.Second), 3)
	require.Empty(t, r.pool.Status().Hold)
}

func TestALackThatEndsConcernsPools(t *testing.T) {
	before := &Picture{Demand: policy.Partial, lacks: map[string]string{"": "x"}}
	require.True(t, (&Picture{Demand: policy.Partial, lacks: map[string]string{"https://a": "x"}}).Concerns(before, "p"))
	require.False(t, (&Picture{Demand: policy.Partial, lacks: map[string]string{"": "of a second later"}}).Concerns(before, "p"))
}

// One runner token that GitLab refuses holds the pools of that token, and says so.
func TestOnlyPoolsOfARefusedTokenHold(t *testing.T) {
	r := busy(t, 3)
	for i := range r.machines {
		r.machines[i].Busy = 0
	}
	l := &lacking{world: r.world, pools: map[string]string{"linux": "GitLab refuses the token"}}
	r.fleet.demand = l
	r.pass(20 * time.Minute)
	require.Empty(t, r.next(0))
	s := r.pool.Status()
	require.Equal(t, policy.ReasonHoldPartial, s.Hold)
	require.Equal(t, "only a part of the jobs is known, there may be more: GitLab refuses the token", why(s.Decision, "hold"))
	l.pools = map[string]string{"other": "GitLab refuses the token"}
	require.Len(t, r.next(5*time.Second), 3)
	require.Empty(t, r.pool.Status().Hold)
}

// why is the sentence of a step.
func why(d policy.Decision, step string) string {
	for _, t := range d.Trace {
		if t.Step == step {
			return t.Why
		}
	}
	return ""
}

func TestALackOfAPoolThatEndsConcernsIt(t *testing.T) {
	before := &Picture{Demand: policy.Partial, lackOf: map[string]string{"p": "x"}}
	require.True(t, (&Picture{Demand: policy.Partial, lackOf: map[string]string{"q": "x"}}).Concerns(before, "p"))
	require.False(t, (&Picture{Demand: policy.Partial, lackOf: map[string]string{"p": "y"}}).Concerns(before, "p"))
}

// What keeps the jobs from being known is in the decision, on one line.
func TestUnknownDemandSaysWhy(t *testing.T) {
	r := busy(t, 1)
	r.fail["demand"] = errors.Join(errors.New("counting the queue: no route"), errors.New("no replica shows GitLab's jobs"))
	r.pass(time.Minute)
	r.next(0)
	d := r.pool.Status().Decision
	require.Equal(t, policy.ReasonHoldStale, d.Reason)
	require.Equal(t, "nothing is known of the jobs: the waiting jobs could not be read: counting the queue: no route; no replica shows GitLab's jobs", why(d, "need"))
}
