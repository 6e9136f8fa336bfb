package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write testdata/helm-golden.yaml")

// kubeVersion is that of no cluster: without one helm takes its own oldest.
const kubeVersion = "1.31.0"

// helm is $HELM, which `make check-release` builds, or the one that is installed.
func helm(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("HELM"); path != "" {
		return path
	}
	return installedProgram(t, "helm", "the chart was not rendered (make check-release does)")
}

// In the source folder, where the version is not that of a release.
var chart = filepath.Join(top, "deploy/helm/spillway")

func TestChartRendersAsBefore(t *testing.T) {
	got := output(t, helm(t), "template", "fleet", chart, "--namespace", "ci", "--kube-version", kubeVersion, "--values", "testdata/helm-values.yaml")
	if *update {
		require.NoError(t, os.WriteFile("testdata/helm-golden.yaml", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/helm-golden.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test -run Chart -update writes it anew")
}

func TestChartIsFoundGoodByHelm(t *testing.T) {
	output(t, helm(t), "lint", "--strict", chart, "--values", "testdata/helm-values.yaml")
	folder, _ := dist(t)
	output(t, helm(t), "lint", "--strict", one(t, folder, "*.tgz"), "--values", "testdata/helm-values.yaml")
}

// What can't work is refused before anything is installed.
func TestChartRefusesWhatCannotWork(t *testing.T) {
	for want, args := range map[string][]string{
		"tls.secretName is empty": {"--set", "tls.secretName="},
		"redis.addrs is empty":    {"--set-json", "redis.addrs=[]"},
		"redis.addrs has several": {"--set", "redis.cluster=false"},
		"config.pools is empty":   {"--set-json", "config.pools=[]"},
		"/redis/addrs/0":          {"--set-json", `redis.addrs=["redis"]`},
		"/replicas":               {"--set", "replicas=0"},
		"'replica' not allowed":   {"--set", "replica=3"},
		"/service/gitlabPort":     {"--set", "service.gitlabPort=443"},
		"jobRouterPort is empty":  {"--set-json", `config.gitlab={"url":"https://gitlab.example.com","route":{"server_url":"grpcs://spillway.example.com:7704"}}`},
	} {
		out, err := exec.Command(helm(t), append([]string{"template", "fleet", chart, "--kube-version", kubeVersion, "--values", "testdata/helm-values.yaml"}, args...)...).CombinedOutput()
		require.Error(t, err, want)
		require.Contains(t, string(out), want)
	}
}

// Each replica has a configuration that the control plane takes, with an address of its
// own for the others.
func TestChartWritesValidConfigurations(t *testing.T) {
	f, err := os.Open("testdata/helm-golden.yaml")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for documents := yaml.NewDecoder(f); ; {
		var object struct {
			Kind string
			Data map[string]string
		}
		require.NoError(t, documents.Decode(&object), "there is no ConfigMap")
		if object.Kind == "ConfigMap" {
			require.Len(t, object.Data, 2)
			for replica, text := range object.Data {
				require.Contains(t, text, "advertise: "+strings.TrimSuffix(replica, ".yaml")+".fleet-replicas.ci.svc:7701")
				requireValid(t, text)
			}
			return
		}
	}
}

// The values in the documentation render, too.
func TestChartTakesTheDocumentedValues(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs/install.md"))
	require.NoError(t, err)
	_, values, found := strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	values, _, found = strings.Cut(values, "```")
	require.True(t, found)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o644))
	require.Contains(t, output(t, helm(t), "template", "fleet", chart, "--kube-version", kubeVersion, "--values", file), "replicas: 2")
}
