package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// The table for those who come from GitLab Runner names settings that exist, with the
// defaults that they have, and counts as the example does.
func TestX17_TheTableOfUnitsIsTrue(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "operating.md"), "## If you come from GitLab Runner's autoscaler\n")
	require.True(t, found)
	section, _, _ := strings.Cut(rest, "\n## ")
	ours := regexp.MustCompile("`([a-z_.]+)`(?: ([0-9]+[a-z]+))?")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[2], "`") {
			continue
		}
		rows++
		for _, m := range ours.FindAllStringSubmatch(cells[2], -1) {
			key := m[1][strings.LastIndex(m[1], ".")+1:]
			setting := regexp.MustCompile(`(?m)^ *` + key + `: ([^ \n]+) *(#.*)?$`).FindStringSubmatch(config.Example)
			require.NotNil(t, setting, "there is no setting %s", m[1])
			if m[2] != "" {
				require.Equal(t, setting[1], m[2], "the default of %s", m[1])
			}
			if unit := regexp.MustCompile(`\[(jobs|instances)\]`).FindStringSubmatch(cells[2]); unit != nil {
				require.Contains(t, setting[2], unit[1], "what %s counts", m[1])
			}
		}
	}
	require.Equal(t, 10, rows)
}
