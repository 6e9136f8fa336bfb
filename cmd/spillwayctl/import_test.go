package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

const managerTOML = `
[[runners]]
  name = "linux"
  id = 42
  url = "https://gitlab.example.com"
  token = "glrt-hunter2"
  executor = "docker-autoscaler"
  [runners.autoscaler]
    plugin = "googlecloud"
    max_instances = 4
    [runners.autoscaler.plugin_config]
      name = "mig"
      project = "p"
      zone = "z-1"
`

func TestImport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(managerTOML), 0o600))

	code, out, errs := ctl(t, "", "", "import", path)
	require.Equal(t, exitOK, code, errs)
	c, err := config.Parse("out", []byte(out+"plugin_dir: /p\n"))
	require.NoError(t, err)
	require.Equal(t, 4, c.Pools[0].Policy.Max)
	require.Contains(t, errs, "1 pools; 1 notes\n- linux: runners.executor: docker-autoscaler")

	code, fromStdin, _ := ctl(t, "", managerTOML, "import", "-")
	require.Equal(t, exitOK, code)
	require.Equal(t, out, fromStdin)

	written := filepath.Join(t.TempDir(), "spillway.yaml")
	code, asJSON, _ := ctl(t, "", managerTOML, "import", "-", "-o", "json", "-w", written)
	require.Equal(t, exitOK, code)
	var got imported
	require.NoError(t, json.Unmarshal([]byte(asJSON), &got))
	file, err := os.ReadFile(written)
	require.NoError(t, err)
	require.Equal(t, string(file), got.YAML)
	require.Len(t, got.Notes, 1)
	require.NotContains(t, out+asJSON+errs, "hunter2")
}

func TestImportMistakes(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"import"}, "one FILE"},
		{"", []string{"import", "/does/not/exist"}, "no such file"},
		{"concurrent = 1", []string{"import", "-"}, "no runner with an [runners.autoscaler] section"},
		{"= hunter2", []string{"import", "-"}, "line 1"},
		{managerTOML, []string{"import", "-", "-w", taken}, "exists already"},
	} {
		code, _, errs := ctl(t, "", c.stdin, c.args...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, c.want)
		require.NotContains(t, errs, "hunter2")
	}
}
