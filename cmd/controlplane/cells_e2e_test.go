package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestA19_JobsGoToTheCheaperCellAndTheirResultsComeBack(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b, c := newCell(t, "a", 1, 1, 1), newCell(t, "b", 2, 2, 9), newCell(t, "c", 2, 2, 3)
	a.joins(b, b.api)
	a.joins(c, c.api)
	for _, x := range []*cell{b, c, a} {
		x.start()
	}
	for _, x := range []*cell{b, c, a} {
		x.ready()
	}
	a.linked("b")
	a.linked("c")

	// The own cell first.
	a.submit("own", "echo in $SPILLWAY_POOL", "--wait")
	require.Contains(t, a.shown("own"), `"pool":"linux"`)

	a.fill()
	began := time.Now()
	a.submit("one", "echo hello from afar; exit 3")
	record := a.until("one", `"exit_code":3`)
	require.GreaterOrEqual(t, time.Since(began), a.spillAfter, "it waits in its own cell first")
	require.Contains(t, record, `"pool":"cell-c-`, "c is cheaper than b")
	require.Contains(t, record, "script_failure")
	require.Contains(t, a.must("jobs", "show", "one"), "hello from afar")
	require.Contains(t, record, `"attempt":1`)

	// As many as c has places go there, the others to b.
	script, gate := scriptGate(t)
	for i, want := range []struct {
		free int // in c
		cell string
	}{{2, "c"}, {1, "c"}, {0, "b"}, {0, "b"}} {
		a.awaitFree("c", want.free)
		id := fmt.Sprintf("many-%d", i)
		a.submit(id, script)
		require.Contains(t, a.until(id, `"JOB_STATE_RUNNING"`), `"pool":"cell-`+want.cell+`-`)
	}
	open(t, gate)
	for i := range 4 {
		a.until(fmt.Sprintf("many-%d", i), `"JOB_STATE_COMPLETED"`)
	}

	// What is canceled here ends there.
	folder := t.TempDir()
	a.submit("unwanted", alone(folder, "sleep 1000"))
	a.until("unwanted", `"JOB_STATE_RUNNING"`)
	a.must("jobs", "cancel", "unwanted")
	for _, x := range []*cell{b, c} {
		require.Eventually(t, func() bool { return x.listed("running") == 0 }, within, 10*poll, "%v", x.err)
	}
}

// Two cells that are full do not pass jobs to and fro.
func TestA19_JobsAreHandedOverOnce(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b := newCell(t, "a", 1, 1, 1), newCell(t, "b", 1, 1, 1)
	a.joins(b, b.api)
	b.joins(a, a.api)
	a.start()
	b.start()
	a.ready()
	b.ready()
	a.linked("b")
	b.linked("a")
	a.fill()
	a.submit("far", "sleep 1000")
	require.Contains(t, a.until("far", `"JOB_STATE_RUNNING"`), `"pool":"cell-b-`)
	// b is full by a's job. Its own job waits, and so does another one of a's: each cell
	// is full, and neither hands over what is the other's.
	b.submit("near", "true")
	a.submit("waits", "true")
	require.Never(t, func() bool {
		return strings.Contains(a.must("jobs", "list"), "cell/b/") || strings.Count(b.must("jobs", "list"), "cell/a/") != 1
	}, 4*time.Second, 200*time.Millisecond)
	// A place in a: a's own job has it, although b's has waited longer.
	a.must("jobs", "cancel", "hold")
	require.Contains(t, a.until("waits", `"JOB_STATE_COMPLETED"`), `"pool":"linux"`)
	require.Contains(t, b.until("near", `"JOB_STATE_COMPLETED"`), `"pool":"cell-a-`, "then a has a free place, and b's job has it")
	require.NotContains(t, a.must("jobs", "list"), "cell/b/cell/", "nobody hands on")
}

// The way between the cells is cut while a job of the one runs in the other.
func TestA19_CutOffCellsGoOnAlone(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b := newCell(t, "a", 1, 1, 1), newCell(t, "b", 1, 1, 1)
	a.lease = 8 * time.Second
	way := newCrossing(t, b.api)
	a.joins(b, way.address())
	a.start()
	b.start()
	a.ready()
	b.ready()
	a.linked("b")
	a.fill()
	folder := t.TempDir()
	a.submit("far", alone(folder, fmt.Sprintf("if [ -e %s/again ]; then exit 0; fi; touch %s/again; sleep 1000", folder, folder)))
	require.Contains(t, a.until("far", `"JOB_STATE_RUNNING"`), `"pool":"cell-b-`)
	require.Eventually(t, func() bool { return notes(t, folder) == "run\n" }, within, poll)

	way.cut(true)
	cut := time.Now()
	b.until("cell/a/far/1", "JOB_STATE_CANCELED")
	require.Less(t, time.Since(cut), a.lease+b.endWithin, "the job has ended within the lease and what its end may take")
	require.Contains(t, a.shown("far"), `"attempt":1`, "and until it is sure of that, a waits")
	b.submit("b-alone", "true", "--wait")
	a.must("jobs", "cancel", "hold")
	a.submit("a-alone", "true", "--wait")

	record := a.until("far", `"JOB_STATE_COMPLETED"`)
	require.Contains(t, record, `"attempt":2`)
	require.Greater(t, time.Since(cut), a.lease+b.endWithin)
	require.Equal(t, "run\nrun\n", notes(t, folder), "it was on one machine at a time")

	way.cut(false)
	a.linked("b")
	a.fillAs("hold-2")
	a.submit("far-2", "true")
	require.Contains(t, a.until("far-2", `"JOB_STATE_COMPLETED"`), `"pool":"cell-b-`)
	require.Eventually(t, func() bool { return strings.Contains(b.must("cells", "list", "-o", "json"), `"jobs": 0`) }, within, 10*poll, "%v%v", lazily(func() string { return b.must("cells", "list", "-o", "json") }), b.err)
}

