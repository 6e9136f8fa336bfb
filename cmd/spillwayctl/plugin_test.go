package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var buildFake = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillwayctl")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fake")
	return path, exec.Command("go", "build", "-o", path, "../plugins/fake").Run()
})

// fakePlugin is a real plugin binary and a configuration for it.
func fakePlugin(t *testing.T) (bin, config string) {
	t.Helper()
	bin, err := buildFake()
	require.NoError(t, err)
	config = filepath.Join(t.TempDir(), "fake.yaml")
	require.NoError(t, os.WriteFile(config, []byte("groups:\n  g: {boot: {p50: 1ms}}\n  full: {boot: {p50: 1ms}, initial: 1}\n"), 0o600))
	return bin, config
}

func TestPluginDescribe(t *testing.T) {
	bin, _ := fakePlugin(t)
	code, out, errs := ctl(t, "", "", "plugin", "describe", bin)
	require.Equal(t, exitOK, code, errs)
	require.Regexp(t, `(?m)^fake \d+\.\d+\.\d+$`, out)
	require.Regexp(t, `(?m)^can: withdraw, protect, `, out)
	require.Regexp(t, `(?m)^groups +object +required$`, out)
	require.Regexp(t, `(?m)^groups\.NAME\.victim +busy_first\|oldest\|random +-$`, out, "references and values")
	require.Regexp(t, `(?m)^groups\.NAME\.price +number +per instance-hour$`, out)

	code, out, _ = ctl(t, "", "", "plugin", "describe", bin, "-o", "json")
	require.Equal(t, exitOK, code)
	var d description
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, "fake", d.Name)
	require.Contains(t, string(d.ConfigSchema), `"$defs"`)
}

func TestPluginCheck(t *testing.T) {
	bin, config := fakePlugin(t)
	code, out, errs := ctl(t, "", "", "plugin", "check", bin, "--config", config, "--group", "g")
	require.Equal(t, exitOK, code, out+errs)
	require.Contains(t, out, "passed   remove_by_name\n")
	require.Contains(t, out, " 0 failed, 0 skipped, 0 declared deviations\n")

	code, out, _ = ctl(t, "", "", "plugin", "check", bin, "--config", config, "--group", "full", "-o", "json")
	require.Equal(t, exitFailed, code)
	var report checkReport
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.False(t, report.OK)
	require.Equal(t, 1, report.Counts["failed"], "a group in use is left alone: %s", out)
}

func TestPluginCheckRefusesNonsense(t *testing.T) {
	bin, config := fakePlugin(t)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("- a list"), 0o600))
	for what, c := range map[string]struct {
		args []string
		want string
	}{
		"no group":         {[]string{bin, "--config", config}, `required flag(s) "group" not set`},
		"no such file":     {[]string{"/no/such/plugin", "--group", "g"}, "no such file"},
		"no program":       {[]string{config, "--group", "g"}, "is not a program"},
		"no plugin":        {[]string{"/bin/true", "--group", "g"}, "starting plugin"},
		"no config file":   {[]string{bin, "--config", "/no/such", "--group", "g"}, "--config"},
		"no object":        {[]string{bin, "--config", bad, "--group", "g"}, "--config"},
		"one instance":     {[]string{bin, "--group", "g", "--instances", "1"}, "use 2 to 20"},
		"no time":          {[]string{bin, "--group", "g", "--settle", "0s"}, "--settle"},
		"unknown variable": {[]string{bin, "--group", "g", "--env", "SPILLWAY_NO_SUCH_VARIABLE"}, "there is no such variable"},
	} {
		t.Run(what, func(t *testing.T) {
			code, _, errs := ctl(t, "", "", append([]string{"plugin", "check"}, c.args...)...)
			require.NotEqual(t, exitOK, code)
			require.Contains(t, errs, c.want)
		})
	}
}
