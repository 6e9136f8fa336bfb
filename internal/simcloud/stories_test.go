package simcloud_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const storiesDir = "../../testdata/scenarios"

// TestMain keeps the configuration of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		_ = os.Setenv(name, os.DevNull)
	}
	_ = os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	os.Exit(m.Run())
}

// deviation is what a real cloud rightly does in another way than the story says.
type deviation struct {
	skip   string            // why the story can't be told here; empty = it is
	differ map[string]string // expectation → why it is another number here
}

func TestStoriesOnASG(t *testing.T) {
	t.Parallel()
	tellStories(t, asgDeviations, newClouds["ASG"])
}

// tellStories plays every story on a cloud, and holds the table of deviations to be
// exact: what is in it must be needed.
func tellStories(t *testing.T, deviations map[string]deviation, cloud func() sim.NewCloud) {
	files, err := filepath.Glob(filepath.Join(storiesDir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var names []string
	var skipped notes
	for i, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		names = append(names, name)
		_, deviates := deviations[name]
		t.Run(name, func(t *testing.T) {
			if n := oneIn(); i%n != 0 && !deviates {
				t.Skipf("one story in %d", n)
			}
			t.Parallel()
			s, err := scenario.Load(file)
			require.NoError(t, err)
			if len(s.Config.Admission.Controllers) > 0 || len(s.Cells) > 0 {
				t.Skip("what is told here happens before any cloud is asked")
			}
			d := deviations[name]
			r, err := sim.RunWith(t.Context(), s, sim.Options{Cloud: cloud()})
			if errors.Is(err, pluginsdk.ErrUnsupported) {
				require.NotEmpty(t, d.skip, "it can't be told here, and the table does not say so: %s", err)
				skipped.add(name + ": " + d.skip)
				t.Skipf("%s (%s)", d.skip, err)
			}
			require.NoError(t, err)
			if d.skip != "" {
				skipped.add(name + ": " + d.skip)
				require.True(t, slices.ContainsFunc(r.Expect, func(e sim.Expected) bool { return !e.OK }) || len(r.Violations) > 0,
					"the table says that this can't be told here, and it goes as told")
				t.Skip(d.skip)
			}
			check(t, r, d.differ)
		})
	}
	for name := range deviations {
		require.Contains(t, names, name, "the table of deviations speaks of a story that is not there")
	}
	t.Cleanup(func() { // when all have been told
		list := skipped.sorted()
		t.Logf("%d of %d stories can't be told here:\n%s", len(list), len(names), strings.Join(list, "\n"))
	})
}

// oneIn is of how many stories one is told.
func oneIn() int {
	switch {
	case testing.Short():
		return 5
	case underRace:
		return 3
	default:
		return 1
	}
}

// notes are taken by several at once.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, text)
}

func (n *notes) sorted() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(slices.Values(n.list))
}

// check holds a story to its expectations but those that may differ, which must.
func check(t *testing.T, r *sim.Result, differ map[string]string) {
	t.Helper()
	for _, v := range r.Violations[:min(len(r.Violations), 5)] {
		t.Errorf("invariant %s broken at %s: %s", v.Invariant, v.T, v.What)
	}
	seen := make(map[string]bool)
	for _, e := range r.Expect {
		why, may := differ[e.Text]
		seen[e.Text] = true
		switch {
		case may && e.OK:
			t.Errorf("%s holds: it may not be in the table any more (%s)", e.Text, why)
		case !may && !e.OK:
			t.Errorf("%s", e)
		case may:
			t.Logf("%s: %s", e, why)
		}
	}
	for text := range differ {
		if !seen[text] {
			t.Errorf("the story does not expect %q any more", text)
		}
	}
	if t.Failed() {
		show(t, r)
	}
}

// show tells how a story went.
func show(t *testing.T, r *sim.Result) {
	t.Helper()
	if os.Getenv("STORY_SHOW") == "" {
		return
	}
	var b bytes.Buffer
	require.NoError(t, sim.WriteText(&b, r))
	t.Log("\n" + b.String())
	for _, d := range r.Decisions {
		t.Logf("%s %s: %d → %d %s %s %s %s", d.T, d.Pool, d.From, d.To, d.Reason, d.LimitedBy, d.Action, d.Result)
	}
	for _, c := range r.Calls {
		t.Logf("%v %s %s %s: %s", c.T, c.Pool, c.Op, c.Args, c.Result)
	}
}

func TestStoriesOnMIG(t *testing.T) {
	t.Parallel()
	tellStories(t, migDeviations, newClouds["MIG"])
}
