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
	script, err := index(nil)
	require.NoError(t, err)
	require.NoError(t, site{indexFile: script, "old.html": []byte("old")}.replace(out))
	require.NoError(t, site{indexFile: script, "a/new.html": []byte("new")}.replace(out))
	require.NoFileExists(t, filepath.Join(out, "old.html"))
	text, err := os.ReadFile(filepath.Join(out, "a", "new.html"))
	require.NoError(t, err)
	require.Equal(t, "new", string(text))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")

	mine := filepath.Join(dir, "mine")
	require.NoError(t, os.Mkdir(mine, 0o700))
	require.ErrorContains(t, site{indexFile: script}.replace(mine), "is no site")
	require.DirExists(t, mine)
	// Many a web page has a script of that name.
	require.NoError(t, os.Mkdir(filepath.Join(mine, "assets"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(mine, indexFile), []byte("\"use strict\";\n"), 0o600))
	require.ErrorContains(t, site{indexFile: script}.replace(mine), "is no site")
	require.FileExists(t, filepath.Join(mine, indexFile))
}

func TestUsage(t *testing.T) {
	var out, errs bytes.Buffer
	require.ErrorIs(t, run(t.Context(), []string{"--what"}, &out, &errs), errUsage)
	require.Contains(t, errs.String(), "Exit codes:")
	require.ErrorIs(t, run(t.Context(), []string{"more"}, &out, &errs), errUsage)
	require.Error(t, run(t.Context(), []string{"-source", t.TempDir()}, &out, &errs))
}
