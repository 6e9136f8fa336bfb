package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
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
	all := slices.Concat(first, second)
	release := filepath.Join(t.TempDir(), "release")
	heir.submit(first, until(release))
	heir.awaitRunning(first, len(first))

	caught := newTrap(raisesTo(len(all)))
	s.gate.set(caught)
	heir.submit(second, until(release))
	owner := replicas[(<-caught.caught).who]
	if owner == heir {
		heir = replicas["a"]
	}
	orphans := owner.kill()
	caught.fate <- what
	<-caught.over
	requireGone(t, orphans)
	written := len(s.gate.arrivals())
	heir.awaitRunning(all, len(all))
	if what == lost {
		require.Greater(t, len(s.gate.arrivals()), written, "asked for again")
	}
	touch(t, release)
	require.Eventually(t, func() bool { return heir.states(all)["completed"] == len(all) }, within, 5*poll, "%v", heir.err)
	s.awaitEmpty(within, heir.err)
	for _, a := range s.gate.arrivals()[written:] {
		require.Equal(t, heir.who, a.who)
	}
	s.requireOnlyByName()
	s.requireEachOnce(all)
	require.Equal(t, len(all), s.launched(), "one for each job, though two replicas asked")
}
