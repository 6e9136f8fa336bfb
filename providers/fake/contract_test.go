package fake_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/fake"
)

func TestContract(t *testing.T) {
	for name, config := range map[string]string{
		"no boot time":    `{"groups": {"ci": {"boot": "0s", "max": 10}}}`,
		"slow and unsure": `{"groups": {"ci": {"boot": {"p50": "20ms", "p95": "60ms"}, "max": 10, "visible_after": "20ms"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(*testing.T) providertest.Subject {
				return providertest.Subject{
					Provider: fake.New(), Config: []byte(config), Group: "ci", MaxInstances: 4, Settle: time.Minute,
				}
			})
		})
	}
}

// TestPlugin holds the process that the control plane starts to the same contract.
func TestPlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary")
	}
	plugin := filepath.Join(t.TempDir(), "spillway-provider-fake")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", plugin, "../../cmd/plugins/fake")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	providertest.RunBinary(t, plugin, providertest.Subject{
		Config: []byte(`{"groups": {"ci": {"boot": "0s", "max": 10}}}`), Group: "ci", MaxInstances: 4, Settle: time.Minute,
	})
}
