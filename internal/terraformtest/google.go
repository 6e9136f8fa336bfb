package terraformtest

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// googleVersion is the version of hashicorp/google whose arguments googleschema knows.
const googleVersion = "6.50.0"

// GoogleMirror makes a mirror with the stand-in for hashicorp/google, of its folder.
func GoogleMirror(t testing.TB, source string) string {
	t.Helper()
	mirror := t.TempDir()
	// https://developer.hashicorp.com/terraform/cli/config/config-file#filesystem_mirror (unpacked layout)
	program := filepath.Join(mirror, "registry.terraform.io", "hashicorp", "google", googleVersion,
		runtime.GOOS+"_"+runtime.GOARCH, "terraform-provider-google_v"+googleVersion)
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = source
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return mirror
}
