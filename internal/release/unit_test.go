package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func uintText(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// mostExposed is what systemd-analyze security may say of a unit, in tenths of its
// points from 0 to 10. The agent's jobs need nearly all that a user may do.
var mostExposed = map[string]string{"spillway": "15", "spillway-agent": "90"}

// requireUnitIsSound asks systemd what it thinks of an installed unit.
func requireUnitIsSound(t *testing.T, s system, p pack) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("SKIPPED: systemd-analyze is not installed: units were not verified")
		return
	}
	unit := p.unit + ".service"
	// The units name a program of every Linux, which this empty system has not.
	require.NoError(t, os.Mkdir(s.path("bin"), 0o755))
	require.NoError(t, os.WriteFile(s.path("bin/kill"), nil, 0o755))
	defer func() { require.NoError(t, os.RemoveAll(s.path("bin"))) }()
	verify := exec.Command(analyze, "verify", "--root="+s.root, "--man=no", "--recursive-errors=no", unit)
	out, err := verify.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, strings.TrimSpace(string(out)))
	output(t, analyze, "security", "--no-pager", "--offline=yes", "--root="+s.root, "--threshold="+mostExposed[p.unit], unit)
}

// Each of these takes sudo, or containers without root, from jobs: they imply
// NoNewPrivileges for a user other than root (systemd.exec(5)).
func TestTheAgentsUnitLeavesJobsTheirRights(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "deploy/systemd/spillway-agent.service"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "=")
		require.NotContains(t, []string{
			"NoNewPrivileges", "DynamicUser", "LockPersonality", "MemoryDenyWriteExecute", "PrivateDevices", "ProtectClock", "ProtectHostname",
			"ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime",
			"RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter", "SystemCallLog", "PrivateTmp", "ProtectSystem", "PrivateUsers",
			"CapabilityBoundingSet",
		}, name)
	}
}

// The configuration that is installed is valid once its example is taken.
func TestInstalledConfigurationIsValid(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "deploy/etc/spillway.yaml"))
	require.NoError(t, err)
	example := strings.ReplaceAll(string(text), "\n#|", "\n")
	require.NotEqual(t, string(text), example)
	requireValid(t, example)
}

// requireValid asks the control plane what it thinks of a configuration.
func requireValid(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	validate := exec.Command("go", "run", "./cmd/controlplane", "validate", file)
	validate.Dir = top
	out, err := validate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "is valid: 1 pools")
}
