package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	mainModule = "github.com/spillway-ci/spillway"
	fakePlugin = "spillway-provider-fake"
	// fakeGroup is the group of the made-up cloud.
	fakeGroup = "bench"
	// fakeMax bounds that group [instances].
	fakeMax = 5_000
)

// buildFakePlugin builds the provider plugin of a made-up cloud, from the main
// module, as `make build` does.
func buildFakePlugin(ctx context.Context, dir string) (string, error) {
	golang, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("%w: the go command is not installed, which builds the plugin", errSkipped)
	}
	sources, err := exec.CommandContext(ctx, golang, "list", "-m", "-f", "{{.Dir}}", mainModule).Output()
	if err != nil {
		return "", fmt.Errorf("%w: the sources of %s are not here: run this in their folder internal/bench", errSkipped, mainModule)
	}
	path := filepath.Join(dir, fakePlugin)
	cmd := exec.CommandContext(ctx, golang, "build", "-C", strings.TrimSpace(string(sources)), "-trimpath", "-o", path, "./cmd/plugins/fake")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the plugin: %w\n%s", err, out)
	}
	return path, nil
}

// fakeConfig is a cloud whose instances boot for so long that none registers here.
func fakeConfig() []byte {
	config, err := json.Marshal(map[string]any{"groups": map[string]any{fakeGroup: map[string]any{"boot": "24h", "max": fakeMax}}})
	if err != nil {
		panic(err) // a constant
	}
	return config
}
