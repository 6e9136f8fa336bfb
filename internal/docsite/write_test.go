package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASiteIsReplacedAndNothingElseIs(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "site")
	require.NoError(t, site{marker: []byte("1"), "old.html": []byte("old")}.replace(out))
	require.NoError(t, site{marker: []byte("2"), "a/new.html": []byte("new")}.replace(out))
	require.NoFileExists(t, filepath.Join(out, "old.html"))
	text, err := os.ReadFile(filepath.Join(out, "a", "new.html"))
	require.NoError(t, err)
	require.Equal(t, "new", string(text))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")

	mine := filepath.Join(dir, "mine")
	require.NoError(t, os.Mkdir(mine, 0o700))
	require.ErrorContains(t, site{marker: nil}.replace(mine), "is no site")
	require.DirExists(t, mine)
}

func TestUsage(t *testing.T) {
	var out, errs bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--what"}, &out, &errs), errUsage)
	require.Contains(t, errs.String(), "Exit codes:")
	require.ErrorIs(t, run(t.Context(), []string{"more"}, &out, &errs), errUsage)
	require.Error(t, run(t.Context(), []string{"-source", t.TempDir()}, &out, &errs))
}
