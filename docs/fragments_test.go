package docs_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// otherFiles are blocks of YAML that are no part of spillway.yaml, by page and first key.
var otherFiles = map[string]string{
	"admission.md rules":  "rules of examples/admission-cel, read by its test",
	"fleeting.md version": "a wire profile",
	"gcp.md title":        "a role of Google's, compared with the plugin",
	"install.md image":    "values of the chart, read by internal/release",
	"local.md groups":     "settings of the local provider, read by its test",
	"stories.md duration": "a story, played by internal/sim",
}

// Each section that a page shows has settings that exist. (Whole files are read as a
// control plane reads them, by the tests of their pages.)
func TestSectionsHaveSettingsThatExist(t *testing.T) {
	files, err := filepath.Glob("*.md")
	require.NoError(t, err)
	seen := 0
	var other []string
	for _, page := range files {
		for _, text := range blocks(read(t, page), "yaml") {
			var doc yaml.Node
			require.NoError(t, yaml.Unmarshal([]byte(text), &doc), "%s:\n%s", page, text)
			if name := page + " " + doc.Content[0].Content[0].Value; otherFiles[name] != "" {
				other = append(other, name)
				continue
			}
			seen++
			require.Empty(t, unknownSettings(text), "%s:\n%s", page, text)
		}
	}
	slices.Sort(other)
	require.Len(t, slices.Compact(other), len(otherFiles), "the list of other files has more than the pages")
	require.Greater(t, seen, 10)
	require.NotEmpty(t, unknownSettings("router: {spil_after: 1m}\n"), "the check must be able to fail")
}

// unknownSettings are the lines of what is wrong with a section that say so.
func unknownSettings(text string) (lines []string) {
	_, err := config.Parse("page", []byte(text))
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if strings.Contains(line, "unknown setting") {
			lines = append(lines, line)
		}
	}
	return lines
}
