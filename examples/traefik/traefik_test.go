package traefik_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/internal/peertest"
)

const host = "gitlab.example.com"

// wanted is whom each path is for.
var wanted = map[string]string{
	"/api/v4/runners/router/discovery":  "spillway",
	"/runners/router":                   "spillway",
	"/api/v4/jobs/request":              "gitlab",
	"/api/v4/runners/router/discovery2": "gitlab",
	"/api/v4/runners/router":            "gitlab",
	"/":                                 "gitlab",
}

// dynamic is what the file may have, by Traefik's names; anything else is a mistake.
type dynamic struct {
	HTTP struct {
		Routers map[string]struct {
			Rule     string `yaml:"rule"`
			Priority int    `yaml:"priority"`
			Service  string `yaml:"service"`
		} `yaml:"routers"`
		Services map[string]struct {
			LoadBalancer struct {
				Servers []struct {
					URL string `yaml:"url"`
				} `yaml:"servers"`
				HealthCheck struct {
					Path     string        `yaml:"path"`
					Interval time.Duration `yaml:"interval"`
					Timeout  time.Duration `yaml:"timeout"`
				} `yaml:"healthCheck"`
			} `yaml:"loadBalancer"`
		} `yaml:"services"`
	} `yaml:"http"`
}

func load(t *testing.T) (d dynamic) {
	t.Helper()
	file, err := os.Open("dynamic.yaml")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&d))
	return d
}

// rule is the kind of rule that the file has: a host, and one whole path or any.
var rule = regexp.MustCompile("^Host\\(`([^`]+)`\\)(?: && Path\\(`([^`]+)`\\))?$")

// Of the routers that match, the one with the highest priority has the request.
func TestOnePathIsForSpillway(t *testing.T) {
	d := load(t)
	for path, want := range wanted {
		best, service := 0, ""
		for name, r := range d.HTTP.Routers {
			m := rule.FindStringSubmatch(r.Rule)
			require.NotNil(t, m, "%s: %s", name, r.Rule)
			require.Equal(t, host, m[1])
			require.Contains(t, d.HTTP.Services, r.Service, name)
			if (m[2] == "" || m[2] == path) && r.Priority > best {
				best, service = r.Priority, r.Service
			}
		}
		require.Equal(t, want, service, path)
	}
	spillway := d.HTTP.Services["spillway"].LoadBalancer
	require.Equal(t, "/healthz", spillway.HealthCheck.Path)
	require.Less(t, spillway.HealthCheck.Timeout, spillway.HealthCheck.Interval)
	require.Len(t, spillway.Servers, 2)
}

var server = regexp.MustCompile(`http://10\.0\.0\.(\d+):\d+`)

// The file is run by Traefik as it is, but for its addresses.
func TestTraefikSendsOnePathToSpillway(t *testing.T) {
	traefik := peertest.Program(t, "traefik", "examples/traefik was looked at, and not run")
	dir := t.TempDir()
	text := server.ReplaceAllStringFunc(read(t), func(url string) string {
		if strings.HasSuffix(url, ":8181") {
			return start(t, "gitlab")
		}
		return start(t, "spillway")
	})
	file := filepath.Join(dir, "dynamic.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	address := peertest.FreeAddress(t)
	cmd := exec.Command(traefik, "--entrypoints.web.address="+address, "--providers.file.filename="+file,
		"--global.checknewversion=false", "--global.sendanonymoususage=false")
	cmd.Dir = dir
	peertest.Start(t, cmd, func() error {
		by, err := get(t, "http://"+address+"/")
		if err == nil && by == "" {
			return fmt.Errorf("nobody has answered")
		}
		return err
	})
	for path, want := range wanted {
		by, err := get(t, "http://"+address+path)
		require.NoError(t, err)
		require.Equal(t, want, by, path)
	}
}

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("dynamic.yaml")
	require.NoError(t, err)
	return string(text)
}

// start is somebody who answers by a name.
func start(t *testing.T, name string) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Who", name) }))
	t.Cleanup(s.Close)
	return s.URL
}

func get(t *testing.T, url string) (by string, err error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	return resp.Header.Get("Who"), resp.Body.Close()
}
