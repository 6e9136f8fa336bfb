package manual

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func tree() *cobra.Command {
	root := &cobra.Command{Use: "boat", Short: "Float", Long: "Floats on water."}
	sail := &cobra.Command{Use: "sail HARBOUR", Short: "Go there", Run: func(*cobra.Command, []string) {}}
	sail.Flags().Int("knots", 3, "how fast")
	root.AddCommand(sail)
	return root
}

func TestPagesAndCompletionsSayWhatTheCommandDoes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(tree(), []string{dir, "1.2.3", "86400"}))
	page, err := os.ReadFile(filepath.Join(dir, Man, "boat-sail.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "knots")
	require.Contains(t, string(page), "Spillway 1.2.3")
	require.Contains(t, string(page), "Jan 1970")
	for _, file := range []string{Man + "/boat.1", Bash + "/boat", Zsh + "/_boat", Fish + "/boat.fish"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Contains(t, string(text), "boat", file)
	}
}

func TestWritingTwiceGivesTheSame(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		require.NoError(t, write(tree(), []string{dir, "1.2.3", "86400"}))
	}
	files, err := filepath.Glob(filepath.Join(first, "*", "*"))
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		own, err := filepath.Rel(first, file)
		require.NoError(t, err)
		a, err := os.ReadFile(file)
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(second, own))
		require.NoError(t, err)
		require.Equal(t, string(a), string(b), own)
	}
}

func TestACommandIsDescribedForPrograms(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, describe(tree(), []string{dir}))
	text, err := os.ReadFile(filepath.Join(dir, "boat_sail.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(text), "name: boat sail\n")
	require.Contains(t, string(text), "usage: how fast\n")
	require.FileExists(t, filepath.Join(dir, "boat.yaml"))
}

func TestArgumentsAreChecked(t *testing.T) {
	require.ErrorContains(t, describe(tree(), nil), "want DIR")
	require.ErrorContains(t, write(tree(), []string{t.TempDir(), "1.2.3"}), "want DIR VERSION SECONDS")
	require.ErrorContains(t, write(tree(), []string{t.TempDir(), "1.2.3", "today"}), "the date")
}
