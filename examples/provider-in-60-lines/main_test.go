package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
)

// The example keeps the whole contract, as a process of its own.
func TestContract(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "provider")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	script, err := filepath.Abs("vms.sh")
	require.NoError(t, err)
	config, err := json.Marshal(map[string]any{"script": script, "groups": map[string]int{"g": 5}})
	require.NoError(t, err)
	providertest.RunBinary(t, bin, providertest.Subject{Config: config, Group: "g", Settle: 30 * time.Second},
		"VMS="+t.TempDir(), "PATH="+os.Getenv("PATH"))
}

func TestItHas60Lines(t *testing.T) {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	lines := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	require.LessOrEqual(t, lines, 60)
}
