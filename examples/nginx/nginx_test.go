package nginx_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// who answers by its name, and by what it was asked.
func who(name string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Who", name)
		_, _ = fmt.Fprint(w, r.URL.Path, " ", r.Host, " ", r.Header.Get("Upgrade"))
	}))
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// The file is run by nginx as it is, but for its addresses.
func TestNginxSendsOnePathToSpillway(t *testing.T) {
	nginx := peertest.Program(t, "nginx", "examples/nginx was not run")
	spillway, gitlab := who("spillway"), who("gitlab")
	defer gitlab.Close()
	defer spillway.Close()
	port, dead := peertest.FreePort(t), peertest.FreePort(t)

	text, err := os.ReadFile("gitlab.conf")
	require.NoError(t, err)
	replace := strings.NewReplacer(
		"127.0.0.1:7703", address(spillway), "127.0.0.1:7713", fmt.Sprintf("127.0.0.1:%d", dead),
		"127.0.0.1:8181", address(gitlab), "127.0.0.1:8080", fmt.Sprintf("127.0.0.1:%d", port),
	)
	dir := t.TempDir()
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	conf := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "daemon off;\nmaster_process off;\npid %s;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n",
		filepath.Join(dir, "pid"), temporary, replace.Replace(string(text))), 0o600))

	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		require.NoError(t, err)
		req.Host = "gitlab.example.com"
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			err = answer.Body.Close()
		}
		return answer, err
	}
	peertest.Start(t, exec.Command(nginx, "-p", dir, "-c", conf, "-e", "stderr"), func() error {
		_, err := get("/")
		return err
	})
	for path, want := range map[string]string{
		"/api/v4/runners/router/discovery":  "spillway",
		"/runners/router":                   "spillway",
		"/api/v4/jobs/request":              "gitlab",
		"/api/v4/runners/router/discovery2": "gitlab",
		"/api/v4/runners/router":            "gitlab",
		"/":                                 "gitlab",
	} {
		answer, err := get(path)
		require.NoError(t, err)
		require.Equal(t, want, answer.Header.Get("Who"), path)
	}

	// Without any replica the runners are told that there is no router.
	spillway.Close()
	answer, err := get("/api/v4/runners/router/discovery")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotImplemented, answer.StatusCode)
	answer, err = get("/api/v4/jobs/request")
	require.NoError(t, err)
	require.Equal(t, "gitlab", answer.Header.Get("Who"))
}
