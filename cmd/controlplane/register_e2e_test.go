package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const linuxPool = "capability: {tags: [linux]}"

// A2: a machine says that it is there, and how full it is; every replica knows, and
// nobody gets in without the pool's token.
func TestA2_RunnersRegisterAndTellHowFullTheyAre(t *testing.T) {
	t.Parallel()
	shows(t, "A2")
	s := newSteadyStand(t, "", handPool{"linux", linuxPool + ", capacity_per_instance: 2"})
	s.machine("a", "linux", "m1", "--capacity", "5", "--instance-id", "i-1")
	var first machineView
	s.awaitMachine("m1", func(v machineView) bool {
		first = v
		return !v.Silent
	})
	require.Equal(t, machineView{ID: "m1", Instance: "i-1", Pool: "linux", Capacity: 2, HeardAt: first.HeardAt}, first, "the pool bounds its capacity")
	s.awaitMachine("m1", func(v machineView) bool { return v.HeardAt.After(first.HeardAt) })

	script, gate := scriptGate(t)
	s.b().submit(job{"id": "one", "script": script}, job{"id": "two", "script": script}, job{"id": "three", "script": "true"})
	s.awaitMachine("m1", func(v machineView) bool { return v.Busy == 2 })
	require.Contains(t, s.b().must("runners"), "2/2")
	require.Equal(t, "pending", s.b().record("three").State)
	require.Eventually(t, func() bool { return s.a().outcomes("three")["linux"] == "full" }, within, 5*poll, "%v", s.a().err)
	open(t, gate)
	for _, id := range []string{"one", "two", "three"} {
		rec := s.b().await(id, "completed")
		require.Equal(t, []any{"m1", 1}, []any{rec.Machine, rec.Attempt})
		require.NotEmpty(t, rec.Fingerprint)
	}
	s.awaitMachine("m1", func(v machineView) bool { return v.Busy == 0 })

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "nobodys"), []byte("a-token-of-nobody"), 0o600))
	stranger := s.machineAt(s.runners["a"], "nobodys", "m2")
	const exitRefused = 77
	_ = stranger.Wait()
	require.Equal(t, exitRefused, stranger.ProcessState.ExitCode(), "%v", stranger.log)
	require.Zero(t, stranger.registered())
	require.Empty(t, s.a().machine("m2").ID)
	require.NotContains(t, s.a().err.String()+stranger.log.String(), "a-token-of")
}

// A3: all that the router says to a machine goes over the connection that the machine has
// opened: jobs, that there are none, signals. When it breaks, the job on it goes on.
func TestA3_AMachineBehindNATKeepsItsJobWhenTheTunnelBreaks(t *testing.T) {
	t.Parallel()
	shows(t, "A3")
	s := newSteadyStand(t, "", handPool{"linux", linuxPool})
	way := newCrossing(t, s.runners["a"])
	m := s.machineAt(way.address(), "linux", "m1", "--log-level", "debug")
	s.awaitMachine("m1", func(v machineView) bool { return v.Pool == "linux" })
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "reason=no_jobs") }, within, poll, "%v", m.log)

	folder := t.TempDir()
	script, gate := scriptGate(t)
	s.b().submit(job{"id": "long", "script": alone(folder, script+"; echo it went on")})
	s.b().await("long", "running")
	require.Eventually(t, func() bool { return notes(t, folder) == "run\n" }, within, poll)
	require.Empty(t, listens(t, m.Process.Pid), "nobody can connect to it")
	way.cut(true)
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "not connected") }, within, poll, "%v", m.log)
	way.cut(false)
	require.Eventually(t, func() bool { return m.registered() > 1 }, within, poll, "%v", m.log)
	s.b().submit(job{"id": "next", "script": "true"})
	require.Eventually(t, func() bool { return strings.Contains(m.log.String(), "total_jobs=1") }, within, poll, "%v", m.log)
	open(t, gate)
	require.Equal(t, []string{"pending", "assigned", "running", "completed"}, s.b().await("long", "completed").way())
	require.Contains(t, s.b().must("jobs", "show", "long"), "it went on")
	require.Equal(t, "m1", s.b().await("next", "completed").Machine)
	require.Equal(t, "run\n", notes(t, folder), "it was started once")
}

// A5: a machine that can't take a job says so on the tunnel, and another one has it, also
// one of another replica. The refusal costs the job no attempt at a machine's loss.
func TestA5_ARefusedJobGoesToAnotherMachine(t *testing.T) {
	t.Parallel()
	shows(t, "A5")
	s := newSteadyStand(t, "", handPool{"linux", linuxPool})
	disk := filepath.Join(t.TempDir(), "disk")
	full := s.machine("a", "linux", "m1", "--work-dir", disk)
	require.NoError(t, os.RemoveAll(disk))
	require.NoError(t, os.WriteFile(disk, nil, 0o600)) // nothing can be put there any more

	folder := t.TempDir()
	s.a().submit(job{"id": "one", "script": alone(folder, "true"), "max_attempts": 1})
	refused := func() bool {
		for _, tr := range s.a().record("one").Transitions {
			if tr.State == "pending" && strings.Contains(tr.Reason, "refused by its machine") {
				return true
			}
		}
		return false
	}
	require.Eventually(t, refused, within, 5*poll, "%v", s.a().err)
	require.Regexp(t, `job refused.*code=REFUSAL_CODE_RESOURCE_EXHAUSTED`, full.log.String())

	s.machine("b", "linux", "m2")
	rec := s.b().await("one", "completed")
	require.Equal(t, []any{"m2", 0}, []any{rec.Machine, rec.Lost})
	require.Equal(t, "run\n", notes(t, folder))

	// A whole queue passes by the machine that refuses.
	var jobs []job
	for i := range 8 {
		jobs = append(jobs, job{"id": fmt.Sprint("many-", i), "script": "true"})
	}
	s.a().submit(jobs...)
	for i := range jobs {
		require.Equal(t, "m2", s.a().await(fmt.Sprint("many-", i), "completed").Machine)
	}
	s.awaitMachine("m1", func(v machineView) bool { return !v.Silent && v.Busy == 0 && time.Since(v.HeardAt) < lostAfter })
}
