package python_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers"
)

// interpreter is a Python that has grpcio, or the test is skipped.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import grpc, google.protobuf").Run() == nil {
			return name
		}
	}
	t.Skip("SKIPPED: no python3 with grpcio and protobuf, so no plugin in another language than Go was tried")
	return ""
}

// plugin makes the program that the README tells to make, and its configuration.
func plugin(t *testing.T) (bin string, config []byte) {
	t.Helper()
	python := interpreter(t)
	dir := t.TempDir()
	out, err := exec.Command("protoc", "-I", "../../proto", "--python_out", dir, "spillway/provider/v1/provider.proto").CombinedOutput()
	require.NoError(t, err, string(out))
	script, err := filepath.Abs("provider.py")
	require.NoError(t, err)
	bin = filepath.Join(dir, "provider")
	text := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=%s PYTHONDONTWRITEBYTECODE=1 exec %s %s\n", dir, python, script)
	require.NoError(t, os.WriteFile(bin, []byte(text), 0o700)) //nolint:gosec // a program
	config, err = json.Marshal(map[string]any{"folder": t.TempDir(), "groups": map[string]int{"g": 5}})
	require.NoError(t, err)
	return bin, config
}

func TestContract(t *testing.T) {
	bin, config := plugin(t)
	providertest.RunBinary(t, bin, providertest.Subject{Config: config, Group: "g", Settle: 30 * time.Second},
		"PLUGIN_UNIX_SOCKET_DIR="+t.TempDir(), "PATH="+os.Getenv("PATH"))
}

// The control plane's own host runs it like any other plugin, and its typed errors
// arrive as they were meant.
func TestTheHostRunsIt(t *testing.T) {
	bin, config := plugin(t)
	host, err := providers.NewHost(providers.Options{})
	require.NoError(t, err)
	p, err := host.Open(t.Context(), providers.Spec{Name: "python", Path: bin, Config: config})
	require.NoError(t, err)
	group := p.Group("pool", "g")
	n, err := group.SetDesired(t.Context(), 2, 0)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = group.SetDesired(t.Context(), 3, 1)
	require.EqualError(t, err, "conflict: desired is 2")
	all, err := group.ListInstances(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.NoError(t, host.Close(t.Context()))
}
