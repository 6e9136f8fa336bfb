package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
)

func TestQueueOfAddsClassesUp(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	class := func(pending int, oldest time.Duration, waited ...demand.Waited) demand.Class {
		return demand.Class{Pending: pending, Oldest: at.Add(-oldest), Waited: waited}
	}
	got := queueOf(nil, at)
	require.Equal(t, jobrouter.Queue{At: at, Waited: []demand.Waited{}}, got, "that nothing waits is known")

	got = queueOf([]demand.Class{
		class(4, 90*time.Second, demand.Waited{For: 10 * time.Second, Jobs: 3}, demand.Waited{For: time.Minute, Jobs: 1}),
		class(2, 20*time.Second, demand.Waited{For: 10 * time.Second, Jobs: 1}, demand.Waited{For: time.Minute}),
	}, at)
	require.Equal(t, jobrouter.Queue{Jobs: 6, At: at, Waited: []demand.Waited{{For: 10 * time.Second, Jobs: 4}, {For: time.Minute, Jobs: 1}, {For: 90 * time.Second, Jobs: 1}}}, got)

	got = queueOf([]demand.Class{class(4, time.Hour, demand.Waited{For: 10 * time.Second, Jobs: 2}, demand.Waited{For: 2 * time.Hour})}, at)
	require.Equal(t, []demand.Waited{{For: 10 * time.Second, Jobs: 2}, {For: time.Hour, Jobs: 1}, {For: 2 * time.Hour}}, got.Waited, "the oldest counts, whatever was asked for")

	got = queueOf([]demand.Class{class(4, time.Minute), class(1, time.Minute, demand.Waited{For: time.Second, Jobs: 1})}, at)
	require.Equal(t, 5, got.Jobs)
	require.Nil(t, got.Waited, "of some nobody knows")
}

func TestHeldBackIsSaid(t *testing.T) {
	h := newHolds()
	require.Empty(t, h.finding("spare"))
	h.note(jobrouter.HoldInfo{Pool: "spare", Behind: "main", Why: jobrouter.MachineFree})
	require.Equal(t, "held_back: jobs go to pool main first, which has a free machine", h.finding("spare"))
	h.note(jobrouter.HoldInfo{Pool: "spare", Behind: "main", Why: jobrouter.MayGrow})
	require.Contains(t, h.finding("spare"), "can still get machines")
	h.note(jobrouter.HoldInfo{Pool: "spare"})
	require.Empty(t, h.finding("spare"))
}
