package terraformtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// pools are what the runs of aws-runner-pool/tests/boot.tftest.hcl have made, by mode.
func pools(t *testing.T) map[string]terraformtest.State {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform")
	}
	w := aws(t)
	const folder = "modules/aws-runner-pool"
	w.Init(folder)
	return w.States(folder, "tests/boot.tftest.hcl")
}

// controlPlaneState is what the run of aws-control-plane has made.
func controlPlaneState(t *testing.T) terraformtest.State {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED, with -short: runs terraform")
	}
	w := aws(t)
	const folder = "modules/aws-control-plane"
	w.Init(folder)
	return w.States(folder, "tests/control_plane.tftest.hcl")["control_plane"]
}

var (
	pipedToShell = regexp.MustCompile(`\|\s*(sudo\s+)?(ba|da|z)?sh\b`)
	secretLike   = regexp.MustCompile(`glrt-|AKIA[0-9A-Z]{16}|BEGIN [A-Z ]*PRIVATE KEY`)
)

// What an instance runs at its first boot.
func TestUserData(t *testing.T) {
	states := pools(t)
	require.Len(t, states, 3)
	for mode, s := range states {
		t.Run(mode, func(t *testing.T) {
			script := userData(t, s)
			t.Run("boot", func(t *testing.T) { boot(t, mode, script) })
		})
	}
	// The checks must be able to fail.
	require.Regexp(t, pipedToShell, "curl https://example.com/install | sudo bash")
	require.Regexp(t, secretLike, "token=glrt-x")
}

// The control plane's is held to the same rules.
func TestUserDataOfReplicas(t *testing.T) {
	_ = userData(t, controlPlaneState(t))
}

// userData is a script that keeps to the rules.
func userData(t *testing.T, s terraformtest.State) string {
	t.Helper()
	script, ok := s.Outputs["user_data"].(string)
	require.True(t, ok)
	require.LessOrEqual(t, len(script), 16384, "AWS takes 16 KiB of user data")
	checkScript(t, script)
	return script
}