// The control plane that has handed a job over is killed.
func TestA19_KilledOriginFindsItsJobsAgain(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b := newCell(t, "a", 1, 1, 1), newCell(t, "b", 1, 1, 1)
	a.lease = 30 * time.Second
	a.joins(b, b.api)
	a.start()
	b.start()
	a.ready()
	b.ready()
	a.linked("b")
	a.fill()

	// Back before the lease is over: the job goes on, and ends once.
	folder := t.TempDir()
	a.submit("far", alone(folder, fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.1; done; echo done", folder)))
	require.Contains(t, a.until("far", `"JOB_STATE_RUNNING"`), `"pool":"cell-b-`)
	require.Eventually(t, func() bool { return notes(t, folder) == "run\n" }, within, poll)
	before := a.machines()
	require.NoError(t, a.Process.Kill())
	_ = a.code()
	a.lease = 8 * time.Second // for what follows; the job is covered by the one before
	a.start()
	a.linked("b")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go"), nil, 0o600))
	record := a.until("far", `"JOB_STATE_COMPLETED"`)
	require.Contains(t, record, `"attempt":1`)
	require.Equal(t, "run\n", notes(t, folder))

	// Its machine was gone with it. The next one is filled as well.
	a.must("jobs", "cancel", "hold")
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(a.machines(), func(m machineView) bool {
			return !slices.ContainsFunc(before, func(o machineView) bool { return o.ID == m.ID })
		})
	}, within, 5*poll, "%v", a.err)
	a.fillAs("hold-2")

	// Back long after: the job has ended there, and is run again. Never twice at once.
	folder = t.TempDir()
	a.submit("far-2", alone(folder, fmt.Sprintf("if [ -e %s/again ]; then exit 0; fi; touch %s/again; sleep 1000", folder, folder)))
	require.Contains(t, a.until("far-2", `"JOB_STATE_RUNNING"`), `"pool":"cell-b-`)
	require.Eventually(t, func() bool { return notes(t, folder) == "run\n" }, within, poll)
	require.NoError(t, a.Process.Kill())
	_ = a.code()
	b.until("cell/a/far-2/1", "JOB_STATE_CANCELED")
	a.start()
	a.must("jobs", "cancel", "hold-2")
	record = a.until("far-2", `"JOB_STATE_COMPLETED"`)
	require.Contains(t, record, `"attempt":2`)
	require.Equal(t, "run\nrun\n", notes(t, folder))
}

// Of two replicas one links to the other cell. When it is killed, the other one goes on.
func TestA19_AnotherReplicaOfTheOriginGoesOn(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b := newCell(t, "a", 1, 1, 1), newCell(t, "b", 2, 2, 1)
	a.joins(b, b.api)
	heir := a.another()
	a.start()
	b.start()
	a.ready()
	b.ready()
	a.linked("b")
	heir.start()
	require.Eventually(t, func() bool { return strings.Contains(heir.must("cells", "list"), "other_replica") }, within, 10*poll)
	a.fill()
	folder := t.TempDir()
	heir.submit("far", alone(folder, fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.1; done; echo done", folder)))
	require.Contains(t, a.until("far", `"JOB_STATE_RUNNING"`), `"pool":"cell-b-`)
	require.Eventually(t, func() bool { return notes(t, folder) == "run\n" }, within, poll)

	require.NoError(t, a.Process.Kill())
	_ = a.code()
	heir.linked("b")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go"), nil, 0o600))
	require.Contains(t, heir.until("far", `"JOB_STATE_COMPLETED"`), `"attempt":1`)
	require.Equal(t, "run\n", notes(t, folder))
}

// A cell may have instances launched for others, if it says so.
func TestA19_ACellGrowsForOthers(t *testing.T) {
	t.Parallel()
	shows(t, "A19")
	a, b, c := newCell(t, "a", 1, 1, 1), newCell(t, "b", 0, 1, 5), newCell(t, "c", 0, 1, 1)
	b.growth = true
	a.joins(b, b.api)
	a.joins(c, c.api)
	for _, x := range []*cell{b, c, a} {
		x.start()
	}
	a.ready()
	a.linked("b")
	a.linked("c")
	a.fill()
	a.submit("far", "true")
	require.Contains(t, a.until("far", `"JOB_STATE_COMPLETED"`), `"pool":"cell-b-`, "c is cheaper, and has no machine")
	require.Contains(t, b.must("explain", "linux"), "set_desired(1")
	require.NotContains(t, c.must("explain", "linux"), "set_desired(1")
}
