package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/local"
)

func TestContract(t *testing.T) {
	agent, _ := stub(t, sleeps)
	providertest.Run(t, func(t *testing.T) providertest.Subject {
		return providertest.Subject{
			Provider: local.New(), Config: object(t, settings(t, agent)), Group: "linux", MaxInstances: 4, Settle: within,
		}
	})
}

// What users have: the built plugin in a process of its own, and the real agent.
func TestContractOfTheBuiltPluginWithTheRealAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the plugin and the agent")
	}
	plugin := build(t, "spillway-provider-local", "github.com/spillway-ci/spillway/cmd/plugins/local")
	c := settings(t, build(t, "spillway-agent", "github.com/spillway-ci/spillway/cmd/agent"))
	_, c["router"] = startRouter(t, "sleep 1000")
	c["boot_delay"], c["stop_grace"] = "50ms", "1s"
	providertest.RunBinary(t, plugin, providertest.Subject{
		Config: object(t, c), Group: "linux", MaxInstances: 3, Settle: within,
	}, "PATH="+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
}

// build makes a program as users have it.
func build(t *testing.T, name, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	output, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput()
	require.NoError(t, err, string(output))
	return path
}
