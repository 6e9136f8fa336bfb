package terraformtest_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// The providers' names in configurations.
const (
	hashicorpAWS    = "hashicorp/aws"
	hashicorpGoogle = "hashicorp/google"
)

var source = filepath.Join("..", "..", "terraform")

// aws is a copy whose runs know AWS's provider.
func aws(t *testing.T, env ...string) *terraformtest.Workspace {
	t.Helper()
	return terraformtest.New(t, source, terraformtest.Mirror(t, hashicorpAWS, "the modules for AWS were not tried"), env...)
}

func TestFormat(t *testing.T) {
	w := terraformtest.New(t, source, t.TempDir())
	out, code := w.Try(".", "fmt", "-check", "-recursive", "-diff", "-no-color")
	require.Zero(t, code, "not as terraform fmt writes it:\n%s", out)
}

// Every module and example is valid, and its own tests pass with AWS mocked.
func TestModulesAndExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform")
	}
	w := aws(t)
	folders := w.Folders(hashicorpGoogle)
	require.GreaterOrEqual(t, len(folders), 2)
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			w.Init(folder)
			w.Run(folder, "validate", "-no-color")
			out := w.Run(folder, "test", "-no-color")
			require.Contains(t, out, " passed, 0 failed.")
			require.False(t, strings.Contains(out, "Success! 0 passed"), "%s has no tests", folder)
		})
	}
}

// What spillway-config writes is what Spillway reads.
func TestConfigurationsAreValid(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform")
	}
	w := aws(t)
	for _, from := range []struct{ folder, tests, output string }{
		{"modules/spillway-config", "tests/config.tftest.hcl", "yaml"},
		{"examples/aws", "tests/fleet.tftest.hcl", "spillway_yaml"},
	} {
		w.Init(from.folder)
		for run, s := range w.States(from.folder, from.tests) {
			text, ok := s.Outputs[from.output].(string)
			if !ok {
				continue // a plan that is refused
			}
			cfg, err := config.Parse(run, []byte(text))
			require.NoError(t, err, "%s\n%s", run, text)
			require.NotEmpty(t, cfg.Pools)
		}
	}
}
