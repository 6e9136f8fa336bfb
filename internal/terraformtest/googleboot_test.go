package terraformtest_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// startupScripts are run, in folders that look like instances of Google.
func startupScripts(t *testing.T, pools map[string]terraformtest.State, replica terraformtest.State) {
	require.Len(t, pools, 3)
	for mode, s := range pools {
		t.Run(mode, func(t *testing.T) {
			script := startupScript(t, s)
			bootRunner(t, mode, script)
		})
	}
	t.Run("replica", func(t *testing.T) { bootReplica(t, startupScript(t, replica)) })
	t.Run("another binary", func(t *testing.T) {
		m := newInstance(t, startupScript(t, pools["orchestrate"]))
		m.write(t, "downloads/spillway-agent", "somebody else's")
		m.run(t, false)
		require.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/spillway-agent"))
		require.NotContains(t, m.read(t, "notes"), "systemctl")
	})
}

func startupScript(t *testing.T, s terraformtest.State) string {
	t.Helper()
	script, ok := s.Outputs["startup_script"].(string)
	require.True(t, ok)
	require.LessOrEqual(t, len(script), 262144, "Google takes 256 KB of metadata in a value")
	checkScript(t, script)
	for address, values := range s.Resources {
		if strings.Contains(address, "google_compute_region_instance_template.") {
			metadata, ok := values["metadata"].(map[string]any)
			require.True(t, ok)
			require.Equal(t, script, metadata["startup-script"])
			return script
		}
	}
	t.Fatal("nobody runs it")
	return ""
}

// googleCurl stands in for curl: downloads are files, and the metadata server knows the
// instance.
const googleCurl = `#!/bin/bash
out=""; flavor=""; for last; do :; done
while [ $# -gt 0 ]; do
  [ "$1" = --output ] && out=$2
  [ "$1" = --header ] && flavor=$2
  shift
done
case "$last $flavor" in
"http://metadata.google.internal/computeMetadata/v1/instance/id Metadata-Flavor: Google") echo 4567890123456789012 ;;
"http://metadata.google.internal/computeMetadata/v1/instance/hostname Metadata-Flavor: Google") echo replica-a.europe-west1-b.c.my-project.internal ;;
https://*) cp "$ROOT/downloads/${last##*/}" "$out" ;;
*) exit 22 ;;
esac
`

// newInstance is a machine of Google with Ops Agent.
func newInstance(t *testing.T, script string) *machine {
	t.Helper()
	m := newMachine(t, script)
	m.write(t, "bin/curl", googleCurl)
	for name, payload := range map[string]string{"controlplane": "test", "spillway-provider-gcemig": "test2"} {
		m.write(t, filepath.Join("downloads", name), payload)
	}
	m.write(t, "etc/google-cloud-ops-agent/config.yaml", "")
	m.script = strings.ReplaceAll(m.script, "/usr/lib/spillway", filepath.Join(m.root, "usr/lib/spillway"))
	return m
}

// bootAgain boots and reboots: Google runs the script at each boot, and what is there is
// not downloaded again.
func (m *machine) bootAgain(t *testing.T) (notes string) {
	t.Helper()
	m.run(t, true)
	notes = m.read(t, "notes")
	require.NoError(t, os.RemoveAll(filepath.Join(m.root, "downloads")))
	m.run(t, true)
	return notes
}

func bootRunner(t *testing.T, mode, script string) {
	m := newInstance(t, script)
	notes := m.bootAgain(t)
	require.Contains(t, notes, "systemctl daemon-reload\n")
	require.Contains(t, notes, "systemctl restart google-cloud-ops-agent.service\n")
	require.Contains(t, m.read(t, "etc/google-cloud-ops-agent/config.yaml"), "/var/log/spillway/*.log]")
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
	m.readGoogle(t, "usr/local/lib/spillway/read-secret", map[string]string{"spillway-linux": secret}, "projects/my-project/secrets/spillway-linux")
	require.Equal(t, "a-token\n", m.read(t, "run/spillway/runner_token"))
	require.Equal(t, "CERT\n", m.read(t, "run/spillway/cert"))
	m.private(t, "run/spillway/key")
	if mode == "orchestrate" {
		require.Contains(t, m.read(t, "etc/systemd/system/spillway-agent.service"), "User=spillway\n")
		require.Contains(t, m.read(t, "usr/local/lib/spillway/agent"), "--cloud gce")
		require.NoFileExists(t, filepath.Join(m.root, "run/spillway/gitlab-runner.toml"))
		return
	}
	toml := m.read(t, "run/spillway/gitlab-runner.toml")
	require.Contains(t, toml, `token = "glrt-\"x"`)
	require.Contains(t, m.read(t, "etc/spillway/gitlab-runner.toml"), "@TOKEN@", "the token is in memory only")
	require.Equal(t, mode == "route", strings.Contains(toml, `spillway-instance = "4567890123456789012"`), "the plugin knows the instance by its number")
	require.Equal(t, mode == "observe", strings.Contains(toml, `listen_address = ":9252"`), "only with metrics_source_service_accounts")
}

