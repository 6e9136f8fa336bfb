package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/terraformtest"
)

// secrets are what a cloud was told to keep, by name.
type secrets map[string]map[string]any

// keptBy makes a stand-in of a cloud's command that keeps secrets in files, and returns
// what reads them.
func (s *stage) keptBy(command, script string) func() secrets {
	s.Helper()
	s.tool(command, script)
	require.NoError(s, os.Mkdir(s.path("kept"), 0o700))
	return func() secrets {
		s.Helper()
		files, err := filepath.Glob(s.path("kept", "*"))
		require.NoError(s, err)
		all := secrets{}
		for _, file := range files {
			var secret map[string]any
			require.NoError(s, json.Unmarshal([]byte(read(s.T, file)), &secret), file)
			all[filepath.Base(file)] = secret
		}
		return all
	}
}

// awsCommand keeps a secret, and refuses everything else; a / is a _ in a file's name.
const awsCommand = `#!/bin/bash
[ "$1 $2 $3 $5 $#" = "secretsmanager create-secret --name --secret-string 6" ] || { echo "aws: $*" >&2; exit 2; }
printf %s "$6" >"$TMPDIR/kept/${4//\//_}"
`

const gcloudCommand = `#!/bin/bash
[ "$1 $2 $4 $#" = "secrets create --data-file=- 4" ] || { echo "gcloud: $*" >&2; exit 2; }
cat >"$TMPDIR/kept/$3"
`

// certificates are made by the commands of the page about them, for a name.
func (s *stage) certificates() {
	s.Helper()
	for _, block := range blocks(read(s.T, "pki.md"), "sh") {
		if strings.HasPrefix(block, "openssl") {
			s.run("(" + block + ") 2>&1")
			return
		}
	}
	s.Fatal("pki.md has no openssl")
}

// quickstart plays a quick start: what was put into the secrets is what the control
// plane and the runners have then, and the job of the last step runs.
func (s *stage) quickstart(build, makeSecrets, job string, kept func() secrets, prefix string) secrets {
	s.Helper()
	s.certificates()
	s.run(build)
	s.run(makeSecrets + "\ndeclare -p api >vars\n")
	all := kept()
	plane := all[prefix+"control-plane"]
	require.NotNil(s, plane, "%v", all)
	require.Equal(s, read(s.T, s.path("server.crt")), plane["cert"])
	files, ok := plane["files"].(map[string]any)
	require.True(s, ok)
	tokens, ok := plane["tokens"].(map[string]any)
	require.True(s, ok)
	for name, text := range files {
		s.write("run/"+name, fmt.Sprint(text))
	}
	s.write("run/key", fmt.Sprint(plane["key"]))
	var pools strings.Builder
	for name, text := range tokens {
		s.write("run/tokens/"+name, fmt.Sprint(text))
		fmt.Fprintf(&pools, "  - {name: %s, capability: {tags: [linux]}, provider: cloud, runner_token: {file: run/tokens/%s}, policy: {max: 1, paused: true}}\n", name, name)
		require.Equal(s, text, all[prefix+name]["runner_token"], "the pool's own secret has the same token")
	}
	require.Len(s, all, 1+len(tokens))
	f := s.serve(fmt.Sprintf(`listen: {runners: "127.0.0.1:0", api: "127.0.0.1:0", metrics: "127.0.0.1:0", tls: {cert_file: server.crt, key_file: run/key}}
access: [{name: ci, token: {file: run/api-token}, roles: [push, read, operate]}]
plugin_dir: bin/plugins
providers: {cloud: {plugin: spillway-provider-fake, config: {groups: {linux: {max: 1}, linux-spot: {max: 1}}}}}
pools:
%s`, pools.String()))
	s.write("runner-ca.crt", fmt.Sprint(all[prefix+"linux-spot"]["ca"]))
	s.write("runner-token", fmt.Sprint(all[prefix+"linux-spot"]["runner_token"]))
	f.agent("--token-file runner-token --ca-file runner-ca.crt")
	out := s.run(". ./vars\n" + strings.ReplaceAll(job, "spillway.example.com:7701", f.api))
	require.Contains(s, out, "linux-spot")
	require.Contains(s, out, "completed")
	return all
}

