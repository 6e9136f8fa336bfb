package deptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link   = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	folder = regexp.MustCompile("`((?:router|demand|scaler|store|providers|plugin-sdk|config|server|controlplane|agent|internal|proto|cmd|testdata|examples)(?:/[a-zA-Z0-9_.-]+)*)`")
)

// What the docs point at must be there: a newcomer who follows a dead link stops.
func TestDocsPointAtWhatExists(t *testing.T) {
	top := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", top, "ls-files", "-co", "--exclude-standard", "*.md").Output()
	require.NoError(t, err)
	docs := strings.Fields(string(out))
	require.NotEmpty(t, docs)
	for _, doc := range docs {
		text, err := os.ReadFile(filepath.Join(top, doc))
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "://") {
				require.FileExists(t, filepath.Join(top, filepath.Dir(doc), m[1]), "%s links to %s", doc, m[1])
			}
		}
		for _, m := range folder.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(top, m[1]))
			require.NoError(t, err, "%s names %s", doc, m[1])
		}
	}
}