func bootReplica(t *testing.T, script string) {
	m := newInstance(t, script)
	notes := m.bootAgain(t)
	require.Contains(t, notes, "systemctl enable --now spillway-settings.timer spillway.service\n")
	require.Equal(t, "test2", m.read(t, "usr/lib/spillway/plugins/spillway-provider-gcemig"))
	unit := m.read(t, "etc/systemd/system/spillway-settings.service")
	require.Contains(t, unit, " replica-a.europe-west1-b.c.my-project.internal\n")
	secrets := map[string]string{
		"spillway-control-plane": `{"cert": "CERT", "key": "KEY", "tokens": {"linux": "a-token"}, "files": {"api-token": "x"}}`,
		"spillway-redis":         `{"redis_password": "p", "redis_ca": "CA"}`,
		"spillway-config":        "debug: {advertise: '@REPLICA@:7701'}\n",
	}
	names := []string{"projects/my-project/secrets/spillway-control-plane", "projects/my-project/secrets/spillway-redis", "projects/my-project/secrets/spillway-config"}
	m.readGoogle(t, "usr/local/lib/spillway/read-settings", secrets, append(names, "replica-a.europe-west1-b.c.my-project.internal")...)
	for name, text := range map[string]string{
		"cert": "CERT\n", "tokens/linux": "a-token\n", "api-token": "x\n", "redis_password": "p\n", "redis_ca": "CA\n",
		"spillway.yaml": "debug: {advertise: 'replica-a.europe-west1-b.c.my-project.internal:7701'}\n",
	} {
		require.Equal(t, text, m.read(t, filepath.Join("run/spillway", name)))
		m.private(t, filepath.Join("run/spillway", name))
	}
}

// private is a file that nobody else may read.
func (m *machine) private(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(m.root, name))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// readGoogle does what the unit that reads secrets does, for the user that runs the test,
// with a metadata server and a Secret Manager that have these secrets.
func (m *machine) readGoogle(t *testing.T, program string, secrets map[string]string, args ...string) {
	t.Helper()
	server := httptest.NewServer(standInForGoogle(t, secrets))
	defer server.Close()
	who, err := exec.Command("id", "-un").Output()
	require.NoError(t, err)
	user := strings.TrimSpace(string(who))
	text := strings.NewReplacer("https://secretmanager.googleapis.com", server.URL, "http://metadata.google.internal", server.URL).Replace(m.read(t, program))
	require.NotContains(t, text, "googleapis.com")
	if user != "root" { // who alone may give files away
		text = strings.NewReplacer("os.chown(part, uid, gid)", "pass", "os.chown(part, user.pw_uid, user.pw_gid)", "pass").Replace(text)
	}
	m.write(t, program+".test", text)
	python := interpreter(t)
	for range 2 { // and again, over what is there
		cmd := exec.Command(python, append([]string{filepath.Join(m.root, program+".test"), filepath.Join(m.root, "run/spillway"), user}, args...)...)
		cmd.Env = append(slices.Clone(m.env), "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out), "a secret, perhaps")
	}
}

// standInForGoogle answers as
// https://cloud.google.com/compute/docs/access/authenticate-workloads and
// https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access say.
func standInForGoogle(t *testing.T, secrets map[string]string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /computeMetadata/v1/instance/service-accounts/default/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		writeJSON(t, w, map[string]any{"access_token": "of-the-instance", "expires_in": 3599, "token_type": "Bearer"})
	})
	mux.HandleFunc("GET /v1/projects/my-project/secrets/{name}/versions/latest:access", func(w http.ResponseWriter, r *http.Request) {
		text, ok := secrets[r.PathValue("name")]
		if !ok || r.Header.Get("Authorization") != "Bearer of-the-instance" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		writeJSON(t, w, map[string]any{"name": r.URL.Path, "payload": map[string]string{"data": base64.StdEncoding.EncodeToString([]byte(text))}})
	})
	return mux
}

func writeJSON(t *testing.T, w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Error(err)
	}
}