func playQuickstartOnAWS(s *stage, blocks []string) {
	all := s.quickstart(blocks[0], blocks[1], blocks[2], s.keptBy("aws", awsCommand), "spillway_")
	password, ok := all["spillway_control-plane"]["redis_password"].(string)
	require.True(s, ok)
	require.Regexp(s, "^[0-9a-zA-Z]{32}$", password, "as the page says")
	requireDescribed(s.T, "aws-control-plane", "secret_arn", all["spillway_control-plane"])
	requireDescribed(s.T, "aws-runner-pool", "tls_secret_arn", all["spillway_linux"])
}

func playQuickstartOnGoogle(s *stage, blocks []string) {
	s.quickstart(blocks[0], blocks[1], blocks[2], s.keptBy("gcloud", gcloudCommand), "spillway-")
}

// variable is what a module says of one.
func variable(t *testing.T, folder, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?s)variable "` + name + `" \{\n  description = "(.*?)"\n`).FindStringSubmatch(read(t, filepath.Join("..", "terraform", folder, "variables.tf")))
	require.NotNil(t, m, "%s has no variable %s", folder, name)
	return m[1]
}

// requireDescribed fails for a key of a secret that the module which reads it does not
// know.
func requireDescribed(t *testing.T, module, name string, secret map[string]any) {
	t.Helper()
	about := variable(t, "modules/"+module, name)
	for key := range secret {
		require.Contains(t, about, "`"+key+"`", "%s of %s", name, module)
	}
}

var setValue = regexp.MustCompile(`(?m)^(\w+) *=`)

// quickstartValues are the values that the page tells to write.
func quickstartValues(t *testing.T) string {
	t.Helper()
	found := blocks(read(t, "quickstart-aws.md"), "hcl")
	require.Len(t, found, 1)
	return found[0]
}

// The values are those that the example asks for, with nothing else; with them, and AWS
// mocked, it can be applied.
func TestQuickstartOnAWSHasAllThatTerraformAsksFor(t *testing.T) {
	values := quickstartValues(t)
	var given, asked []string
	for _, m := range setValue.FindAllStringSubmatch(values, -1) {
		given = append(given, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^variable "(\w+)"`).FindAllStringSubmatch(read(t, "../terraform/examples/aws/variables.tf"), -1) {
		asked = append(asked, m[1])
	}
	require.ElementsMatch(t, slices.DeleteFunc(asked, func(name string) bool { return name == "redis_auth_token" }), given)
	page := read(t, "quickstart-aws.md")
	require.Contains(t, page, "TF_VAR_redis_auth_token=")
	outputs := read(t, "../terraform/examples/aws/outputs.tf")
	for _, m := range regexp.MustCompile(`terraform output -raw (\w+)`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, outputs, `output "`+m[1]+`"`)
	}
	if !*everything {
		t.Skip("SKIPPED, without -everything: Terraform was not run with the page's values")
	}
	mirror := terraformtest.Mirror(t, "hashicorp/aws", "Terraform was not run with the page's values")
	w := terraformtest.New(t, "../terraform", mirror)
	const folder = "examples/aws"
	w.Init(folder)
	head, _, found := strings.Cut(read(t, w.Path(folder, "tests", "fleet.tftest.hcl")), "\nvariables {")
	require.True(t, found)
	file := head + "\nvariables {\n  redis_auth_token = \"" + strings.Repeat("0", 32) + "\"\n" + values +
		"}\n\nrun \"page\" {\n  assert {\n    condition     = output.api == \"spillway.example.com:7701\"\n    error_message = \"other values\"\n  }\n}\n"
	require.NoError(t, os.WriteFile(w.Path(folder, "tests", "page.tftest.hcl"), []byte(file), 0o600))
	require.Contains(t, w.Run(folder, "test", "-no-color", "-filter=tests/page.tftest.hcl"), "1 passed, 0 failed")
}
