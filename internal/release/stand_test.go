package main

import (
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With -dist the same tests look at a release that was made of the real programs.
// Without, they make one of a program of five lines, which takes a second.
var (
	distFlag    = flag.String("dist", "", "folder with a release to test instead of one of stand-ins")
	versionFlag = flag.String("of-version", "", "its version, as given to release")
)

const top = "../.."

// testVersion has everything that a version can have.
const testVersion = "v1.2.3-rc.1-4-gabc1234"

var testDate = time.Unix(1_700_000_000, 0).UTC()

// shared is one release of stand-ins for all tests that only look at it.
var shared struct {
	sync.Once
	folder string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.folder != "" {
		_ = os.RemoveAll(shared.folder) // a temporary one: nobody misses the error
	}
	os.Exit(code)
}

// dist is a release for this machine, and the version of it.
func dist(t *testing.T) (string, version) {
	t.Helper()
	if *distFlag != "" {
		folder, err := filepath.Abs(*distFlag)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(folder, sumsFile), "-dist has no release")
		return folder, parseVersion(*versionFlag)
	}
	shared.Do(func() {
		folder, err := os.MkdirTemp("", "spillway-release-")
		require.NoError(t, err)
		shared.folder = folder
		makeSmall(t, filepath.Join(folder, "dist"))
	})
	return filepath.Join(shared.folder, "dist"), parseVersion(testVersion)
}

// makeSmall makes a release whose programs are stand-ins, from a new folder.
func makeSmall(t *testing.T, out string) {
	t.Helper()
	r := release{
		source: smallSource(t), version: parseVersion(testVersion), date: testDate, arches: []string{runtime.GOARCH},
		packages: smallPackages(), image: "spillway-control-plane", log: io.Discard,
	}
	require.NoError(t, r.make(t.Context(), out))
}

func smallSource(t *testing.T) string {
	t.Helper()
	source := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(source, "deploy"), os.DirFS(filepath.Join(top, "deploy"))))
	for from, to := range map[string]string{
		filepath.Join(top, "LICENSE"): "LICENSE", filepath.Join(top, "config/example.yaml"): "config/example.yaml", "testdata/small/main.go.txt": "cmd/small/main.go",
	} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(source, to)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(source, to), text, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(source, "go.mod"), []byte("module small\n\ngo 1.26.0\n"), 0o644))
	return source
}

func smallPackages() []pack {
	all := slices.Clone(packages)
	for i := range all {
		all[i].programs = slices.Clone(all[i].programs)
		for j := range all[i].programs {
			all[i].programs[j].from, all[i].programs[j].command = "./cmd/small", ""
		}
	}
	return all
}

// one is the only file of a folder with a name like pattern.
func one(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

// installedProgram returns the path of a program, or skips the test: without is what
// is not tested then.
func installedProgram(t *testing.T, name, without string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not installed: %s", name, without)
	}
	return path
}

// output runs a program that must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	return string(out)
}
