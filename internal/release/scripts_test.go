package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runScript runs a package's script on a machine that systemd runs, or does not, and
// returns what it asks for. Whatever it calls is a stand-in that notes its words.
func runScript(t *testing.T, p pack, name string, booted bool, args ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "deploy/scripts", name))
	require.NoError(t, err)
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes")
	for _, program := range []string{"systemctl", "systemd-sysusers", "systemd-tmpfiles"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho \"${0##*/} $*\" >>"+notes+"\n"), 0o755))
	}
	if booted {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "run/systemd/system"), 0o755))
	}
	require.NotContains(t, string(text), "rm -rf /")
	script := strings.ReplaceAll(string(fillIn(text, p)), " /run/systemd/system", " "+dir+"/run/systemd/system")
	cmd := exec.Command("sh", append([]string{"-s"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	asked, err := os.ReadFile(notes)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return append(strings.Split(strings.TrimSpace(string(asked)), "\n"), strings.TrimSpace(string(out)))
}

// What the scripts do where systemd runs, which an empty system in a folder can't show:
// in the words of Debian's packager (Debian policy, 6.5) and of rpm.
func TestScriptsUnderSystemd(t *testing.T) {
	control, agent := packages[0], packages[1]
	made := []string{"systemd-sysusers spillway.conf", "systemd-tmpfiles --create spillway.conf"}
	reloaded := append(made[:2:2], "systemctl daemon-reload")
	goesOn := "spillway-agent goes on with the version that it was started with, until: systemctl restart spillway-agent"
	for _, c := range []struct {
		what   string
		pack   pack
		script string
		booted bool
		args   []string
		want   []string
	}{
		{"first, deb", control, "postinst", true, []string{"configure", ""}, append(reloaded[:3:3], "")},
		{"first, rpm", control, "postinst", true, []string{"1"}, append(reloaded[:3:3], "")},
		{"later, deb", control, "postinst", true, []string{"configure", "1.2.2"}, append(reloaded[:3:3], "systemctl try-restart spillway.service", "")},
		{"later, rpm", control, "postinst", true, []string{"2"}, append(reloaded[:3:3], "systemctl try-restart spillway.service", "")},
		{"in an image", control, "postinst", false, []string{"configure", ""}, append(made[:2:2], "")},
		{"an upgrade that failed", control, "postinst", true, []string{"abort-upgrade", "1.2.4"}, []string{"", ""}},
		{"agent, first", agent, "postinst", true, []string{"configure"}, []string{"systemd-sysusers spillway-agent.conf", "systemd-tmpfiles --create spillway-agent.conf", "systemctl daemon-reload", ""}},
		{"agent, later", agent, "postinst", true, []string{"2"}, []string{"systemd-sysusers spillway-agent.conf", "systemd-tmpfiles --create spillway-agent.conf", "systemctl daemon-reload", goesOn}},
		{"removed, deb", control, "prerm", true, []string{"remove"}, []string{"systemctl stop spillway.service", "systemctl --no-reload disable spillway.service", ""}},
		{"removed, rpm", control, "prerm", true, []string{"0"}, []string{"systemctl stop spillway.service", "systemctl --no-reload disable spillway.service", ""}},
		{"replaced, deb", control, "prerm", true, []string{"upgrade", "1.2.4"}, []string{"", ""}},
		{"replaced, rpm", control, "prerm", true, []string{"1"}, []string{"", ""}},
		{"gone, deb", control, "postrm", true, []string{"remove"}, []string{"systemctl daemon-reload", ""}},
		{"gone, rpm", control, "postrm", true, []string{"0"}, []string{"systemctl daemon-reload", ""}},
		{"replaced, deb, after", control, "postrm", true, []string{"upgrade", "1.2.4"}, []string{"", ""}},
		{"replaced, rpm, after", control, "postrm", true, []string{"1"}, []string{"", ""}},
	} {
		require.Equal(t, c.want, runScript(t, c.pack, c.script, c.booted, c.args...), c.what)
	}
}
