package docs_test

import (
	"archive/zip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/spillway-ci/spillway"

// publish makes a module proxy of a folder, with this repository as a version: what
// somebody gets who gets it from its place.
// https://go.dev/ref/mod#goproxy-protocol, https://go.dev/ref/mod#zip-files
func (s *stage) publish() (proxy string) {
	s.Helper()
	const version = "v0.0.1"
	dir := s.path("proxy", modulePath, "@v")
	require.NoError(s, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version": "` + version + `", "Time": "2026-01-02T03:04:05Z"}`, version + ".mod": read(s.T, "../go.mod"),
	} {
		require.NoError(s, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	list := exec.Command("git", "-C", "..", "ls-files", "-co", "--exclude-standard", "--", "*.go", "go.mod")
	out, err := list.Output()
	require.NoError(s, err)
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(s, err)
	archive := zip.NewWriter(file)
	for _, name := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) || belongsElsewhere(name) {
			continue // removed and not committed yet; of another module
		}
		require.NoError(s, err)
		entry, err := archive.Create(modulePath + "@" + version + "/" + name)
		require.NoError(s, err)
		_, err = entry.Write(text)
		require.NoError(s, err)
	}
	require.NoError(s, archive.Close())
	require.NoError(s, file.Close())
	return s.path("proxy")
}

// belongsElsewhere reports whether a file is below a go.mod of its own.
func belongsElsewhere(name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join("..", dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// playProvider goes from an empty folder to a plugin that passes the suite, as the guide
// promises: with the example's 60 lines as what somebody writes. It compiles everything
// that a plugin links once more; without -everything the example is built here.
func playProvider(s *stage, blocks []string) {
	if *everything {
		s.getModule(blocks[0])
	} else {
		s.Log("SHORT: without -everything nobody gets the module from a proxy")
		s.run("mkdir my-provider && go build -o my-provider/my-provider ./examples/provider-in-60-lines")
	}
	script, err := filepath.Abs("../examples/provider-in-60-lines/vms.sh")
	require.NoError(s, err)
	config, err := json.Marshal(map[string]any{"script": script, "groups": map[string]int{"an-empty-group": 5}})
	require.NoError(s, err)
	s.write("my-provider/my.yaml", string(config)) // JSON is YAML
	check := strings.Replace(blocks[1], "an-empty-group", "an-empty-group --env PATH --env TMPDIR", 1)
	require.NotEqual(s, blocks[1], check)
	out := s.run("cd my-provider\n" + check)
	require.Contains(s, out, "passed")
}

// getModule gets this repository as a module, and builds the example with it.
func (s *stage) getModule(commands string) {
	s.Helper()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(s, err)
	proxies := []string{"file://" + s.publish(), "file://" + filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"), "off"}
	s.env = append(s.env, "GOPROXY="+strings.Join(proxies, ","), "GOSUMDB=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOMODCACHE="+s.path("mod"), "GOWORK=off")
	s.run(commands)
	s.write("my-provider/main.go", read(s.T, "../examples/provider-in-60-lines/main.go"))
	s.run("cd my-provider && go build -o my-provider .")
}
