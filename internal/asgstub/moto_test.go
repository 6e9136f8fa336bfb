package asgstub

import (
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"testing"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// startMoto runs moto_server until the test ends and returns its address.
func startMoto(t *testing.T, path string) string {
	t.Helper()
	port := strconv.Itoa(peertest.FreePort(t))
	url := "http://127.0.0.1:" + port
	cmd := exec.CommandContext(t.Context(), path, "-H", "127.0.0.1", "-p", port)
	cmd.Env = awsEnv(t)
	peertest.Start(t, cmd, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/moto-api/data.json", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", resp.Status)
		}
		return nil
	})
	return url
}
