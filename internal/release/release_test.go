package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Folders, and the moment, don't get into a release.
func TestTwiceTheSameBytes(t *testing.T) {
	if *distFlag != "" {
		t.Skip("SKIPPED: TestRealProgramsTwiceTheSameBytes looks at this release")
	}
	first, _ := dist(t)
	second := filepath.Join(t.TempDir(), "dist")
	makeSmall(t, second)
	files, err := os.ReadDir(first)
	require.NoError(t, err)
	require.Len(t, files, 2+2+2+1+1+1+1)
	for _, f := range files {
		requireSameFile(t, filepath.Join(first, f.Name()), filepath.Join(second, f.Name()))
	}
}

func requireSameFile(t *testing.T, first, second string) {
	t.Helper()
	a, err := sumOf(first)
	require.NoError(t, err)
	b, err := sumOf(second)
	require.NoError(t, err)
	require.Equal(t, a, b, "%s is made anew with other bytes", filepath.Base(first))
}

// The real thing: another copy of the source, nothing compiled before, one architecture.
func TestRealProgramsTwiceTheSameBytes(t *testing.T) {
	if *distFlag == "" {
		t.Skip("SKIPPED, without -dist: compiles everything anew, some minutes")
	}
	folder, v := dist(t)
	source, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	for _, name := range strings.Fields(output(t, "git", "-C", top, "ls-files", "-co", "--exclude-standard")) {
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(source, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(source, name), text, 0o644))
	}
	date, err := dateOf(t.Context(), top)
	require.NoError(t, err)
	t.Setenv("GOCACHE", t.TempDir())
	r := release{source: source, version: v, date: date, arches: []string{"amd64"}, packages: packages, image: "spillway-control-plane", log: io.Discard}
	require.NoError(t, r.make(t.Context(), out))
	compared := 0
	for _, pattern := range []string{"*_amd64.deb", "*.x86_64.rpm", "*_linux_amd64*", "*.tgz"} {
		files, err := filepath.Glob(filepath.Join(out, pattern))
		require.NoError(t, err)
		for _, f := range files {
			requireSameFile(t, f, filepath.Join(folder, filepath.Base(f)))
			compared++
		}
	}
	require.Equal(t, 2+2+3+1, compared)
}

func TestChecksumsAreRight(t *testing.T) {
	sha256sum := installedProgram(t, "sha256sum", "SHA256SUMS was not held to sha256sum")
	folder, _ := dist(t)
	check := exec.Command(sha256sum, "--check", "--strict", sumsFile)
	check.Dir = folder
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Equal(t, len(files)-1, strings.Count(string(out), ": OK"))
}

// A release that fails leaves the one before alone.
func TestFailureLeavesWhatWasThere(t *testing.T) {
	out := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, os.Mkdir(out, 0o755))
	for _, name := range []string{"before", sumsFile} {
		require.NoError(t, os.WriteFile(filepath.Join(out, name), nil, 0o644))
	}
	broken := smallPackages()
	broken[0].programs[0].from = "./cmd/absent"
	r := release{source: smallSource(t), version: parseVersion(testVersion), date: testDate, arches: []string{"amd64"}, packages: broken, image: "spillway-control-plane", log: io.Discard}
	require.ErrorContains(t, r.make(t.Context(), out), "build controlplane")
	require.FileExists(t, filepath.Join(out, "before"))
	require.NoDirExists(t, r.work)
}

// Whoever names the wrong folder keeps what is in it.
func TestAnotherFolderIsNotReplaced(t *testing.T) {
	out := t.TempDir()
	r := release{source: smallSource(t), version: parseVersion(testVersion), date: testDate, log: io.Discard}
	require.NoError(t, replaceable(out), "it is empty")
	require.NoError(t, replaceable(filepath.Join(out, "absent")))
	require.NoError(t, os.WriteFile(filepath.Join(out, "thesis.tex"), nil, 0o644))
	require.ErrorIs(t, r.make(t.Context(), out), errNotARelease)
	require.FileExists(t, filepath.Join(out, "thesis.tex"))
}

func TestDateComesFromTheEnvironment(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	date, err := dateOf(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Equal(t, testDate, date)
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	_, err = dateOf(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "SOURCE_DATE_EPOCH")
}

// What every real command has: pages of itself and its commands, and completions.
func TestManualOfARealProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: compiles a real program anew")
	}
	source, err := filepath.Abs(top)
	require.NoError(t, err)
	p := packages[1]
	r := release{source: source, version: parseVersion(testVersion), date: testDate, packages: []pack{p}, work: t.TempDir()}
	folders, err := r.writeManual(t.Context())
	require.NoError(t, err)
	names, err := filesBelow(folders["spillway-agent"])
	require.NoError(t, err)
	require.Equal(t, []string{"bash/spillway-agent", "fish/spillway-agent.fish", "man/spillway-agent.1", "zsh/_spillway-agent"}, names)
	page, err := os.ReadFile(filepath.Join(folders["spillway-agent"], "man/spillway-agent.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "token")
	require.NotContains(t, string(page), source, "the page names a folder of this machine")
}
