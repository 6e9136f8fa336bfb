package scaler

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// lacking is a view of which something could not be read.
type lacking struct {
	*world
	of map[string]string // by origin; nil = of any
}

func (l *lacking) Demand(ctx context.Context) (demand.View, error) {
	view, err := l.world.Demand(ctx)
	view.Partial, view.Lacking = true, l.of
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
