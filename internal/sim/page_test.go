package sim_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
)

// TestTheStoryOfThePage plays what the page about stories shows, and looks whether it names
// each invariant that is looked at.
func TestTheStoryOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/stories.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1)
	require.NotEmpty(t, found)
	for _, block := range found {
		s, err := scenario.Parse("stories.md", block[1])
		require.NoError(t, err)
		r, err := sim.Run(t.Context(), s)
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		for _, e := range r.Expect {
			require.True(t, e.OK, e.String())
		}
	}
	for _, name := range scenario.Invariants {
		require.True(t, strings.Contains(string(page), "("+name+")"), name)
	}
}
