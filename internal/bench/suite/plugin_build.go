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
	fakePlugin = "./cmd/plugins/fake"
	asgPlugin  = "./cmd/plugins/ec2asg"
	servePlane = "./cmd/controlplane"
	// fakeGroup is the group of the made-up cloud.
	fakeGroup = "bench"
	// fakeMax bounds that group [instances].
	fakeMax = 5_000
)

// buildFakePlugin builds the provider plugin of a made-up cloud and returns its path.
func buildFakePlugin(ctx context.Context, dir string) (string, error) {
	return filepath.Join(dir, filepath.Base(fakePlugin)), buildPrograms(ctx, dir, fakePlugin)
}

// buildPrograms builds commands of the main module into dir, as `make build` does:
// what they link (cloud SDKs) is then no dependency of this module.
func buildPrograms(ctx context.Context, dir string, packages ...string) error {
	golang, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("%w: the go command is not installed, which builds what is measured", errSkipped)
	}
	sources, err := exec.CommandContext(ctx, golang, "list", "-m", "-f", "{{.Dir}}", mainModule).Output()
	if err != nil {
		return fmt.Errorf("%w: the sources of %s are not here: run this in their folder internal/bench", errSkipped, mainModule)
	}
	args := append([]string{"build", "-C", strings.TrimSpace(string(sources)), "-trimpath", "-o", dir + string(filepath.Separator)}, packages...)
	if out, err := exec.CommandContext(ctx, golang, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	return nil
}

// fakeConfig is a cloud whose instances boot for so long that none registers here.
func fakeConfig() []byte {
	config, err := json.Marshal(map[string]any{"groups": map[string]any{fakeGroup: map[string]any{"boot": "24h", "max": fakeMax}}})
	if err != nil {
		panic(err) // a constant
	}
	return config
}
