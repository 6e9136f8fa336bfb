package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/scaler"
)

// Two replicas, each with its own plugin: the one that owns the pool is killed in the
// middle of a burst, as it asks for instances, and the other goes on with what there is.
func TestC21_AnotherReplicaGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease to expire")
	}
	t.Parallel()
	for _, what := range []fate{carriedOut, lost} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			goesOn(t, what)
		})
	}
}

func goesOn(t *testing.T, what fate) {
	s := newCloudStand(t, nil)
	replicas := map[string]*cloudReplica{
		"a": s.serve("a", "a", s.routers[0]),
		"b": s.serve("b", "b", s.routers[1]),
	}
	heir := replicas["b"]
	first, second := names("first", 3), names("second", 5)
	heir.submit(first, "sleep 20")
	heir.awaitRunning(first, 3)

	caught := newTrap(arrival.raises)
	s.gate.set(caught)
	heir.submit(second, "sleep 1")
	owner := replicas[(<-caught.caught).who]
	if owner == heir {
		heir = replicas["a"]
	}
	orphans := owner.kill()
	caught.fate <- what
	<-caught.over
	requireGone(t, orphans)
	written := len(s.gate.arrivals())
	if what == lost {
		require.Eventually(t, func() bool { return len(s.gate.arrivals()) > written }, scaler.LeaseTTL*3/2, poll, "%v", heir.err)
	}
	require.Eventually(t, func() bool { return heir.states(second)["completed"] == len(second) }, within, 5*poll, "%v", heir.err)
	s.awaitEmpty(within, heir.err)
	for _, a := range s.gate.arrivals()[written:] {
		require.Equal(t, heir.who, a.who)
	}
	s.requireOnlyByName()
	s.requireEachOnce(append(first, second...))
	require.Equal(t, len(first)+len(second), s.launched(), "one for each job, though two replicas asked")
}
