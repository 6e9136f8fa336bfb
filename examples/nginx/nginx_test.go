package nginx_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// who answers by its name, and by what it was asked.
func who(name string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, name) }))
}

func answer(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Who", name)
	_, _ = fmt.Fprint(w, r.URL.Path, " ", r.Host)
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// The file is run by nginx as it is, but for its addresses.
func TestNginxSendsOnePathToSpillway(t *testing.T) {
	nginx := peertest.Program(t, "nginx", "examples/nginx was not run")
	gitlab, other := who("gitlab"), who("other replica")
	var leaving atomic.Bool
	spillway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer(w, r, "spillway")
	}))
	defer gitlab.Close()
	defer other.Close()
	defer spillway.Close()
	port := peertest.FreePort(t)

	text, err := os.ReadFile("gitlab.conf")
	require.NoError(t, err)
	replace := strings.NewReplacer(
		"127.0.0.1:7703", address(spillway), "127.0.0.1:7713", address(other),
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
	get := func(path string) (status int, by string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		require.NoError(t, err)
		req.Host = "gitlab.example.com"
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		return answer.StatusCode, answer.Header.Get("Who"), answer.Body.Close()
	}
	peertest.Start(t, exec.Command(nginx, "-p", dir, "-c", conf, "-e", "stderr"), func() error {
		_, _, err := get("/")
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
		_, by, err := get(path)
		require.NoError(t, err)
		require.Equal(t, want, by, path)
	}

	// A replica on its way out is not the last word, if there is another.
	leaving.Store(true)
	_, by, err := get("/api/v4/runners/router/discovery")
	require.NoError(t, err)
	require.Equal(t, "other replica", by)

	// Without any, a runner gets what it takes for a moment's trouble.
	other.Close()
	spillway.Close()
	status, _, err := get("/api/v4/runners/router/discovery")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadGateway, status)
	_, by, err = get("/api/v4/jobs/request")
	require.NoError(t, err)
	require.Equal(t, "gitlab", by)
}
