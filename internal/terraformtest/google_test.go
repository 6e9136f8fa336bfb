package terraformtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// The modules and the example for Google, with a provider that knows arguments only.
func TestGoogle(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds a provider and runs terraform")
	}
	w := terraformtest.New(t, source, terraformtest.GoogleMirror(t, "googleschema"))
	folders := w.FoldersOf(hashicorpGoogle)
	require.Equal(t, []string{"modules/gcp-control-plane", "modules/gcp-runner-pool", "examples/gcp"}, folders)
	for _, folder := range folders {
		w.Init(folder)
		w.Run(folder, "validate", "-no-color")
		out := w.Run(folder, "test", "-no-color")
		require.Contains(t, out, " passed, 0 failed.")
		require.NotContains(t, out, "Success! 0 passed", "%s has no tests", folder)
	}
	pools := w.States("modules/gcp-runner-pool", "tests/boot.tftest.hcl")
	replicas := w.States("modules/gcp-control-plane", "tests/control_plane.tftest.hcl")
	t.Run("startup script", func(t *testing.T) { startupScripts(t, pools, replicas["control_plane"]) })
	t.Run("roles", func(t *testing.T) { roles(t, pools, replicas["control_plane"]) })
	t.Run("pool and control plane need each other", func(t *testing.T) {
		addTestdata(t, w, "google-observe", "main.tf", "tests/fleet.tftest.hcl")
		w.Init("google-observe")
		text, ok := w.States("google-observe", "tests/fleet.tftest.hcl")["apply"].Outputs["yaml"].(string)
		require.True(t, ok)
		_, err := config.Parse("observe", []byte(text))
		require.NoError(t, err, "%s", text)
	})
	t.Run("configuration", func(t *testing.T) {
		text, ok := w.States("examples/gcp", "tests/fleet.tftest.hcl")["fleet"].Outputs["spillway_yaml"].(string)
		require.True(t, ok)
		cfg, err := config.Parse("fleet", []byte(text))
		require.NoError(t, err, "%s", text)
		require.Len(t, cfg.Pools, 2)
	})
	t.Run("quick start", func(t *testing.T) { quickStart(t, w) })
}

// The provider must be able to refuse what Google's would refuse.
func TestGoogleArgumentsAreKnown(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds a provider and runs terraform")
	}
	w := terraformtest.New(t, source, terraformtest.GoogleMirror(t, "googleschema"))
	require.NoError(t, os.MkdirAll(w.Path("wrong"), 0o700))
	require.NoError(t, os.WriteFile(w.Path("wrong", "main.tf"), []byte(`
terraform {
  required_providers {
    google = { source = "hashicorp/google" }
  }
}
resource "google_compute_region_instance_group_manager" "a" {
  name               = "a"
  base_instance_name = "a"
  targetsize         = 3
}
`), 0o600))
	w.Init("wrong")
	out, code := w.Try("wrong", "validate", "-no-color")
	require.NotZero(t, code)
	require.Contains(t, out, `An argument named "targetsize" is not expected here.`)
	require.Contains(t, out, `Insufficient version blocks`)
}

// mocks are the beginning of a file of tests: what stands before its variables.
var mocks = regexp.MustCompile(`(?s)^.*?\n(mock_provider .*?\n)variables \{`)

// quickStart tries the values that the quick start tells people to write.
func quickStart(t *testing.T, w *terraformtest.Workspace) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "quickstart-gcp.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "```hcl\n")
	require.True(t, found, "the page has no values")
	values, _, _ := strings.Cut(after, "```")
	text, err := os.ReadFile(w.Path("examples", "gcp", "tests", "fleet.tftest.hcl"))
	require.NoError(t, err)
	head := mocks.FindStringSubmatch(string(text))
	require.NotNil(t, head)
	file := head[1] + "variables {\n" + values + "}\n\nrun \"page\" {\n  assert {\n    condition     = output.api == \"spillway.example.com:7701\"\n    error_message = \"not the page's values\"\n  }\n}\n"
	require.NoError(t, os.WriteFile(w.Path("examples", "gcp", "tests", "page.tftest.hcl"), []byte(file), 0o600))
	require.Contains(t, w.Run("examples/gcp", "test", "-no-color", "-filter=tests/page.tftest.hcl"), "Success! 1 passed, 0 failed.")
}

// C27, C31, C33: what no account can show of the module is in its text.
func TestC33_GoogleGroupsAreLeftAlone(t *testing.T) {
	group := read(t, "gcp-runner-pool/group.tf")
	require.Contains(t, group, "ignore_changes = [target_size]")
	require.Contains(t, group, `"OPPORTUNISTIC"`)
	require.Regexp(t, `instance_redistribution_type = "NONE"`, group)
	files, err := filepath.Glob(filepath.Join(source, "modules", "gcp-*", "*.tf"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text := read(t, strings.TrimPrefix(file, filepath.Join(source, "modules")))
		require.NotRegexp(t, `resource "google_compute_(region_)?autoscaler"|(?m)^\s*"?(ssh-keys|sshKeys)"?\s*=|resource "google_\w+_iam_(binding|policy)"|"roles/`, text, "%s: an autoscaler, a key, a right of others taken away, or a role that Google may widen", file)
		if strings.Contains(file, "gcp-runner-pool") {
			require.NotRegexp(t, `(?m)^\s*target_size\s*=|auto_healing_policies|standby_policy|stateful_`, text, file)
		}
	}
}

// read is a file of the modules.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "modules", name))
	require.NoError(t, err)
	return string(text)
}
