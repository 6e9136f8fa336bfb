package terraformtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// MirrorVariable names a filesystem mirror of providers, the folder that has
// registry.terraform.io in it.
const MirrorVariable = "SPILLWAY_TERRAFORM_MIRROR"

// mirrorPlaces are looked at without it: where Terraform itself looks on Linux
// (https://developer.hashicorp.com/terraform/cli/config/config-file#implied-local-mirror-directories),
// and what images have.
var mirrorPlaces = []string{"$HOME/.terraform.d/plugins", "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins", "/opt/*"}

// Mirror is the folder of a mirror that has a provider, such as hashicorp/aws, or
// skips the test: without is what is not tested then.
func Mirror(t testing.TB, provider, without string) string {
	t.Helper()
	places := mirrorPlaces
	if named := os.Getenv(MirrorVariable); named != "" {
		places = []string{named}
	}
	for _, place := range places {
		found, err := filepath.Glob(filepath.Join(os.ExpandEnv(place), "registry.terraform.io", filepath.FromSlash(provider), "*"))
		require.NoError(t, err)
		if len(found) > 0 {
			mirror, _, _ := strings.Cut(found[0], "/registry.terraform.io/")
			return mirror
		}
	}
	t.Skipf("SKIPPED: no mirror of the provider %s (%s names its folder): %s", provider, MirrorVariable, without)
	return ""
}

// runLimit bounds one run of terraform [time]. AWS's provider waits up to a minute for
// what an emulator has done at once.
const runLimit = 5 * time.Minute

// Workspace is a copy of terraform/ in which terraform runs.
type Workspace struct {
	t       testing.TB
	program string
	root    string
	env     []string
}

// New copies terraform/, given by its path, for runs that take their providers from
// mirror; env is added to what terraform sees of the environment, which is little.
func New(t testing.TB, source, mirror string, env ...string) *Workspace {
	t.Helper()
	program := peertest.Program(t, "terraform", "the Terraform modules were not tried")
	dir := t.TempDir()
	w := &Workspace{t: t, program: program, root: filepath.Join(dir, "terraform")}
	copyTree(t, source, w.root)
	settings := filepath.Join(dir, "terraform.rc")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600))
	w.env = append([]string{
		"TF_CLI_CONFIG_FILE=" + settings, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "GOMAXPROCS=2",
	}, env...)
	return w
}

// Path is that of something in the copy.
func (w *Workspace) Path(parts ...string) string {
	return filepath.Join(append([]string{w.root}, parts...)...)
}

// Folders are the modules and examples, without those that need a provider which the
// mirror is not known to have.
func (w *Workspace) Folders(without ...string) (folders []string) {
	w.t.Helper()
	for _, kind := range []string{"modules", "examples"} {
		found, err := filepath.Glob(w.Path(kind, "*"))
		require.NoError(w.t, err)
		for _, dir := range found {
			if !slices.ContainsFunc(without, func(provider string) bool { return w.mentions(dir, provider) }) {
				folders = append(folders, filepath.Join(kind, filepath.Base(dir)))
			}
		}
	}
	return folders
}

// FoldersOf are the modules and examples that need a provider.
func (w *Workspace) FoldersOf(provider string) (folders []string) {
	w.t.Helper()
	others := w.Folders(provider)
	return slices.DeleteFunc(w.Folders(), func(folder string) bool { return slices.Contains(others, folder) })
}

func (w *Workspace) mentions(dir, provider string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.tf"))
	require.NoError(w.t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		require.NoError(w.t, err)
		return bytes.Contains(text, fmt.Appendf(nil, "%q", provider))
	})
}

// Try runs terraform in a folder of the copy and returns what it prints, and its exit
// code.
func (w *Workspace) Try(folder string, args ...string) (out string, code int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit) // longer than a test: it cleans up with it
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Dir, cmd.Env = w.Path(folder), w.env
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// Run is Try for what must succeed.
func (w *Workspace) Run(folder string, args ...string) string {
	w.t.Helper()
	out, code := w.Try(folder, args...)
	require.Zero(w.t, code, "terraform %s in %s:\n%s", strings.Join(args, " "), folder, out)
	return out
}

// Init makes a folder ready.
func (w *Workspace) Init(folder string) {
	w.t.Helper()
	w.Run(folder, "init", "-backend=false", "-input=false", "-no-color")
}

// State is what one run of `terraform test` has made of a folder.
type State struct {
	Resources map[string]map[string]any // by address
	Outputs   map[string]any
}

// resource is one in terraform's JSON:
// https://developer.hashicorp.com/terraform/internals/json-format#values-representation
type resource struct {
	Address string         `json:"address"`
	Values  map[string]any `json:"values"`
}

type module struct {
	Resources []resource `json:"resources"`
	Children  []module   `json:"child_modules"`
}

func (m module) into(resources map[string]map[string]any) {
	for _, r := range m.Resources {
		resources[r.Address] = r.Values
	}
	for _, child := range m.Children {
		child.into(resources)
	}
}

// States runs a file of tests and returns what each run has made, by its name.
func (w *Workspace) States(folder, file string) map[string]State {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, "test", "-json", "-verbose", "-filter="+file)
	cmd.Dir, cmd.Env = w.Path(folder), w.env
	out, err := cmd.Output()
	require.NoError(w.t, err, "terraform test of %s in %s:\n%s", file, folder, out)
	states := map[string]State{}
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var line struct {
			Run   string `json:"@testrun"`
			State *struct {
				Root    module `json:"root_module"`
				Outputs map[string]struct {
					Value any `json:"value"`
				} `json:"outputs"`
			} `json:"test_state"`
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(w.t, states, "no run of %s has made anything", file)
			return states
		}
		require.NoError(w.t, err)
		if line.State == nil {
			continue
		}
		s := State{Resources: map[string]map[string]any{}, Outputs: map[string]any{}}
		line.State.Root.into(s.Resources)
		for name, output := range line.State.Outputs {
			s.Outputs[name] = output.Value
		}
		states[line.Run] = s
	}
}

// copyTree copies files, without what terraform leaves behind.
func copyTree(t testing.TB, source, target string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".terraform" {
			return fs.SkipDir
		}
		place := filepath.Join(target, strings.TrimPrefix(path, source))
		if entry.IsDir() {
			return os.MkdirAll(place, 0o700)
		}
		if strings.HasPrefix(entry.Name(), ".terraform") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(place, text, 0o600)
	}))
}
