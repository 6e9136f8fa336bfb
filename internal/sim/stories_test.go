package sim_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

var update = flag.Bool("update", false, "rewrite the golden numbers of the stories")

const storiesDir = "../../testdata/scenarios"

// TestStories plays every story twice: it must go as its own expectations say,
// without a violation, and the same way each time. The golden numbers beside it
// show what else a change of the code changes.
func TestStories(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(storiesDir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			first, out := play(t, file)
			_, again := play(t, file)
			require.Equal(t, out, again, "the same scenario and seed gave another output")
			for _, v := range first.Violations[:min(len(first.Violations), 5)] {
				t.Errorf("invariant %s broken at %s: %s", v.Invariant, v.T, v.What)
			}
			require.NotEmpty(t, first.Expect, "a story without an expectation shows nothing")
			for _, e := range first.Expect {
				if !e.OK {
					t.Errorf("%s:%d: %s", file, e.Line, e)
				}
			}
			if t.Failed() || os.Getenv("STORY_SHOW") != "" {
				narrate(t, first)
			}
			golden(t, file, first)
		})
	}
}

func play(t *testing.T, file string) (*sim.Result, string) {
	t.Helper()
	s, err := scenario.Load(file)
	require.NoError(t, err)
	r, err := sim.Run(t.Context(), s)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, sim.WriteJSON(&out, r))
	require.NoError(t, sim.WriteText(&out, r))
	return r, out.String()
}

// narrate shows how the story went.
func narrate(t *testing.T, r *sim.Result) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, sim.WriteText(&b, r))
	t.Log("\n" + b.String())
	for _, d := range r.Decisions {
		t.Logf("%s %s: %d → %d %s %s %s %s", d.T, d.Pool, d.From, d.To, d.Reason, d.LimitedBy, d.Action, d.Result)
	}
}

// numbers are what a golden file holds of one story.
type numbers struct {
	Duration sim.Seconds            `json:"duration_s"`
	Jobs     sim.Jobs               `json:"jobs"`
	Pools    map[string]poolNumbers `json:"pools"`
	Handed   map[string]sim.Handed  `json:"handed,omitempty"`
	Cells    map[string]sim.Jobs    `json:"cells,omitempty"` // what each of the others had in its queue
}

type poolNumbers struct {
	Launches, Removals, ScaleCalls, MaxLive int
	InstanceSeconds                         sim.Seconds
}

func golden(t *testing.T, file string, r *sim.Result) {
	t.Helper()
	n := numbers{Duration: r.Duration, Jobs: r.Jobs, Pools: make(map[string]poolNumbers), Handed: r.Handed}
	for name, c := range r.Cells {
		if n.Cells == nil {
			n.Cells = make(map[string]sim.Jobs)
		}
		n.Cells[name] = c.Jobs
	}
	for name, p := range r.Pools {
		n.Pools[name] = poolNumbers{p.Launches, p.Removals, p.ScaleCalls, p.MaxLive, p.InstanceSeconds}
	}
	got, err := json.MarshalIndent(n, "", "  ")
	require.NoError(t, err)
	got = append(got, '\n')
	path := filepath.Join("testdata", "golden", strings.TrimSuffix(filepath.Base(file), ".yaml")+".json")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run with -update, and read the difference before you accept it")
	require.Equal(t, string(want), string(got))
}
