package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/bench/child"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	"github.com/spillway-ci/spillway/router"
)

// TestMain lets the test binary be a child, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Command {
		if err := Child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func needRedis(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, redisd.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED:", err)
	}
	require.NoError(t, err)
}

func TestSelect(t *testing.T) {
	all, err := Select("")
	require.NoError(t, err)
	require.Len(t, all, len(All()))
	some, err := Select("^demand/")
	require.NoError(t, err)
	require.Len(t, some, 3)
	_, err = Select("nothing")
	require.Error(t, err)
	_, err = Select("(")
	require.Error(t, err)
}

func TestWhatBrokeAndWhatIsSkippedIsSaid(t *testing.T) {
	var tables []*measure.Table
	var progress bytes.Buffer
	Run(t.Context(), []Benchmark{
		{"a", "broken", func(context.Context, *bench) error { return errors.New("a server ended") }},
		{"b", "skipped", func(context.Context, *bench) error { return fmt.Errorf("%w: no compiler", errSkipped) }},
		{"c", "no server", func(context.Context, *bench) error { return redisd.ErrNotInstalled }},
		{"d", "good", func(_ context.Context, b *bench) error {
			b.add(measure.Exactly("lost", "jobs", 0, 0))
			return nil
		}},
	}, Settings{Rounds: 1}, &progress, func(t *measure.Table) { tables = append(tables, t) })
	require.Len(t, tables, 4)
	require.True(t, tables[0].Broken())
	require.Equal(t, "a server ended", tables[0].Err)
	for _, skipped := range tables[1:3] {
		require.False(t, skipped.Broken())
		require.Equal(t, measure.Skipped, skipped.Rows[0].Verdict)
	}
	require.False(t, tables[3].Broken())
	require.Contains(t, progress.String(), "running d")
}

func TestTally(t *testing.T) {
	all := newTally(10, 3)
	require.Equal(t, flaws{lost: 3}, all.flaws())
	for _, id := range []int{10, 12, 11} {
		require.True(t, all.add(id))
	}
	require.NoError(t, all.wait(t.Context()))
	require.Equal(t, flaws{}, all.flaws())
	for _, id := range []int{10, 9, 13} { // again, and not ours
		require.False(t, all.add(id))
	}
	require.Equal(t, flaws{repeated: 3}, all.flaws())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, newTally(0, 1).wait(ctx), context.Canceled)
}

// TestViewsOverlapByHalf: each replica sees half of a class, its neighbour half of
// that, and all of them everything.
func TestViewsOverlapByHalf(t *testing.T) {
	v := newViews(3 * idsPerClass)
	require.Len(t, v.classes, 3)
	for _, class := range v.classes {
		seen := map[spillway.JobID]int{}
		for r := range v.seen {
			require.Len(t, v.seen[r][class], idsPerClass/2)
			for _, id := range v.seen[r][class] {
				seen[id]++
			}
		}
		require.Len(t, seen, idsPerClass)
		both := 0
		for _, n := range seen {
			if n == 2 {
				both++
			}
		}
		require.Equal(t, idsPerClass/2, both)
	}
	require.Equal(t, idsPerClass, v.union(viewReplicas))
	require.Equal(t, idsPerClass*3/4, v.union(viewReplicas-1))
}

func TestWrongCountsAreNoticed(t *testing.T) {
	v := newViews(2 * idsPerClass)
	right := map[spillway.JobClass]int{v.classes[0]: idsPerClass, v.classes[1]: idsPerClass}
	require.Zero(t, v.wrongCounts(right, viewReplicas))
	require.Equal(t, 2, v.wrongCounts(right, viewReplicas-1))
	right[v.classes[0]]--
	require.Equal(t, 1, v.wrongCounts(right, viewReplicas))
	delete(right, v.classes[0])
	require.Equal(t, 1, v.wrongCounts(right, viewReplicas))
	right["unknown"], right["other"] = 1, 1
	require.Equal(t, 2, v.wrongCounts(right, viewReplicas))
}

// TestEveryClassHasTwoPools: else the router would have nothing to decide.
func TestEveryClassHasTwoPools(t *testing.T) {
	pools := dispatchFleet()
	for id := range dispatchClasses {
		job := dispatchJob(id + 1)
		takers := 0
		for _, p := range pools {
			require.NoError(t, p.Validate())
			if ok, _ := router.Fits(&p.Capability, &job.Requirement); ok {
				takers++
			}
		}
		require.Equal(t, 2, takers)
	}
}

func TestEachChunkKeepsAllIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := make([]spillway.JobID, rapid.IntRange(0, 1_600).Draw(t, "n"))
		for i := range ids {
			ids[i] = spillway.JobID(fmt.Sprint(i))
		}
		var back []spillway.JobID
		eachChunk(ids, func(part []spillway.JobID) {
			require.NotEmpty(t, part)
			back = append(back, part...)
		})
		require.True(t, slices.Equal(ids, back))
	})
}
