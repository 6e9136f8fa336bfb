package collect

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
)

type counter struct {
	counts []router.ClassCount
	err    error
}

func (c counter) Counts(context.Context) ([]router.ClassCount, error) { return c.counts, c.err }

func TestAnErrorIsNotAnEmptyQueue(t *testing.T) {
	away := errors.New("away")
	_, err := Queue{counter{err: away}}.Demand(context.Background())
	require.ErrorIs(t, err, away)
	view, err := Queue{counter{}}.Demand(context.Background())
	require.NoError(t, err)
	require.Empty(t, view.Classes)
	require.False(t, view.At.IsZero())
}

func TestOnlyWhatWaitsIsDemand(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	need := spillway.Requirement{Tags: []string{"linux"}}
	view := View([]router.ClassCount{
		{Class: "a", Requirement: need, Priority: 3, Pending: 2, Claimed: 5, Oldest: at},
		{Class: "b", Claimed: 4},
	}, at.Add(time.Minute))
	require.Equal(t, demand.View{
		At:      at.Add(time.Minute),
		Classes: []demand.Class{{ID: "a", Requirement: need, Priority: 3, Pending: 2, Oldest: at}},
	}, view)
}
