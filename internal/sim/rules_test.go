package sim

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/router"
)

// A harness that finds no planted bug proves nothing: each rule is broken here by
// hand, in the middle of a story, and must be seen to be.

const twoPools = `
duration: 2h
config:
  pools:
    - {name: first, capability: {tags: [docker]}, policy: {max: 4}}
    - {name: second, capability: {tags: [docker]}, priority: 1, policy: {max: 4}}
cloud:
  first: {initial: 2}
  second: {initial: 1}
jobs:
  - {at: 1s, id: job, count: 2, tags: [docker], duration: 1h}
`

// playTo plays a story up to a moment.
func playTo(t *testing.T, text string, at time.Duration) *world {
	t.Helper()
	s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
	require.NoError(t, err)
	w, err := newWorld(t.Context(), s, Options{})
	require.NoError(t, err)
	w.end = epoch.Add(at)
	for _, c := range w.all {
		c.begin()
	}
	for {
		next, ok := w.nextMoment()
		if !ok || next.After(w.end) {
			next = w.end
		}
		for _, c := range w.all {
			c.now = next
		}
		if !ok || next.Equal(w.end) {
			break
		}
		w.moment()
	}
	require.Empty(t, w.rules.violations)
	return w
}

func (w *world) groupOf(pool string) *group {
	return &group{replica: w.replicas[0], site: w.site(pool)}
}

func broken(t *testing.T, w *world, invariant string) {
	t.Helper()
	require.Positive(t, w.rules.counts[invariant], "%v", w.rules.violations)
	require.Equal(t, ExitViolated, w.result().ExitCode())
}

func TestI1_EndingABusyInstanceIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	_, err := w.groupOf("first").Remove(t.Context(), []string{"i-0001"})
	require.NoError(t, err)
	broken(t, w, "I1")
	require.Equal(t, 1, w.rec.busyKills)
}

func TestI2_LaunchingAboveMaxIsSeen(t *testing.T) {
	w := playTo(t, twoPools+"  - {at: 2s, id: more, count: 20, tags: [docker], duration: 1h}\n", 100*time.Second)
	first := w.groupOf("first")
	w.config.Pools[0].Policy.Max = 3 // the pool has 4, as it should
	_, err := first.SetDesired(t.Context(), 3, 4)
	require.NoError(t, err)
	require.Zero(t, w.rules.counts["I2"], "lowering is no launch")
	_, err = first.SetDesired(t.Context(), 4, 3)
	require.NoError(t, err)
	require.Zero(t, w.rules.counts["I2"], "nothing was launched by that")
	w.site("second").cloud.Kill(w.now, 1)
	w.config.Pools[1].Policy.Max = 3
	_, err = w.groupOf("second").SetDesired(t.Context(), 4, 3)
	require.NoError(t, err)
	broken(t, w, "I2")
}

func TestI3_ALaunchForNothingIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	_, err := w.groupOf("second").SetDesired(t.Context(), 2, 1)
	require.NoError(t, err)
	broken(t, w, "I3")
}

func TestI4_JobsThatWaitForALaunchAreSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	r := w.replicas[0]
	for _, id := range []spillway.JobID{"a", "b"} { // the third place is free; the second of these needs a launch
		w.rec.jobs[id] = &jobStory{id: id, state: spillway.Pending}
		_, err := w.store.Push(spillway.Job{ID: id, Requirement: spillway.Requirement{Tags: []string{"docker"}}, SubmittedAt: w.now})
		require.NoError(t, err)
	}
	for range launchWithinTicks + 1 {
		require.Zero(t, w.rules.counts["I4"])
		w.rules.turn("first")
		w.rules.turn("second")
		w.rules.ticked(r) // a tick in which nobody did anything
	}
	broken(t, w, "I4")
}

func TestI5_ScaleInWithoutKnowingTheJobsIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	w.faults.signal = fault[scenario.SignalFault]{kind: scenario.SignalError, until: w.now.Add(time.Minute)}
	_, err := w.groupOf("second").Remove(t.Context(), []string{"i-0001"})
	require.NoError(t, err)
	broken(t, w, "I5")
	require.Zero(t, w.rules.counts["I1"], "it was idle")
}

func TestI6_AJobThatIsStuckIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	w.rec.jobs["job-1"].state = spillway.Assigned
	w.now = w.now.Add(10 * time.Minute)
	w.rules.step()
	broken(t, w, "I6")
}

func TestI7_AFleetThatDoesNotRecoverIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	w.faults.lasts(w.now)
	w.rec.jobs["a"] = &jobStory{id: "a", state: spillway.Pending}
	_, err := w.store.Push(spillway.Job{ID: "a", Requirement: spillway.Requirement{Tags: []string{"docker"}}, SubmittedAt: w.now})
	require.NoError(t, err)
	w.now = w.now.Add(convergeTime)
	w.rules.atEnd()
	broken(t, w, "I7")
}

func TestI8_AWriteWithoutTheLeaseIsSeen(t *testing.T) {
	w := playTo(t, "replicas: 2\n"+twoPools, 100*time.Second)
	g := w.groupOf("first")
	require.Equal(t, w.replicas[0].name, w.store.Holder("pool/first"))
	g.replica = w.replicas[1]
	_, err := g.Withdraw(t.Context(), 2)
	require.NoError(t, err)
	broken(t, w, "I8")
}

func TestI10_AJobInTwoPlacesAndASecondEndAreSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	other := w.runners["second/i-0001"]
	w.rules.assigned(other, router.JobRef{ID: "job-1"})
	require.Equal(t, 1, w.rules.counts["I10"])
	w.rec.jobs["job-2"].state = spillway.Completed
	w.rec.jobChanged(spillway.JobRecord{Job: spillway.Job{ID: "job-2"}, State: spillway.Failed})
	require.Equal(t, 2, w.rules.counts["I10"])
	broken(t, w, "I10")
}

func TestI11_SpilloverBeforeTheFirstIsFullIsSeen(t *testing.T) {
	w := playTo(t, twoPools, 100*time.Second)
	r := w.replicas[0]
	job := spillway.Job{ID: "x", Requirement: spillway.Requirement{Tags: []string{"docker"}}}
	given := []router.Assignment{{Machine: "second/i-0001", Job: job, Ref: router.JobRef{ID: "x"}}}
	w.rules.dispatched(&r.session, given)
	require.Zero(t, w.rules.counts["I11"], "the first pool is full")
	w.runners["first/i-0001"].finish(w.runners["first/i-0001"].jobs["job-1"])
	w.rules.dispatched(&r.session, given)
	broken(t, w, "I11")
}
