package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/store/storetest"
)

// Sentinels have a password of their own, which the servers that they watch need not have.
func TestSentinelsWithAPassword(t *testing.T) {
	t.Parallel()
	const secret = "for-the-sentinels"
	addr := storetest.StartSentinel(t, "mymaster", "requirepass "+secret)
	open := func(password string) error {
		cfg := configure(t, "{url: http://127.0.0.1:1}", "mode: observe, gitlab: {runner_id: 1}, capability: {tags: [theirs]}")
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte(password), 0o600))
		cfg.Store.Redis = &config.Redis{Addrs: []string{addr}, Sentinel: &config.Sentinel{MasterName: "mymaster", PasswordFile: file}}
		c := &ControlPlane{cfg: cfg}
		if err := c.openStore(t.Context()); err != nil {
			return err
		}
		return c.store.Close()
	}
	require.NoError(t, open(secret))
	require.Error(t, open("another"))
}