// checkScript holds what a machine runs at its boot to the rules: it has no secret in it,
// runs nothing that was not checked, and shellcheck finds nothing wrong with it.
func checkScript(t *testing.T, script string) {
	t.Helper()
	require.NotRegexp(t, pipedToShell, script)
	require.NotRegexp(t, secretLike, script)
	require.NotContains(t, script, "not-a-real-token", "the auth token of Redis")
	require.NotContains(t, script, "eval ")
	require.Equal(t, 1, strings.Count(script, "--proto '=https'"), "all downloads are in one place")
	t.Run("shellcheck", func(t *testing.T) {
		program := peertest.Program(t, "shellcheck", "user data was not looked at by it")
		check := exec.Command(program, "-")
		check.Stdin = strings.NewReader(script)
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// payloads are what the URLs of boot.tftest.hcl lead to: their SHA-256 are in it.
var payloads = map[string]string{"spillway-agent": "test", "gitlab-runner": "test2"}

const secret = `{"runner_token": "a-token", "ca": "CA\n", "cert": "CERT", "key": "KEY", "gitlab_token": "glrt-\"x"}`

// boot runs user data on a machine that is a folder: absolute paths lead into it, and
// what would change a real machine is a note in a file.
func boot(t *testing.T, mode, script string) {
	m := newMachine(t, script)
	m.run(t, true)
	notes := m.read(t, "notes")
	require.Contains(t, notes, "systemctl daemon-reload\n")
	want := map[string][]string{
		"orchestrate": {"spillway-agent"}, "observe": {"spillway-agent", "gitlab-runner"}, "route": {"gitlab-runner"},
	}[mode]
	for name, payload := range payloads {
		unit := filepath.Join("etc/systemd/system", name+".service")
		if !slices.Contains(want, name) {
			require.NoFileExists(t, filepath.Join(m.root, unit))
			continue
		}
		require.Equal(t, payload, m.read(t, filepath.Join("usr/local/bin", name)))
		require.Contains(t, m.read(t, unit), "Wants=spillway-secret.service")
		require.Regexp(t, `systemctl enable --now spillway-secret.timer .*`+name+`\.service`, notes)
	}
	m.readSecret(t)
	require.Equal(t, "a-token\n", m.read(t, "run/spillway/runner_token"))
	require.Equal(t, "CERT\n", m.read(t, "run/spillway/cert"))
	info, err := os.Stat(filepath.Join(m.root, "run/spillway/key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	if mode == "orchestrate" {
		require.Contains(t, m.read(t, "etc/systemd/system/spillway-agent.service"), "User=spillway\n")
		require.NoFileExists(t, filepath.Join(m.root, "run/spillway/gitlab-runner.toml"))
		return
	}
	toml := m.read(t, "run/spillway/gitlab-runner.toml")
	require.Contains(t, toml, `token = "glrt-\"x"`)
	require.Contains(t, m.read(t, "etc/spillway/gitlab-runner.toml"), "@TOKEN@", "the token is in memory only")
	require.Equal(t, mode == "route", strings.Contains(toml, `spillway-instance = "i-0123456789abcdef0"`))
	require.Equal(t, mode == "observe", strings.Contains(toml, `listen_address = ":9252"`), "only with metrics_source_sg")
}

// A download with another checksum ends the boot before it is installed.
func TestUserDataRefusesAnotherBinary(t *testing.T) {
	script, ok := pools(t)["orchestrate"].Outputs["user_data"].(string)
	require.True(t, ok)
	m := newMachine(t, script)
	m.write(t, "downloads/spillway-agent", "somebody else's")
	m.run(t, false)
	require.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/spillway-agent"))
	require.NotContains(t, m.read(t, "notes"), "systemctl")
}

// machine is a folder that looks like a machine to a script.
type machine struct {
	root, script string
	env          []string
}

// stand-ins for the programs that reach out of the folder.
var standIns = map[string]string{
	"useradd":   `echo "useradd $*" >>"$ROOT/notes"`,
	"systemctl": `echo "systemctl $*" >>"$ROOT/notes"`,
	"curl": `out=""; for last; do :; done
while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done
case $last in
*/api/token) echo t ;;
*/meta-data/instance-id) echo i-0123456789abcdef0 ;;
https://*) cp "$ROOT/downloads/${last##*/}" "$out" ;;
*) exit 22 ;;
esac`,
	"aws": `cat "$ROOT/secret"`,
}

func newMachine(t *testing.T, script string) *machine {
	t.Helper()
	root := t.TempDir()
	m := &machine{root: root, env: []string{"ROOT=" + root, "PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH"), "TMPDIR=" + root}}
	for name, body := range standIns {
		m.write(t, filepath.Join("bin", name), "#!/bin/bash\n"+body+"\n")
		require.NoError(t, os.Chmod(filepath.Join(root, "bin", name), 0o700)) //nolint:gosec // a program
	}
	for name, payload := range payloads {
		m.write(t, filepath.Join("downloads", name), payload)
	}
	for _, dir := range []string{"usr/local/bin", "etc/systemd/system", "run/spillway", "var/log"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	m.write(t, "secret", secret)
	m.write(t, "notes", "")
	m.script = regexp.MustCompile(`(^|[\s="'>])(/(?:usr/local|etc|run|var|opt)/)`).ReplaceAllString(script, "${1}"+root+"${2}")
	return m
}

func (m *machine) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(m.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, name))
	require.NoError(t, err)
	return string(text)
}

func (m *machine) run(t *testing.T, well bool) {
	t.Helper()
	cmd := exec.Command("bash", "-s")
	cmd.Stdin, cmd.Env = strings.NewReader(m.script), m.env
	out, err := cmd.CombinedOutput()
	require.Equal(t, well, err == nil, "%s", out)
}

// readSecret does what spillway-secret.service does, for the user that runs the test.
func (m *machine) readSecret(t *testing.T) {
	t.Helper()
	python := interpreter(t)
	who, err := exec.Command("id", "-un").Output()
	require.NoError(t, err)
	reader := filepath.Join(m.root, "usr/local/lib/spillway/read-secret")
	if strings.TrimSpace(string(who)) != "root" { // who alone may give files away
		text := strings.Replace(m.read(t, "usr/local/lib/spillway/read-secret"), "os.chown(part, uid, gid)", "pass", 1)
		m.write(t, "usr/local/lib/spillway/read-secret", text)
	}
	for range 2 { // and again, over what is there
		cmd := exec.Command(python, reader, filepath.Join(m.root, "run/spillway"), strings.TrimSpace(string(who)), "eu-central-1", "arn")
		cmd.Env = m.env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "a-token")
	}
}

// interpreter is Python itself: what stands in the path may be a wrapper that changes
// the path.
func interpreter(t *testing.T) string {
	t.Helper()
	program := peertest.Program(t, "python3", "the reader of the secret was not run")
	out, err := exec.Command(program, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		peertest.Broken(t, "%s does not run: %v", program, err)
	}
	return strings.TrimSpace(string(out))
}
