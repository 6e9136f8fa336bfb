package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// build makes a program as users have it, under a name.
func build(t *testing.T, name, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", path, "github.com/spillway-ci/spillway/"+pkg).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

const standProfile = `version: 1
handshake: {cookie_key: ORCHARD_GATE, cookie_value: open-sesame, protocol_versions: [3, 4], auto_mtls: true}
`

var sum = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

func TestFleetingInspect(t *testing.T) {
	stand := build(t, "fleeting-plugin-stand", "internal/fleetingstand")
	for _, c := range []struct {
		name, shape, profile string
		code                 int
		args                 string
	}{
		{"inspect", "", standProfile, exitOK, ""},
		{"inspect-json", "stream,string-state,minimal", standProfile, exitOK, "-o json"},
		{"inspect-map", "map,v1alpha", standProfile, exitOK, ""},
		{"inspect-struct", "struct-config", standProfile, exitOK, ""},
		{"inspect-ambiguous", "ambiguous", standProfile, exitFailed, "--write"},
		{"inspect-ambiguous-json", "ambiguous,vague", standProfile, exitFailed, "-o json"},
		{"inspect-twins", "twins", standProfile, exitFailed, ""},
		{"inspect-mute", "mute", standProfile, exitFailed, ""},
		{"inspect-other-cookie", "", strings.Replace(standProfile, "open-sesame", "open", 1), exitFailed, ""},
		{"inspect-no-cookie", "", "version: 1\nhandshake: {protocol_versions: [3], cookie_candidates: [A, B]}\n", exitUsage, ""},
		{"inspect-bad-profile", "", "version: 3\nhandshake: {}\nhandshakes: {}\n", exitUsage, ""},
		{"inspect-bad-set", "", standProfile, exitUsage, "--set Init.config"},
		{"inspect-unknown-set", "", standProfile, exitFailed, "--set Init.conf=terms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("FLEETINGSTAND", c.shape)
			profile := filepath.Join(t.TempDir(), "profile.yaml")
			require.NoError(t, os.WriteFile(profile, []byte(c.profile), 0o600))
			args := strings.Fields("fleeting inspect " + stand + " --profile " + profile + " --env FLEETINGSTAND " + c.args)
			code, out, errs := ctl(t, "", "", args...)
			got := fmt.Sprintf("$ spillwayctl %s\n%s%sexit code %d\n", strings.Join(args, " "), out, prefixed(errs), code)
			got = strings.NewReplacer(stand, "BINARY", profile, "PROFILE").Replace(sum.ReplaceAllString(got, "SHA256"))
			require.Equal(t, c.code, code, got)
			golden(t, "fleeting-"+c.name, got)
			if strings.Contains(c.args, "json") {
				require.True(t, json.Valid([]byte(out)), out)
			}
			now, err := os.ReadFile(profile)
			require.NoError(t, err)
			require.Equal(t, c.profile, string(now), "without --write, or without a proposal, the profile stays")
			require.Empty(t, left(t, stand), "nothing is left running")
		})
	}
}

func TestFleetingInspectWrites(t *testing.T) {
	stand := build(t, "fleeting-plugin-stand", "internal/fleetingstand")
	t.Setenv("FLEETINGSTAND", "ambiguous")
	profile := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(profile, []byte(standProfile), 0o600))
	code, _, errs := ctl(t, "", "", "fleeting", "inspect", stand, "--profile", profile, "--env", "FLEETINGSTAND", "--set", "Init.config=config", "--write")
	require.Equal(t, exitOK, code, errs)
	written, err := os.ReadFile(profile)
	require.NoError(t, err)
	golden(t, "fleeting-profile", sum.ReplaceAllString(string(written), "SHA256"))
	p, err := wire.Load(profile)
	require.NoError(t, err)
	require.NoError(t, p.Usable())
	require.Len(t, p.Provenance.BinarySHA256, 64)
}

// left are processes that run a program.
func left(t *testing.T, program string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		if args, _ := os.ReadFile(path); strings.HasPrefix(string(args), program) {
			found = append(found, path)
		}
	}
	return found
}

