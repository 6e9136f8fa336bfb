package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const guarded = `
duration: 2h
config:
  admission: {controllers: [{name: one}, {name: two}]}
  pools: [{name: linux, capability: {tags: [docker]}, policy: {max: 4}}]
cloud: {linux: {initial: 2}}
controllers: {one: {takes: 1s}, two: {takes: 1h}}
jobs: [{at: 1s, id: job, tags: [docker], duration: 1h}]
`

// shown has a controller shown the job, as the reviewer would.
func (w *world) shown(controller string) {
	w.rules.shown(controller, &admission.Batch{Subjects: []*admission.Subject{{ID: "job", Job: w.jobs["job"].Job}}})
}

func TestI13_AskingOutOfOrderIsSeen(t *testing.T) {
	w := playTo(t, guarded, 1500*time.Millisecond)
	w.shown("one")
	require.Zero(t, w.rules.counts["I13"])
	w.shown("two")
	broken(t, w, "I13")
}

func TestI13_StartingWithoutApprovalIsSeen(t *testing.T) {
	w := playTo(t, guarded, 10*time.Second)
	for _, r := range w.runners {
		w.replicas[0].deliver(&router.Assignment{Machine: r.id, Job: w.jobs["job"].Job, Ref: router.JobRef{ID: "job", Attempt: 1}})
		break
	}
	broken(t, w, "I13")
}

func TestI13_AnEndThatNobodyHasSaidIsSeen(t *testing.T) {
	for _, e := range []store.ReviewEnd{
		{To: spillway.Rejected},
		{To: spillway.Admitted, Approved: []string{"one", "two"}},
		{To: spillway.Admitted, Approved: []string{"one"}},
		{To: spillway.Pending, Approved: []string{"two"}},
	} {
		w := playTo(t, guarded, 10*time.Second) // one has approved it, and two thinks
		e.Ref.ID = "job"
		w.rules.ended(&e)
		broken(t, w, "I13")
	}
}

func TestI15_AskingAgainIsSeen(t *testing.T) {
	w := playTo(t, guarded, 10*time.Second)
	w.rules.ended(&store.ReviewEnd{Ref: router.JobRef{ID: "job"}, To: spillway.Pending, Approved: []string{"one"}})
	w.shown("two")
	require.Empty(t, w.rules.violations)
	w.shown("one")
	broken(t, w, "I15")
}

const spilled = `
duration: 2h
config:
  cells: {name: east, spill_after: 10s, peers: [{name: west}]}
  pools: [{name: linux, capability: {tags: [docker]}, policy: {max: 1}}]
cloud: {linux: {boot: 1s}}
cells:
  west:
    config:
      cells: {name: west}
      pools: [{name: far, capability: {tags: [docker]}, policy: {min: 2, max: 2}}]
jobs:
  - {at: 5m, id: here, tags: [docker], duration: 1h}
  - {at: 5m, id: there, tags: [docker], duration: 1h}
`

func TestI14_AJobInTwoCellsIsSeen(t *testing.T) {
	w := playTo(t, spilled, 6*time.Minute)
	west := w.cellNamed("west")
	require.NotNil(t, west.running[cells.LocalID("east", cells.Ref{ID: "there", Attempt: 1})])
	w.runners["linux/i-0001"].run(w.jobs["there"].Job, router.JobRef{ID: "there", Attempt: 2})
	broken(t, w, "I14")
}

func TestI14_TwoAttemptsInAnotherCellAreSeen(t *testing.T) {
	w := playTo(t, spilled, 6*time.Minute)
	west := w.cellNamed("west")
	second := cells.Ref{ID: "there", Attempt: 2}
	job := *w.jobs["there"]
	job.Job.ID = cells.LocalID("east", second)
	west.receive(&job, away{w, second})
	for _, r := range west.runners {
		r.run(job.Job, router.JobRef{ID: job.Job.ID, Attempt: 1})
		break
	}
	broken(t, w, "I14")
}

func TestI11_HandingOverTooSoonIsSeen(t *testing.T) {
	w := playTo(t, spilled, 6*time.Minute)
	m := w.replicas[0].outCells[0].machines
	require.Len(t, m, 1)
	for _, away := range m {
		a := &router.Assignment{Ref: router.JobRef{ID: "other"}, Job: w.jobs["here"].Job}
		a.Job.SubmittedAt = w.now.Add(-away.pool.LeastWait)
		w.rules.handsOver(away, a, nil)
		require.Empty(t, w.rules.violations)
		w.rules.handsOver(away, a, map[string]bool{"linux": true})
		require.Equal(t, 1, w.rules.counts["I11"], "a machine here is free")
		a.Job.SubmittedAt = a.Job.SubmittedAt.Add(time.Second)
		w.rules.handsOver(away, a, nil)
	}
	require.Equal(t, 2, w.rules.counts["I11"])
}
