package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A19: machines are lost under a job. It goes on with the next attempt elsewhere, until it
// has cost too many; then it waits for an operator's word. What an old machine says later
// changes nothing.
func TestA19_LostMachinesAndQuarantine(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	s := newRouterStand(t, "", handPool{"linux", linuxPool + ", capacity_per_instance: 2"})
	first := s.machine("a", "linux", "m1")
	script, gate := scriptGate(t)
	poison := job{"id": "poison", "script": script, "max_attempts": 2}
	s.b().submit(poison)
	s.a().submit(poison) // the same once more, at another replica
	require.Equal(t, "m1", s.b().await("poison", "running").Machine)

	// A machine that says nothing is suspect: it gets no job. Then it is lost.
	first.freeze(t)
	s.awaitMachine("m1", func(v machineView) bool { return v.Silent })
	second := s.machine("b", "linux", "m2", "--capacity", "2") // both jobs may come at once
	s.a().submit(job{"id": "next", "script": "true"})
	require.Equal(t, "m2", s.a().await("next", "completed").Machine)
	require.Eventually(t, func() bool { return s.a().record("poison").Attempt == 2 }, within, 5*poll, "%v", s.a().err)
	require.Equal(t, "m2", s.a().await("poison", "running").Machine)

	// The second is killed with all that runs on it.
	second.die(t)
	rec := s.a().await("poison", "failed")
	require.Equal(t, []any{"runner_system_failure", true, 2}, []any{rec.Result.Reason, rec.Quarantined, rec.Lost})
	require.Equal(t, []string{"pending", "assigned", "running", "pending", "assigned", "running", "failed"}, rec.way())
	require.Contains(t, s.a().must("jobs", "list", "--quarantined"), "poison")

	// The first wakes up and ends its old attempt: nobody wants that.
	open(t, gate)
	first.thaw(t)
	require.Eventually(t, func() bool { return first.registered() > 1 }, within, 5*poll, "%v", first.log)
	s.a().submit(job{"id": "after", "script": "true"})
	require.Equal(t, "m1", s.a().await("after", "completed").Machine)
	require.Equal(t, rec, s.a().record("poison"))

	out, err := s.b().ctl("jobs", "retry", "next")
	require.Error(t, err, out)
	s.b().must("jobs", "retry", "poison", "--reason", "driver fixed")
	rec = s.a().await("poison", "completed")
	require.Equal(t, []any{3, "m1", false}, []any{rec.Attempt, rec.Machine, rec.Quarantined})
	require.NotContains(t, s.a().must("jobs", "list", "--quarantined"), "poison")
	require.Contains(t, s.a().metricsPage()+s.b().metricsPage(), "spillway_jobs_quarantined_total 1")
}