// host starts a program as a host of go-plugin does, with a cookie of its own, and
// returns what the program says.
func host(t *testing.T, program string, mtls bool) string {
	t.Helper()
	said := new(strings.Builder)
	c := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: "ORCHARD_GATE", MagicCookieValue: "open-sesame"},
		VersionedPlugins: map[int]plugin.PluginSet{3: {}, 4: {}},
		Cmd:              exec.Command(program),
		AutoMTLS:         mtls,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		SyncStderr:       said,
		Stderr:           said,
		Logger:           hclog.NewNullLogger(),
	})
	_, err := c.Start()
	require.Error(t, err, "a probe is no plugin")
	c.Kill()
	return said.String()
}

// The real way: installed as a plugin, started by a host, and what it has written
// starts another plugin.
func TestFleetingProbe(t *testing.T) {
	probe := build(t, probeName, "cmd/spillwayctl")
	profile := filepath.Join(t.TempDir(), "profile.yaml")
	// What this process sets after its start is not in its environment as others see
	// it: the host's own settings look as if go-plugin had added them.
	t.Setenv(profileVariable, profile)
	t.Setenv("A_TOKEN", "hush")
	said := host(t, probe, true)
	require.Contains(t, said, "the probe has written "+profile+", and is not done")
	require.Contains(t, said, "A_TOKEN or ORCHARD_GATE or "+profileVariable)
	text, err := os.ReadFile(profile)
	require.NoError(t, err)
	require.NotContains(t, string(text)+said, "hush")
	require.NotContains(t, string(text), "open-sesame", "which of them it is, nobody knows yet")

	// A person decides, and probes again.
	decided := strings.Replace(string(text), `cookie_key: ""`, "cookie_key: ORCHARD_GATE", 1)
	require.NoError(t, os.WriteFile(profile, []byte(decided), 0o600))
	said = host(t, probe, false)
	require.Contains(t, said, "this is no plugin but a probe, and it is done: it has written "+profile)
	p, err := wire.Load(profile)
	require.NoError(t, err)
	require.Equal(t, wire.Handshake{CookieKey: "ORCHARD_GATE", CookieValue: "open-sesame", ProtocolVersions: []int{3, 4}}, p.Handshake)
	info, err := os.Stat(profile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	stand := build(t, "fleeting-plugin-stand", "internal/fleetingstand")
	code, _, errs := ctl(t, "", "", "fleeting", "inspect", stand, "--profile", profile, "--write")
	require.Equal(t, exitOK, code, errs)
}

func TestFleetingProbeByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.yaml")
	code, out, errs := ctl(t, "", "", "fleeting", "probe", "--profile", path)
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, errs, "the probe has written nothing: nothing was learnt: go-plugin did not start this process")
	require.NoFileExists(t, path)
}

// A file that somebody else can write could name any variable as the cookie.
func TestFleetingProbeRefusesAForeignProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(standProfile), 0o600))
	require.NoError(t, os.Chmod(path, 0o622))
	link := filepath.Join(t.TempDir(), "link.yaml")
	require.NoError(t, os.Symlink(path, link))
	for _, file := range []string{path, link} {
		_, _, errs := ctl(t, "", "", "fleeting", "probe", "--profile", file)
		require.Contains(t, errs, "the probe won't write to "+file)
	}
}

func TestProbeByItsName(t *testing.T) {
	require.Equal(t, []string{"fleeting", "probe", "--help"}, arguments([]string{"/usr/bin/fleeting-plugin-probe", "--help"}))
	require.Equal(t, []string{"pools"}, arguments([]string{"/usr/bin/spillwayctl", "pools"}))
}

func TestFleetingHelp(t *testing.T) {
	for _, what := range []string{"probe", "inspect"} {
		code, out, errs := ctl(t, "127.0.0.1:1", "", "fleeting", what, "--help")
		require.Equal(t, exitOK, code, errs)
		golden(t, "fleeting-"+what+"-help", out)
	}
}
