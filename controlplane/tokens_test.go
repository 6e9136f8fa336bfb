package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
)

// A runner token is replaced without a moment in which some runner is refused, which
// would have it leave at once, its jobs cut short: both are good for as long as the file
// has both.
func TestARunnerTokenIsReplacedWhileBothAreGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	c := &ControlPlane{
		cfg:   &config.Config{Pools: []config.Pool{{Name: "linux", RunnerToken: config.SecretSource{File: path}}}},
		pools: []spillway.Pool{{Name: "linux"}},
	}
	for content, good := range map[string][]string{
		"the-old-token\n":                {"the-old-token"},
		"the-new-token\nthe-old-token\n": {"the-new-token", "the-old-token"},
		"the-new-token the-old-token":    {"the-new-token", "the-old-token"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		tokens, err := c.tokens()
		require.NoError(t, err)
		for _, token := range good {
			pool, known := tokens.Pool(t.Context(), token)
			require.True(t, known, token)
			require.Equal(t, "linux", pool.Name)
		}
		_, known := tokens.Pool(t.Context(), content)
		require.False(t, known)
	}
}
