package terraformtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// replicaSettings are what the module writes before its script.
const replicaSettings = `#!/bin/bash
CONFIG='/spillway/spillway/spillway.yaml'
CONTROLPLANE_SHA256='9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'
CONTROLPLANE_URL='https://artifacts.example.com/controlplane'
LOG_GROUP='/spillway/control-plane/spillway'
PLUGIN_SHA256='60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752'
PLUGIN_URL='https://artifacts.example.com/spillway-provider-ec2asg'
REGION='eu-central-1'
REPLICA_DOMAIN='eu-central-1.compute.internal'
SECRET_ARN='arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/control-plane-AbCdEf'
`

const replicaConfig = `listen: {runners: "127.0.0.1:7700", api: "127.0.0.1:7701", metrics: "127.0.0.1:7702"}
debug: {advertise: "@REPLICA@:7701"}
providers: {aws: {plugin: /usr/lib/spillway/plugins/spillway-provider-ec2asg}}
pools: [{name: linux, capability: {tags: [linux]}, provider: aws, runner_token: {file: /run/spillway/tokens/linux}}]
`

// replicaScript is what a replica runs, without terraform.
func replicaScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "modules", "aws-control-plane", "files", "boot.sh"))
	require.NoError(t, err)
	return replicaSettings + string(text)
}

// A replica boots on a machine that is a folder: the settings, as the module and as AWS
// have them, become files for its user, and its own name is in the configuration.
func TestReplicaBoots(t *testing.T) {
	m := newReplica(t, replicaScript(t))
	m.write(t, "bin/aws", "#!/bin/bash\ncase $1 in\nsecretsmanager) cat \"$ROOT/secret\" ;;\nssm) cat \"$ROOT/config\" ;;\nesac\n")
	require.NoError(t, os.Chmod(filepath.Join(m.root, "bin/aws"), 0o700)) //nolint:gosec // a program
	m.write(t, "secret", `{"cert": "CERT", "key": "KEY\n", "redis_password": "a-password", "tokens": {"linux": "a-token"}, "files": {"api/on-call": "b-token"}}`)
	m.write(t, "config", replicaConfig)
	m.run(t, true)
	m.readSettings(t, nil, true)
	for name, want := range map[string]string{"cert": "CERT\n", "key": "KEY\n", "redis_password": "a-password\n", "tokens/linux": "a-token\n", "api/on-call": "b-token\n"} {
		require.Equal(t, want, m.read(t, filepath.Join("run/spillway", name)), name)
		info, err := os.Stat(filepath.Join(m.root, "run/spillway", name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	cfg, err := config.Parse("spillway.yaml", []byte(m.read(t, "run/spillway/spillway.yaml")))
	require.NoError(t, err)
	require.Equal(t, "ip-10-0-0-5.eu-central-1.compute.internal:7701", cfg.Debug.Advertise)

	// What was there stays if the next answer is of no use, and none of it is printed.
	for _, broken := range []string{`["a-token"]`, `{"tokens": "a-token"}`, `not JSON: a-token`, `{"files": {"../escaped": "a-token"}}`, `{"files": {"/etc/escaped": "a-token"}}`, `{"cert": ["a-token"]}`} {
		m.write(t, "secret", broken)
		require.NotContains(t, m.readSettings(t, nil, false), "a-token", broken)
		require.Equal(t, "CERT\n", m.read(t, "run/spillway/cert"), broken)
	}
}

// A download with another checksum ends the boot before it is installed.
func TestReplicaRefusesAnotherBinary(t *testing.T) {
	for _, name := range []string{"controlplane", "spillway-provider-ec2asg"} {
		m := newReplica(t, replicaScript(t))
		m.write(t, filepath.Join("downloads", name), "somebody else's")
		m.run(t, false)
		require.NotContains(t, m.read(t, "notes"), "systemctl", name)
	}
}

// bootAWSReplica boots with what is in AWS, read by AWS's own client.
func bootAWSReplica(t *testing.T, script string, aws client) {
	own, err := os.ReadFile(filepath.Join(source, "modules", "aws-control-plane", "files", "boot.sh"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(script, string(own)), "the other tests run another script")
	m := newReplica(t, script)
	require.NoError(t, os.Remove(filepath.Join(m.root, "bin/aws")))
	m.run(t, true)
	m.readSettings(t, aws.env, true)
	require.Equal(t, "a-token-of-a-test\n", m.read(t, "run/spillway/tokens/gitlab"))
	file := filepath.Join(m.root, "run/spillway/spillway.yaml")
	cfg, err := config.Parse("spillway.yaml", []byte(m.read(t, "run/spillway/spillway.yaml")))
	require.NoError(t, err)
	require.Equal(t, "ip-10-0-0-5.ec2.internal:7701", cfg.Debug.Advertise)
	require.Equal(t, "ip-10-0-0-5.ec2.internal:7704", cfg.GitLab.Route.Advertise)
	require.Contains(t, requireValidConfiguration(t, file), "is valid: 1 pools")
}

// replica is a machine of the control plane.
type replica struct{ *machine }

func newReplica(t *testing.T, script string) replica {
	t.Helper()
	m := replica{newMachine(t, script)}
	m.script = strings.ReplaceAll(m.script, " /usr/lib/spillway", " "+m.root+"/usr/lib/spillway")
	m.write(t, "bin/curl", "#!/bin/bash\n"+strings.Replace(standIns["curl"], "*/meta-data/instance-id)", "*/meta-data/local-ipv4) echo 10.0.0.5 ;;\n*/meta-data/instance-id)", 1)+"\n")
	require.NoError(t, os.Chmod(filepath.Join(m.root, "bin/curl"), 0o700)) //nolint:gosec // a program
	m.write(t, "downloads/controlplane", "test")
	m.write(t, "downloads/spillway-provider-ec2asg", "test2")
	return m
}

// readSettings does what spillway-settings.service does, with the words of that unit, for
// the user that runs the test.
func (m replica) readSettings(t *testing.T, env []string, well bool) string {
	t.Helper()
	_, line, found := strings.Cut(m.read(t, "etc/systemd/system/spillway-settings.service"), "\nExecStart=")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	who, err := exec.Command("id", "-un").Output()
	require.NoError(t, err)
	words := strings.Fields(strings.Replace(line, " spillway ", " "+strings.TrimSpace(string(who))+" ", 1))
	require.Len(t, words, 7, line)
	if os.Getuid() != 0 { // who alone may give files away
		text := m.read(t, "usr/local/lib/spillway/read-settings")
		m.write(t, "usr/local/lib/spillway/read-settings", strings.Replace(text, "os.chown(part, user.pw_uid, user.pw_gid)", "pass", 1))
	}
	cmd := exec.Command(interpreter(t), words...)
	cmd.Env = m.env
	if env != nil {
		cmd.Env = env
	}
	out, err := cmd.CombinedOutput()
	require.Equal(t, well, err == nil, "%s", out)
	return string(out)
}
